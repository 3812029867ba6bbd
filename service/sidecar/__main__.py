"""`python -m vernier.service.sidecar`: serve the committed answers of a state directory."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import socket
import sys

import uvicorn

from vernier.service.codec.lazy_pandas import defer_pandas
from vernier.service.config.carry import carried
from vernier.service.config.settings import Loaded, load, masked
from vernier.service.sidecar.app import build
from vernier.service.sidecar.auth import Access
from vernier.service.sidecar.departed import Unfinished
from vernier.service.sidecar.health_probe import check_certificate
from vernier.service.sidecar.options import Options
from vernier.storage.errors import VernierError

_FLAGS = {
    "--state": ("state.path", "state directory or URI; it need not exist yet"),
    "--cache": ("state.cache", "where segments of a URI are copied to"),
    "--cache-mb": ("state.cache_mb", "the size that these copies may reach"),
    "--host": ("http.host", "address to listen on"),
    "--port": ("http.port", "0 for any free one"),
    "--stale-after-ms": ("http.stale_after_ms", "age of the newest epoch from which /readyz answers 503"),
    "--max-rows": ("http.max_rows", "rows a page"),
    "--subscriber-bytes": ("http.subscriber_bytes", "changes that may be queued for a subscriber"),
    "--heartbeat-ms": ("http.heartbeat_ms", "longest silence in a change stream"),
    "--log-level": ("log.level", "debug, info, warning or error"),
}
_POLL_MS, _FAR_POLL_MS = 5, 250
"""How often a local directory and an object store are checked for a new epoch. In a store each check
costs a request.
"""
_SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter lock while another one waits. The event loop needs it after each wait; by
default, the threads that follow epochs and answer queries would keep it ten times as long.
"""
_log = logging.getLogger("vernier.sidecar")


class Server(uvicorn.Server):
    """Prints one line on stdout when it accepts connections, with its address, and ends change streams at shutdown."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            name = f"[{host}]" if ":" in host else host
            scheme = "https" if self.config.is_ssl else "http"
            print(f"sidecar listening on {scheme}://{name}:{port}", flush=True)
            # Exempt everything loaded so far from full garbage collections, during which no request is answered.
            gc.collect()
            gc.freeze()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn waits for open answers before it informs the application, and change streams never end by themselves.
        self.config.app.state.context.streams.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def parse(arguments: list[str] | None = None) -> Loaded:
    """The settings from the command line, a file and the environment. Raises BadSettings."""
    parser = argparse.ArgumentParser(prog="python -m vernier.service.sidecar", description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="the service's settings, YAML")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one setting, as in the file")
    for flag, (key, about) in _FLAGS.items():
        parser.add_argument(flag, dest=key, help=f"{about} ({key})")
    given = vars(parser.parse_args(arguments))
    pairs = dict(pair.split("=", 1) if "=" in pair else (pair, "") for pair in given.pop("set"))
    config = given.pop("config")
    return load(config, pairs | {key: value for key, value in given.items() if value is not None})


def options_of(loaded: Loaded) -> Options:
    """The options of a sidecar, from a service's settings. Raises BadTokens, OpenToOthers."""
    settings = loaded.settings
    http, place = settings.http, settings.state.place
    return carried(
        Options,
        http,
        state=place,
        poll_ms=_POLL_MS if place.folder is not None else _FAR_POLL_MS,
        heartbeat_s=http.heartbeat_ms / 1000,
        settings=masked(settings),
        sql_workers=settings.sql.workers,
        sql_memory_mb=settings.sql.memory_mb,
        tls=http.tls_cert is not None,
        access=Access.of(http),
        service=settings,
        origins=loaded.origins,
    )


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status."""
    defer_pandas()
    try:
        loaded = parse(arguments)
        options = options_of(loaded)
        check_certificate(loaded.settings.http)
    except VernierError as error:
        print(f"sidecar: {error}", file=sys.stderr)
        return 1
    settings = loaded.settings
    level = settings.log.level
    sys.setswitchinterval(_SWITCH_SECONDS)
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    if options.access.wide_open:
        _log.warning("every client that reaches %s:%d may read and send updates", options.host, options.port)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        print(f"sidecar: cannot listen on {options.host}:{options.port}: {error.strerror or error}", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        build(options),
        log_level=level,
        access_log=False,
        timeout_graceful_shutdown=3,
        server_header=False,
        ssl_certfile=settings.http.tls_cert,
        ssl_keyfile=settings.http.tls_key,
    )
    logging.getLogger("uvicorn.error").addFilter(Unfinished())
    # uvicorn raises the signal that ended it again; a requested stop must not count as a failure.
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: sys.exit(0))
    Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
