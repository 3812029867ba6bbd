"""What runs on the hosts of a cluster: an S3 server, a broker, Spark's standalone master and workers, the service."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import httpx
import yaml

from tests.cluster.network import Host, network
from tests.live.service import ROOT, Service, wait_for
from tests.storage.s3 import BUCKET, KEYS
from vernier.service.kafka.broker_errors import BrokerError
from vernier.service.kafka.topics import create_topics
from vernier.service.toolchain.java import java_home
from vernier.service.toolchain.jvm import spark_home

SECRET = "of-this-tests-cluster"
BROKER_PORT, S3_PORT, MASTER_PORT, HTTP_PORT = 9092, 9000, 7077, 8642
DEMO = ROOT / "configs" / "demo.py"
_BROKER = """
import signal, sys
from vernier.service.kafka.embedded_broker import EmbeddedBroker
number, port, *addresses = sys.argv[1:]
address, several = addresses[int(number) - 1], str(min(3, len(addresses)))
properties = {
    "node.id": number,
    "controller.quorum.voters": ",".join(f"{n}@{one}:9093" for n, one in enumerate(addresses, 1)),
    "listeners": f"PLAINTEXT://127.0.0.1:9091,HOSTS://{address}:{port},CONTROLLER://{address}:9093",
    "advertised.listeners": f"PLAINTEXT://127.0.0.1:9091,HOSTS://{address}:{port}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,HOSTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "HOSTS",
    "default.replication.factor": several,
    "offsets.topic.replication.factor": several,
    "transaction.state.log.replication.factor": several,
    "min.insync.replicas": str(len(addresses) // 2 + 1),
    "transaction.state.log.min.isr": str(len(addresses) // 2 + 1),
    "replica.lag.time.max.ms": "10000",
    "broker.session.timeout.ms": "6000",
}
broker = EmbeddedBroker("/tmp/kafka", 9091, properties=properties, heap_mb=256, cluster="dGhlLXRlc3RzLWNsdXN0ZQ")
broker.start(300)
signal.pause()
"""

_AGAIN = 'while true; do "$@"; sleep 1; done'
"""Starts a command again when it has ended, as a host's init does: a worker of Spark ends when its master does not
answer for some minutes."""


class Machine:
    """A host, and the log of what it runs."""

    def __init__(self, host: Host, env: dict[str, str]) -> None:
        self.host, self.env = host, env
        self.log = host.folder / "log"
        self._out = self.log.open("ab")

    def run(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a command. Its files are in the host's own /tmp."""
        return self.host.start(command, self._out, {**self.env, **env, "TMPDIR": "/tmp"}, ROOT)

    def python(self, *command: str) -> subprocess.Popen[bytes]:
        """Start this Python."""
        return self.run(sys.executable, *command)

    def close(self) -> None:
        """Close the log."""
        self._out.close()


class RemoteService(Service):
    """`vernier up` on a host; asked from the host that the test is on."""

    def __init__(self, machine: Machine, workers: int, program: Path, patience: float, **settings: Any) -> None:
        self.machine = machine
        super().__init__(machine.host.folder / "tmp", workers, program, patience=patience, **settings)
        self.url = f"http://{machine.host.address}:{HTTP_PORT}"

    def launch(self) -> None:
        """Start, and wait for nothing."""
        up = ["-m", "vernier", "up", str(self.program), "--config", "/tmp/service.yaml"]
        self.process = self.machine.python(*up)

    def alive(self) -> bool:
        """Whether the sidecar answers and knows a frontier."""
        assert self.process is not None
        assert self.process.poll() is None, f"vernier up ended: {self.machine.log.read_text()[-2000:]}"
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/v1/frontiers", timeout=2).status_code == 200
        return False

    def stop(self) -> None:
        """Ctrl-C, if the host is still there."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        self.process = None


@dataclass
class Cluster:
    """A running cluster without a service. brokers: their hosts. patience: seconds to wait for anything. boots: starts
    the processes of a host that were started there before."""

    machines: dict[str, Machine]
    brokers: list[str]
    patience: float
    services: list[RemoteService] = field(default_factory=list)
    boots: dict[str, Callable[[], object]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses."""
        return ",".join(f"{self.machines[name].host.address}:{BROKER_PORT}" for name in self.brokers)

    def boot(self, name: str) -> None:
        """Start the processes of a host that has died, and plug its cable in."""
        self.machines[name].host.heal()
        self.boots[name]()

    def broker(self, name: str) -> None:
        """Start a broker on its host."""
        addresses = [self.machines[one].host.address for one in self.brokers]
        number = str(1 + self.brokers.index(name))
        self.machines[name].python("-c", _BROKER, number, str(BROKER_PORT), *addresses)
        self.boots[name] = partial(self.broker, name)

    def spark_worker(self, name: str, cores: int) -> None:
        """Start a worker of Spark on a host."""
        machine = self.machines[name]
        address = machine.host.address
        more = ["--host", address, "--cores", str(cores), "--memory", "4g", "--work-dir", "/tmp/work"]
        self._spark(machine, "worker.Worker", *more, f"spark://{self.machines['master'].host.address}:{MASTER_PORT}")
        self.boots[name] = partial(self.spark_worker, name, cores)

    def spark_master(self) -> None:
        """Start Spark's master."""
        machine = self.machines["master"]
        self._spark(machine, "master.Master", "--host", machine.host.address, "--port", str(MASTER_PORT))

    def service(self, name: str, workers: int, program: Path = DEMO, **settings: Any) -> RemoteService:
        """A service whose driver is on a host; not started."""
        machine = self.machines[name]
        conf = {"spark.authenticate.secret": SECRET, "spark.executor.memory": "512m"}
        given: dict[str, Any] = {
            "kafka": {"bootstrap": self.bootstrap},
            "state": {"path": f"s3://{BUCKET}/cluster", "cache": "/tmp/cache", "scratch": "/tmp/scratch"},
            "spark": {"master": f"spark://{self.machines['master'].host.address}:{MASTER_PORT}", "conf": conf},
            "exchange": {"host": machine.host.address},
            "http": {"host": machine.host.address, "port": HTTP_PORT, "anonymous": "admin"},
            "log": {"directory": "/tmp/logs"},
        }
        for key, value in settings.items():
            given[key] = {**given.get(key, {}), **value} if isinstance(value, dict) else value
        given["spark"]["conf"] = {**conf, **given["spark"]["conf"]}
        made = RemoteService(machine, workers, program, self.patience, **given)
        self.services.append(made)
        self.boots[name] = made.launch
        return made

    def sidecar(self, name: str) -> str:
        """Start a sidecar alone on a host; returns its URL."""
        machine = self.machines[name]
        address = machine.host.address
        (machine.host.folder / "tmp" / "sidecar.yaml").write_text(
            yaml.safe_dump({
                "state": {"path": f"s3://{BUCKET}/cluster", "cache": "/tmp/cache"},
                "kafka": {"bootstrap": self.bootstrap},
                "http": {"host": address, "port": HTTP_PORT, "anonymous": "read"},
            })
        )  # fmt: skip
        self.boots[name] = partial(machine.python, "-m", "vernier.service.sidecar", "--config", "/tmp/sidecar.yaml")
        self.boots[name]()
        return f"http://{address}:{HTTP_PORT}"

    def _spark(self, machine: Machine, name: str, *arguments: str) -> None:
        private = ["authenticate=true", f"authenticate.secret={SECRET}", "network.crypto.enabled=true"]
        options = [f"-Dspark.{one}" for one in private]
        more = {"SPARK_DAEMON_JAVA_OPTS": " ".join(options), "SPARK_DAEMON_MEMORY": "256m"}
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--webui-port", "0"]
        machine.run("bash", "-c", _AGAIN, "init", *command, *arguments, **more)


@contextlib.contextmanager
def cluster(
    folder: Path,
    executors: dict[str, int],
    services: list[str],
    patience: float,
    *,
    spark: bool = True,
    brokers: Sequence[str] = ("broker",),
) -> Iterator[Cluster]:
    """A cluster with a bucket and a topic. executors: the hosts of Spark's workers with their cores; services: further
    hosts; spark: whether Spark's processes are started; brokers: the hosts of Kafka's brokers, of which three have a
    copy of each topic. This thread is on the host `client` as long as it runs."""
    names = ["client", "store", *brokers, "master", *executors, *services]
    with network(folder, names) as hosts, contextlib.ExitStack() as stack:
        s3 = {**KEYS, "AWS_ENDPOINT_URL": f"http://{hosts['store'].address}:{S3_PORT}"}
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        env = {**s3, "PYTHONPATH": path, "JAVA_HOME": str(java_home())}
        machines = {}
        for name, host in hosts.items():
            machines[name] = Machine(host, {**env, "SPARK_LOCAL_IP": host.address})
            stack.callback(machines[name].close)
        made = Cluster(machines, list(brokers), patience)
        stack.enter_context(hosts["client"].inside())
        machines["store"].python("-m", "tests.cluster.store", hosts["store"].address, str(S3_PORT), "/tmp/trouble")
        for name in brokers:
            made.broker(name)
        if spark:
            made.spark_master()
            for name, cores in executors.items():
                made.spark_worker(name, cores)
        wait_for("the S3 server", lambda: _answers(s3["AWS_ENDPOINT_URL"]), patience)
        client = boto3.client("s3", endpoint_url=s3["AWS_ENDPOINT_URL"], **_boto(s3))
        client.create_bucket(Bucket=BUCKET)
        wait_for("the brokers", lambda: _made(made.bootstrap), patience)
        try:
            yield made
        finally:
            for service in made.services:
                service.output.close()


def _boto(s3: dict[str, str]) -> dict[str, str]:
    return {
        "aws_access_key_id": s3["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": s3["AWS_SECRET_ACCESS_KEY"],
        "region_name": s3["AWS_DEFAULT_REGION"],
    }


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, timeout=2).status_code < 500
    return False


def _made(bootstrap: str) -> bool:
    """Whether the brokers have made the topic."""
    with contextlib.suppress(OSError, BrokerError):
        for one in bootstrap.split(","):
            host, _, port = one.partition(":")
            # The client would wait longer and longer for a broker that does not listen yet.
            socket.create_connection((host, int(port)), 2).close()
        return bool(create_topics(bootstrap, {"graph": 2}))
    return False
