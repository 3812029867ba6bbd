"""An S3 server in memory that a file makes slow, or lets refuse requests.

    python -m tests.cluster.store ADDRESS PORT FILE

FILE need not exist. It has JSON of `Trouble`, and is read for each request.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_BUSY = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
Environ = dict[str, Any]


@dataclass(frozen=True)
class Trouble:
    """What is wrong. refuse: the share of requests that get 503; done: whether they are done nevertheless; seconds: how
    much later all of them are answered."""

    refuse: float = 0
    done: bool = False
    seconds: float = 0

    def write(self, path: Path) -> None:
        """Let the server have it from the next request on."""
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)), "utf-8")
        fresh.replace(path)

    @staticmethod
    def read(path: Path) -> Trouble:
        """What the file says; nothing if there is none."""
        try:
            return Trouble(**json.loads(path.read_text("utf-8")))
        except FileNotFoundError:
            return Trouble()


class Troubled:
    """A WSGI application in trouble."""

    def __init__(self, made: Any, path: Path) -> None:
        self._made, self._path = made, path
        self._chance = random.Random(3)

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        trouble = Trouble.read(self._path)
        time.sleep(trouble.seconds)
        if self._chance.random() >= trouble.refuse:
            answer: Iterable[bytes] = self._made(environ, start)
            return answer
        if trouble.done:
            list(self._made(environ, lambda *_: lambda _: None))
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(_BUSY)))])
        return [_BUSY]


def main() -> None:
    """Serve until killed."""
    address, port, path = sys.argv[1:]
    made = DomainDispatcherApplication(create_backend_app)
    troubled: Any = Troubled(made, Path(path))
    run_simple(address, int(port), troubled, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
