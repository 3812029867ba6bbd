"""Verify: compares the results of a run with the truth: samples, output topics, dead letters."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.chaos.poison import MESSAGES
from bench.chaos.sources import SETTINGS, Reader, Record
from bench.chaos.truth import VIEWS, Answers, Row, Rows, Truth, Update, changes
from vernier.service.sinks.audit import TopicAudit

APP = "chaos"
SINKS: dict[str, dict[str, Any]] = {
    "components": {"format": "upsert", "partitions": 2},
    "tens": {"format": "debezium"},
    "purchases": {"partitions": 3},
}
ARRIVING = ("people", "clicks", "notes")
"""Sources of the arrival clock; the view `<source>_now` has their updates as they came."""
_SHOWN = 5
_TIMES = frozenset({"window_start", "at"})


@dataclass
class Findings:
    """The errors in words, and how much was compared."""

    wrong: list[str] = field(default_factory=list)
    compared: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, listed: Iterable[object] = ()) -> None:
        """Record an error; of many only the first few are shown."""
        shown = list(listed)
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        self.wrong.append(what + (": " + "; ".join(map(str, shown[:_SHOWN])) + more if shown else ""))


def row_of(view: str, said: Mapping[str, Any]) -> Row:
    """A row from JSON, with the values of the truth."""
    return tuple(
        int(said[name]) if name in _TIMES and said[name] is not None else said[name] for name in VIEWS[view].columns
    )


def updates_of(inputs: Mapping[str, Sequence[Record]]) -> list[Update]:
    """The updates of all input topics, at the data times that docs/messages.md defines."""
    found: list[Update] = []
    for source in SETTINGS:
        reader = Reader(source)
        for record in inputs[source]:
            reader.take(record)
        found += reader.updates
    return found


def moved_up(
    updates: list[Update], outputs: Mapping[str, Sequence[Record]], skewed: Mapping[str, int], findings: Findings
) -> list[Update]:
    """The updates at the times that they really have, where arrivals were moved up to the frontier.

    A broker that was stopped between taking a record's time and writing the record leaves one behind a frontier which
    another partition's later records have set. Such an arrival gets the frontier as its time (`skewed` in the metrics,
    by source), and that time cannot be recomputed. So these few times are read from the output: as many as
    the service has counted, each of the same row, later than its stamp.
    """
    for source in ARRIVING:
        if not skewed.get(source):
            continue
        view = f"{source}_now"
        out = dict.fromkeys(published(view, outputs[view], Findings()), True)
        have = Counter({(row, time): diff for (row, time, diff) in out})
        mine = [update for update in updates if update.source == source]
        stray = [update for update in mine if have.get((update.row, update.time)) != update.diff]
        wanted = {(update.row, update.time) for update in mine}
        left: dict[tuple[Row, int], list[int]] = defaultdict(list)
        for row, time in sorted(have.keys() - wanted, key=lambda one: one[1]):
            left[row, have[row, time]].append(time)
        moved = {}
        for update in sorted(stray, key=lambda one: one.time):
            times = left[update.row, update.diff]
            later = next((time for time in times if time > update.time), None)
            if later is not None:
                times.remove(later)
                moved[update] = Update(source, update.row, later, update.diff)
        if len(moved) > skewed[source]:
            findings.add(
                f"{source}: {len(moved)} arrivals have later times than their stamps, {skewed[source]} are counted"
            )
            continue
        findings.compared["arrivals moved up"] += len(moved)
        updates = [moved.get(update, update) for update in updates]
    return updates


def published(view: str, records: Sequence[Record], findings: Findings) -> Iterator[tuple[Row, int, int]]:
    """(row, time, diff) of all changes in a view's topic; a snapshot, which must not be in it, is a finding."""
    form = SINKS.get(view, {}).get("format", "vernier")
    for record in records:
        about = {name: value.decode() for name, value in record.headers}
        if about.get("vernier-kind") == "progress" and form != "vernier":
            continue
        if about.get("vernier-kind") == "snapshot":
            findings.add(f"{APP}.{view}: a snapshot at {record.place} instead of changes")
        if form == "vernier":
            said = json.loads(record.value or b"")
            for row, time, diff in said.get("u", ()):
                yield row_of(view, dict(zip(VIEWS[view].columns, row))), int(time), diff
        elif form == "debezium":
            said = json.loads(record.value or b"")
            for side, diff in ((said["before"], -1), (said["after"], 1)):
                if side is not None:
                    yield row_of(view, side), said["source"]["ts_ns"], diff


