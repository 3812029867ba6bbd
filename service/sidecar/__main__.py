"""`python -m service.sidecar`: serve the committed answers of a state directory."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

from service.sidecar.app import build
from service.sidecar.options import Options
from storage.place import CACHE_BYTES, Place

_POLL_MS, _FAR_POLL_MS = 5, 250
"""How often a directory, and an object store, is asked for a new epoch: there each time costs a request."""

_SWITCH_SECONDS = 0.0005


class Server(uvicorn.Server):
    """Tells on stdout, in one line, when and where it accepts, and ends change streams when it is to stop."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            name = f"[{host}]" if ":" in host else host
            print(f"sidecar listening on http://{name}:{port}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn waits for open answers before it tells the application, and change streams never end by themselves.
        self.config.app.state.context.streams.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def parse(arguments: list[str] | None = None) -> tuple[Options, str]:
    """The options of a command line, and the log level."""
    parser = argparse.ArgumentParser(prog="python -m service.sidecar", description=__doc__)
    parser.add_argument("--state", required=True, metavar="DIR", help="state directory or URI, also one to come")
    parser.add_argument("--cache", metavar="DIR", help="where segments of a URI are copied to")
    parser.add_argument("--cache-mb", type=int, default=CACHE_BYTES >> 20, help="what these copies may take")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; anything but loopback lets others read all answers"
    )
    parser.add_argument("--port", type=int, default=8642, help="0 for any free one")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="JSON of the service's settings, for /v1/config")
    parser.add_argument("--stale-after-ms", type=int, default=10_000, help="age of an epoch from which /readyz says no")
    parser.add_argument("--max-rows", type=int, default=100_000, help="rows a page")
    parser.add_argument("--subscriber-bytes", type=int, default=8 << 20, help="changes a subscriber may be behind")
    parser.add_argument("--heartbeat", type=float, default=15, metavar="SECONDS", help="silence in a change stream")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    given = parser.parse_args(arguments)
    settings: dict[str, Any] = {}
    if given.settings is not None:
        try:
            settings = json.loads(given.settings.read_text())
        except (OSError, ValueError) as error:
            parser.error(f"--settings {given.settings}: {error}")
    place = Place(given.state, given.cache, given.cache_mb << 20)
    options = Options(
        state=place,
        poll_ms=_POLL_MS if place.folder is not None else _FAR_POLL_MS,
        host=given.host,
        port=given.port,
        settings=settings,
        stale_after_ms=given.stale_after_ms,
        max_rows=given.max_rows,
        subscriber_bytes=given.subscriber_bytes,
        heartbeat_s=given.heartbeat,
    )
    return options, given.log_level


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status."""
    options, level = parse(arguments)
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        print(f"sidecar: cannot listen on {options.host}:{options.port}: {error.strerror or error}", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        build(options), log_level=level, access_log=False, timeout_graceful_shutdown=3, server_header=False
    )
    # Following an epoch takes milliseconds in a thread; a look-up is not to wait for its turn as long as that.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # uvicorn raises the signal that ended it once more; to be told to stop is no failure.
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda *_: sys.exit(0))
    Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
