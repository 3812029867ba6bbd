"""`python -m vernier.service.sinks`: publish the views of a state directory until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from vernier.service.codec.lazy_pandas import defer_pandas
from vernier.service.config.settings import load
from vernier.service.errors import PublisherFenced
from vernier.service.observability import logs
from vernier.service.sinks.publisher import Publisher
from vernier.service.status.publisher import FENCED
from vernier.storage.errors import VernierError
from vernier.storage.state.state import StateDirectory


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish until asked to stop. Returns the exit status, with one line on stderr if it is not 0."""
    defer_pandas()
    parser = argparse.ArgumentParser(prog="python -m vernier.service.sinks", description=__doc__)
    parser.add_argument("--config", metavar="FILE")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        settings = load(given.config, dict(pair.split("=", 1) for pair in given.set)).settings
        logs.begin(settings.log.level, settings.log.format)
        publisher = Publisher(settings, StateDirectory(settings.state.place))
        try:
            publisher.run(stop)
        finally:
            publisher.close()
    except VernierError as error:
        print(f"publisher: {error}", file=sys.stderr, flush=True)
        return FENCED if isinstance(error, PublisherFenced) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