def check(
    truth: Truth, samples: Mapping[int, Answers], outputs: Mapping[str, Sequence[Record]], findings: Findings
) -> None:
    """All samples and output topics, in one walk through all data times."""
    wanted: dict[str, Counter[tuple[Row, int]]] = {view: Counter() for view in VIEWS}
    states: dict[str, list[tuple[Row, Row | None]]] = {}
    waiting = sorted(samples)
    asked = iter(waiting)
    following = next(asked, None)

    def compare(before: int) -> None:
        """The samples of times before this one."""
        nonlocal following
        while following is not None and following < before:
            for view, rows in samples[following].items():
                findings.compared["sampled views"] += 1
                if rows != truth_now[view]:
                    missing, extra = truth_now[view] - rows, rows - truth_now[view]
                    findings.add(f"{view} as of {following}: missing {_few(missing)}, not in truth {_few(extra)}")
            findings.compared["samples"] += 1
            following = next(asked, None)

    truth_now: Answers = {name: Counter() for name in VIEWS}
    for time, before, after in truth.steps():
        compare(time)
        truth_now.update(after)
        findings.compared["data times"] += 1
        for view in after:
            for row, diff in changes(before[view], after[view]):
                wanted[view][row, time] += diff
            if SINKS.get(view, {}).get("format") == "upsert":
                states.setdefault(view, []).extend(_by_key(view, before[view], after[view]))
    compare(1 << 62)
    for view, changed in wanted.items():
        if SINKS.get(view, {}).get("format") == "upsert":
            _same_states(view, states.get(view, []), outputs[view], findings)
            continue
        found: Counter[tuple[Row, int]] = Counter()
        twice = []
        for row, time, diff in published(view, outputs[view], findings):
            twice += [(row, time)] if (row, time) in found else []
            found[row, time] += diff
        findings.compared["published changes"] += len(found)
        if twice:
            findings.add(f"{APP}.{view}: changes that came twice", twice)
        if found != changed:
            times = [time for one in (found.items() ^ changed.items()) for (_, time) in (one[0],)]
            findings.add(
                f"{APP}.{view}: {len(found)} changes, the truth has {len(changed)}; first difference at {min(times)}",
                [f"missing {one}" for one in list(changed.items() - found.items())[:3]]
                + [f"not in truth {one}" for one in list(found.items() - changed.items())[:3]],
            )


def _few(rows: Rows) -> str:
    return f"{len(rows)} ({', '.join(map(str, list(rows.items())[:2]))})"


def _by_key(view: str, before: Rows, after: Rows) -> Iterator[tuple[Row, Row | None]]:
    """(key, the row that it has now) of the keys that changed."""
    size = VIEWS[view].key
    now = {row[:size]: row for row in after}
    touched = {row[:size] for row, _ in changes(before, after)}
    for key in sorted(touched):
        yield key, now.get(key)


def _same_states(
    view: str, states: list[tuple[Row, Row | None]], records: Sequence[Record], findings: Findings
) -> None:
    """Each key's rows one after another, as a topic of newest rows has them."""
    wanted: dict[Row, list[Row | None]] = defaultdict(list)
    for key, row in states:
        wanted[key].append(row)
    found: dict[Row, list[Row | None]] = defaultdict(list)
    list(published(view, records, findings))
    for record in records:
        if dict(record.headers).get("vernier-kind") == b"progress":
            continue
        key = tuple(json.loads(record.key or b"").values())
        found[key].append(None if record.value is None else row_of(view, json.loads(record.value)))
    findings.compared["published changes"] += sum(map(len, found.values()))
    for key in wanted.keys() | found.keys():
        if wanted[key] != found[key]:
            findings.add(
                f"{APP}.{view}: key {key} has {len(found[key])} rows one after another, not {len(wanted[key])}"
            )


def check_audits(audits: Sequence[TopicAudit], findings: Findings) -> None:
    """Every view's topic was compared with the state's history, and nothing is missing, duplicated or wrong in it."""
    missing = VIEWS.keys() - {one.view for one in audits}
    if missing:
        findings.add("views whose topics were not audited", sorted(missing))
    for one in audits:
        findings.compared["audited messages"] += one.messages
        if not one.equal:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(one.counts.items()))
            findings.add(f"{one.topic}: {one.problem or counts}", (each.describe() for each in one.differences))


def check_letters(
    inputs: Mapping[str, Sequence[Record]], letters: Mapping[str, Sequence[Record]], findings: Findings
) -> None:
    """Every hostile message is one dead letter, complete and with a reason; there are no other dead letters."""
    reasons = {message.name: message.reason for message in MESSAGES}
    hostile = {one.place: one for records in inputs.values() for one in records if one.hostile is not None}
    seen: Counter[tuple[str, int, int]] = Counter()
    for letter in (letter for records in letters.values() for letter in records):
        about = {name: value.decode() for name, value in letter.headers}
        try:
            place = about["vernier-topic"], int(about["vernier-partition"]), int(about["vernier-offset"])
        except KeyError as name:
            findings.add(f"the dead letter at {letter.place} has no {name}")
            continue
        seen[place] += 1
        original = hostile.get(place)
        if original is None:
            findings.add(
                f"{place} is a dead letter but harmless: {about.get('vernier-reason')}, {about.get('vernier-detail')}"
            )
            continue
        reason = about.get("vernier-reason")
        if not reason or reason != (reasons.get(str(original.hostile)) or reason):
            findings.add(f"{original.hostile!r} at {place} was refused for {reason!r}")
        if (letter.key, letter.value) != (original.key, original.value):
            findings.add(f"the dead letter of {place} is not the message that it was")
    findings.compared["dead letters"] += sum(seen.values())
    missing = hostile.keys() - seen.keys()
    if missing:
        findings.add("hostile messages without a dead letter", [(place, hostile[place].hostile) for place in missing])
    twice = [place for place, count in seen.items() if count > 1]
    if twice:
        findings.add("hostile messages with several dead letters", [(place, seen[place]) for place in twice])
