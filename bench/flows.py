"""Flows that compact themselves, beside the same flows without compaction.

    python -m bench.flows --events 10000000 --plain-events 1000000 --pauses 100us --plot FILE
    python -m bench.flows --open --events 60000 --pauses 1ms,100us --delays 1s,1ms

The first form runs as fast as it goes, 1,000 events an epoch. An event happens every `pause` of data time, for one key
or, where a flow has many, for keys that come and go: the newest of a key, its ten newest, auctions that close,
messages that are received, the greatest of a window. `--open` is an open loop: events are released by the wall clock
whether or not the engine keeps up, and every epoch takes what has been released; an event's latency ends with its
epoch. Otherwise latency is the time of an epoch. By tenth of the run: latency, CPU time, the number of updates that
the state holds (those that wait for their time included), and the size of its arrangements. A run ends early when it
is further behind than `--behind` seconds. The form without compaction slows down with every event, so `--plain-events`
gives it fewer. Where both forms have seen all events their answers are compared. Prints a JSON line for each flow,
pause and delay, and the last tenth over the second (the first one warms up) as a table. Source: "Managing memory with
differential dataflow".
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import vernier as vn
from bench.record import tell
from bench.tables import number, table
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.language.collection.collection import Collection
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Ints, Updates

TENTHS = 10
COLUMNS = {
    "updates": "updates held",
    "mb": "MB",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "p99_cpu_ms": "p99 of CPU, ms",
}
BIDS = 20
"""Bids of an auction."""
AHEAD = 4
"""A message is received this many messages later."""
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


class Reading(vn.Schema):
    """Of one key."""

    key: vn.Int64
    at: vn.Int64


class Auction(vn.Schema):
    """With the time from which bids do not count."""

    auction: vn.Int64
    closes: vn.Int64


class Bid(vn.Schema):
    """At a time."""

    auction: vn.Int64
    cents: vn.Int64
    at: vn.Int64


class End(vn.Schema):
    """Of a message: sent, or received."""

    number: vn.Int64
    at: vn.Int64


class Pair(vn.Schema):
    """Both ends of a message."""

    number: vn.Int64
    at: vn.Int64
    arrived: vn.Int64


def feed(rows: Collection, delay: int, compacted: bool, answer: Callable[[Collection], Collection]) -> Collection:
    """The answer on rows; compacted: rows that are not in it leave after the delay."""
    if not compacted:
        return answer(rows)
    gone = vn.Variable("gone", Reading, delay=delay)
    result = answer(rows.union(gone.negate()))
    gone.set(rows.union(result.negate()))
    return result


def latest(app: vn.App, delay: int, compacted: bool) -> Collection:
    """The seed's own program."""
    rows = app.source("readings", Reading)
    return feed(rows, delay, compacted, lambda live: live.group_by("key").agg(at=vn.max("at")))


def top_ten(app: vn.App, delay: int, compacted: bool) -> Collection:
    """The ten newest."""
    rows = app.source("readings", Reading)
    return feed(rows, delay, compacted, lambda live: live.top_k(10, by=col("at").desc(), within="key"))


def auctions(app: vn.App, delay: int, compacted: bool) -> Collection:
    """The winners of auctions that are closed; compacted, they are kept for four delays."""
    every, bids = app.source("auctions", Auction), app.source("bids", Bid)
    if compacted:
        every = every.valid_between(to=col("closes") + 8 * delay)
    closed, live = every.valid_between("closes"), bids
    if compacted:
        gone = vn.Variable("gone", Bid, delay=delay)
        live = bids.union(gone.negate())
    counted = live.join(every, on="auction", where=col("at") < col("closes")).drop("closes")
    best = counted.top_k(1, by=[col("cents").desc(), "at"], within="auction")
    if compacted:
        lost = live.union(best.negate()).join(closed, on="auction", how="semi")
        over = every.valid_between(col("closes") + 4 * delay)
        gone.set(vn.union(gone, lost, best.join(over, on="auction", how="semi")))
    return best.join(closed, on="auction", how="semi")


def pairs(app: vn.App, delay: int, compacted: bool) -> Collection:
    """How many messages were received, and how long they took in all."""
    sent, received = app.source("sent", End), app.source("received", End).rename(at="arrived")
    if not compacted:
        done = sent.join(received, on="number")
    else:
        paired = vn.Variable("paired", Pair, delay=delay)
        here = sent.union(paired.select("number", "at").negate())
        there = received.union(paired.select("number", "arrived").negate())
        done = paired.union(here.join(there, on="number"))
        paired.set(done)
    # Aggregates keep different rows: of durations there are few.
    took = done.select(took=col("arrived") - col("at"))
    return took.group_by().agg(messages=vn.count(), took=vn.sum("took"))


