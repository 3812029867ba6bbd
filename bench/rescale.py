"""Other numbers of workers while the service runs: exact, and with how long a gap between two commits?

    python -m bench.rescale --rows 1000000 --workers 2,3,1,2

A service begins with a snapshot of uses of accounts and of links between them, on the first number of workers. It has
views that count, sum, join, loop and delay (tests/operators/changes.py), while uses keep coming. It is then asked for
the other numbers, one after the other. In the middle of one switch a worker is killed, in the middle of another one the
driver with all its workers. After each switch every view is compared, at several times from the switch on, with what an
engine of one process has that got the same rows.

Gaps are those between two commits that move the frontier, as in bench/changes.py. Those of the time before the first
switch say how long an epoch takes; the longest one from a request until a second after its switch must be at most
`--most` times the longest of these. The switches with kills do not count; they are reported by themselves. One JSON
line; a line for each switch goes to stderr.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.changes import Service, Truth, Uses, compare, said, tell_gaps, text_of, write_rows
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics
from vernier.service.status import workers as status
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.state.manifest import Manifest

VIEWS = {name: name for name in ("sums", "by_kind", "most", "paid", "reached", "late")}
AFTER_NS = 1_000_000_000
"""The time after a switch in which gaps still count."""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--accounts", type=int, default=50_000)
    parser.add_argument("--workers", default="2,3,2,1,2,3,1,2,3,2,1,2", help="how many, one after the other")
    parser.add_argument("--kill-at", type=int, default=7, help="kill the driver in this switch; 0: in none")
    parser.add_argument("--kill-worker-at", type=int, default=8, help="kill a worker in this switch; 0: in none")
    parser.add_argument("--base-epochs", type=int, default=40, help="epochs before the first switch")
    parser.add_argument("--most", type=float, default=2.0, help="the longest gap, in epochs; 0: any")
    args = parser.parse_args()
    first, *others = map(int, args.workers.split(","))
    with tempfile.TemporaryDirectory(prefix="rescale-") as name, EmbeddedBroker(Path(name) / "kafka") as broker:
        folder = Path(name)
        before = write_rows(folder, args.rows, args.accounts)
        create_topics(broker.bootstrap, {"uses": 1, "links": 1})
        (folder / "views.py").write_text(text_of(VIEWS), "utf-8")
        uses = Uses(broker.bootstrap, args.accounts)
        service = Service(folder, broker, first, {"programs": [str(folder / "views.py")]})
        reader, truth = Reader(folder / "state"), Truth(before)
        gaps, seconds, back, compared = list[float](), list[float](), dict[str, float](), 0
        service.driver.start()
        service.start()
        uses.start()
        try:
            service.wait(lambda one: VIEWS.keys() <= one.views.keys())
            known = len(service.commits) + 2
            service.wait(lambda _: len(service.commits) > known + args.base_epochs)
            epoch, _ = service.longest_gap(service.commits[known], time.time_ns())
            said(f"epochs take up to {epoch:.2f} s")
            for number, workers in enumerate(others, start=1):
                began = time.time_ns()
                status.request(service.state.blob, workers)
                kill = {args.kill_at: "driver", args.kill_worker_at: "worker"}.get(number)
                if kill is not None:
                    _kill(service, kill, workers)
                newest = service.wait(lambda one, workers=workers: one.workers == workers)  # type: ignore[misc]
                seconds.append((newest.committed_ns - began) / 1e9)
                since, until = newest.upper, newest.committed_ns + AFTER_NS
                service.wait(lambda one, until=until: one.committed_ns > until)  # type: ignore[misc]
                gap, at = service.longest_gap(began, until)
                if kill is None:
                    gaps.append(gap)
                else:
                    back[kill] = gap
                compared += compare(reader, VIEWS, truth, uses, since)
                said(f"{workers} workers: {seconds[-1]:.2f} s, longest gap {gap:.2f} s from {at:.2f} s on")
            for line in (failed := service.driver.failures()):
                said(line)
        finally:
            uses.close()
            service.close()
            reader.close()
            truth.close()
    tell_gaps(
        {
            "rows": args.rows, "workers": args.workers, "switches": len(seconds), "answers_compared": compared,
            "uses_sent": len(uses.rows), "gaps_s": [round(gap, 3) for gap in gaps],
            "median_switch_s": round(sorted(seconds)[len(seconds) // 2], 2), "attempts_failed": len(failed),
            "driver_back_s": round(back.get("driver", 0), 2), "worker_back_s": round(back.get("worker", 0), 2),
        },
        gaps, epoch, args.most,
    )  # fmt: skip


def _kill(service: Service, what: str, workers: int) -> None:
    """Kill something as soon as the driver knows of the switch."""

    def known(_: Manifest) -> bool:
        found = status.OBSERVED.read(service.state.blob)
        return found is not None and found.workers == workers

    service.wait(known)
    if what == "worker":
        service.kill_worker()
    else:
        service.driver.kill()
        service.driver.start()


if __name__ == "__main__":
    main()
