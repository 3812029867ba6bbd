"""An S3 server of our own on a free loopback port, and the environment that makes clients use it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
BUCKET = "states"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """A server with an empty bucket; gives the environment of its clients, which this process has meanwhile."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    before = dict(os.environ)
    try:
        host, port = server.get_host_and_port()
        given = KEYS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}
        os.environ.update(given)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield given
    finally:
        server.stop()
        os.environ.clear()
        os.environ.update(before)