def window(app: vn.App, delay: int, compacted: bool) -> Collection:
    """The greatest; compacted, other rows stay for the delay."""
    tick = max(1, delay // 10)
    rows = app.source("readings", Reading).coarsen(tick)
    if not compacted:
        return rows.group_by("key").agg(at=vn.max("at"))
    carried = vn.Variable("carried", Reading, delay=tick)
    live = vn.union(rows, rows.delay(delay).negate(), carried)
    greatest = live.group_by("key").agg(at=vn.max("at"))
    carried.set(greatest.join(rows.union(rows.delay(delay - tick).negate()), on=["key", "at"], how="anti"))
    return greatest


def readings(numbers: Ints, times: Ints) -> dict[str, Updates]:
    """Events of one key."""
    return {"readings": Updates.of(np.stack((np.zeros_like(times), times), 1), times, 1)}


def bidding(numbers: Ints, times: Ints) -> dict[str, Updates]:
    """An auction for every BIDS events, which closes after three quarters of them."""
    of, first = numbers // BIDS, numbers % BIDS == 0
    pause = int(times[0] // numbers[0]) if numbers[0] else int(times[-1] // max(1, numbers[-1]))
    opened = np.stack((of[first], times[first] + BIDS * 3 // 4 * pause), 1)
    cents = numbers * 2_654_435_761 % 997
    return {
        "auctions": Updates.of(opened, times[first], 1),
        "bids": Updates.of(np.stack((of, cents, times), 1), times, 1),
    }


def messages(numbers: Ints, times: Ints) -> dict[str, Updates]:
    """Messages are sent and received by turns."""
    sends = numbers % 2 == 0
    ends = np.stack((np.where(sends, numbers // 2, numbers // 2 - AHEAD), times), 1)
    return {"sent": Updates.of(ends[sends], times[sends], 1), "received": Updates.of(ends[~sends], times[~sends], 1)}


Program = Callable[[vn.App, int, bool], Collection]
Events = Callable[[Ints, Ints], dict[str, Updates]]
FLOWS: dict[str, tuple[Program, Events]] = {
    "latest": (latest, readings),
    "top_ten": (top_ten, readings),
    "auctions": (auctions, bidding),
    "pairs": (pairs, messages),
    "window": (window, readings),
}


def checksum(changes: Updates) -> int:
    """A sum over all rows that come, with their times; the order and the cuts do not matter. Rows that go are left
    out, because forgotten answers go as well."""
    data = changes.consolidate().data
    mixed = np.zeros(len(data), np.uint64)
    for column in data[:, :-1].T:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return int((mixed * np.maximum(data[:, -1], 0).astype(np.uint64)).sum(dtype=np.uint64))


def run(name: str, pause: int, delay: int, form: str, given: argparse.Namespace) -> dict[str, Any]:
    """One form of a flow: its tenths, and a checksum of its answers."""
    program, events = FLOWS[name]
    app = vn.App(name, retain="0ns")
    app.view("answer", program(app, delay, form == "compacted"))
    worker = Worker(compile_app(app))
    total = given.events if form == "compacted" else given.plain_events or given.events
    tenths: list[dict[str, float]] = []
    lower, at, summed = MIN_TIME, 0, 0
    late: list[Any] = []
    busy: list[float] = []
    began, behind = time.monotonic_ns(), False
    while at < total and not behind:
        if given.open:
            passed = time.monotonic_ns() - began
            stop = min(total, passed // pause + 1)
            if stop == at:
                time.sleep((at * pause - passed) / 1e9)
                continue
        else:
            stop = min(total, at + given.batch)
        stop = min(stop, total * (len(tenths) + 1) // TENTHS)  # an epoch is in one tenth
        numbers = np.arange(at, stop)
        upper = (stop - 1) * pause + 1
        before, used = time.monotonic_ns(), time.process_time_ns()
        batch = {source: one for source, one in events(numbers, numbers * pause).items() if len(one)}
        result = worker.run_epoch(lower, upper, batch)
        done = time.monotonic_ns()
        busy.append((time.process_time_ns() - used) / 1e6)
        lower, at = upper, stop
        summed += checksum(result.changes["answer"])
        late.append((done - began - numbers * pause if given.open else np.array([done - before])) / 1e6)
        behind = given.open and done - began - at * pause > given.behind * 1e9
        if at >= total * (len(tenths) + 1) // TENTHS or behind:
            cpu = round(float(np.quantile(busy, 0.99)), 3)
            tenths.append({"events": at, **held(worker, lower), **latency(np.concatenate(late)), "p99_cpu_ms": cpu})
            late, busy = [], []
    # What waits may still change the answer.
    result = worker.run_epoch(lower, lower + 2 * delay + BIDS * pause, {})
    summed += checksum(result.changes["answer"])
    return {"events": at, "behind": behind, "checksum": summed % 2**64, "tenths": tenths}


def held(worker: Worker, lower: int) -> dict[str, float]:
    """What the state holds."""
    traces, queues = worker.state.traces.values(), worker.state.queues.values()
    return {
        "updates": sum(one.updates for one in traces) + sum(one.waiting(lower) for one in queues),
        "mb": round(sum(one.nbytes for one in traces) / 2**20, 3),
    }


def latency(ms: Any) -> dict[str, float]:
    """Its percentiles."""
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: round(float(np.quantile(ms, share)), 3) for name, share in shares.items()}


def nanoseconds(text: str) -> int:
    """Of "1ms"."""
    digits = text.rstrip("nums")
    return int(digits) * UNITS[text[len(digits) :]]


def rows(results: list[dict[str, Any]]) -> str:
    """A Markdown table: the last tenth beside the second, of both forms."""
    found = []
    for result in results:
        for form in ("compacted", "plain"):
            one = result[form]
            early, last = one["tenths"][min(1, len(one["tenths"]) - 1)], one["tenths"][-1]
            cells = [f"{number(early[name])} → {number(last[name])}" for name in COLUMNS]
            ended = f"{one['events']:,}" + (" (behind)" if one["behind"] else "")
            found.append([result["flow"], result["pause"], result["delay"], form, ended, *cells])
    return table(["flow", "pause", "delay", "form", "events", *COLUMNS.values()], found)


def plot(path: Path, results: list[dict[str, Any]]) -> None:
    """State and latency by events: a column for each flow, the forms as lines."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(result["flow"] for result in results))
    figure = Figure(figsize=(3 * len(names), 5), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False, sharex=True)
    for result in results:
        for form, line in (("compacted", "-"), ("plain", "--")):
            tenths = result[form]["tenths"]
            for i, what in enumerate(("updates", "p99_ms")):
                label = f"{form}, {result['pause']}, {result['delay']}"
                places = [one["events"] for one in tenths]
                axes[i, names.index(result["flow"])].plot(places, [one[what] for one in tenths], line, label=label)
    for i, name in enumerate(names):
        axes[0, i].set(title=name, yscale="log")
        axes[1, i].set(xlabel="events", xscale="log", yscale="log")
        for one in axes[:, i]:
            one.grid(alpha=0.3)
    axes[0, 0].set_ylabel("updates held")
    axes[1, 0].set_ylabel("p99, ms")
    axes[0, 0].legend(fontsize="x-small")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def compared(forms: Mapping[str, dict[str, Any]]) -> bool | None:
    """Whether both forms gave the same answers; None if one of them ended early."""
    one, other = forms.values()
    return one["checksum"] == other["checksum"] if one["events"] == other["events"] else None


def main() -> None:
    """Run, print, plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--plain-events", type=int, help="events of the form without compaction, if fewer")
    parser.add_argument("--flows", default=",".join(FLOWS))
    parser.add_argument("--pauses", default="1ms", help="data time between events")
    parser.add_argument("--delays", default="1s")
    parser.add_argument("--batch", type=int, default=1_000, help="events of an epoch, without --open")
    parser.add_argument("--open", action="store_true", help="release events by the wall clock")
    parser.add_argument("--behind", type=float, default=60, help="seconds after which an open run ends")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    results = []
    for name in given.flows.split(","):
        for pause in given.pauses.split(","):
            for delay in given.delays.split(","):
                forms = {
                    form: run(name, nanoseconds(pause), nanoseconds(delay), form, given)
                    for form in ("compacted", "plain")
                }
                if compared(forms) is False:
                    raise SystemExit(f"{name}: the answers differ")
                result = {"bench": "flows", "flow": name, "pause": pause, "delay": delay, "open": given.open, **forms}
                what = " ".join((name, pause, delay, f"{given.events}", *(["open"] if given.open else [])))
                tell({**result, "load": round(os.getloadavg()[0], 1)}, what)
                results.append(result)
    print(rows(results), file=sys.stderr)
    if given.plot is not None:
        plot(given.plot, results)


if __name__ == "__main__":
    main()
