"""The parts of the chaos test: its faults are those of the seed, and what is wrong with a run is found."""

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bench.chaos.faults import disk_faults, schedule
from bench.chaos.memory import Group
from bench.chaos.poison import MESSAGES
from bench.chaos.sources import HOSTILE, SETTINGS, Record
from bench.chaos.truth import VIEWS, Rows, Truth
from bench.chaos.verify import APP, Findings, check, check_audits, check_letters, moved_up, updates_of
from tests.live.service import ROLES, wait_for
from vernier.service.sinks.audit import Difference, TopicAudit

MS = 1_700_000_000_000


def test_a_seed_is_one_schedule_of_all_faults() -> None:
    faults = list(islice(schedule(3, 3600), 200))
    assert faults == list(islice(schedule(3, 3600), 200)) != list(islice(schedule(4, 3600), 200))
    assert {fault.role for fault in faults if fault.kind == "kill"} == {*ROLES}
    stops = [fault for fault in faults if fault.kind == "stop"]
    assert {fault.role for fault in stops} == {*ROLES}
    assert all(5 <= fault.seconds <= 60 for fault in stops)
    assert max(fault.seconds for fault in stops) > 40
    assert any(fault.kind == "restart" for fault in faults)
    full = disk_faults(3, 3600)
    assert len(full) == 2
    assert all(0 < at < 3600 and fault.kind == "disk" for at, fault in full)


DISK = """
import sys, time
from pathlib import Path
with SmallDisk(Path(sys.argv[1]), 16) as disk:
    if disk.kind is None:
        sys.exit("not root")
    more = disk.folder / "more"
    disk.fill()
    try:
        more.write_bytes(b"." * 65_536)
    except OSError as error:
        print(error.strerror)
    disk.free()
    print(more.write_bytes(b"." * 65_536), flush=True)
    time.sleep(600)
"""


def used_by(folder: Path) -> list[Path]:
    """The loop devices whose files are below a folder."""
    used = []
    for one in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            used += [one] if str(folder) in one.read_text("utf-8") else []
    return used


def test_a_disk_that_is_full_has_no_room_and_then_has_and_goes_with_its_process(tmp_path: Path) -> None:
    run = subprocess.Popen([sys.executable, "-c", DISK, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    try:
        said = [run.stdout.readline() for _ in range(2)]
        if any(said):  # else not root: the run says so, and leaves its disk alone
            assert said == ["No space left on device\n", "65536\n"]
            assert str(tmp_path) not in Path("/proc/mounts").read_text("utf-8")
    finally:
        run.kill()
        run.communicate()
    wait_for("its device is free", lambda: not used_by(tmp_path))


# --- what is wrong is found -------------------------------------------------------------------------------------------


def note(offset: int, what: str, row: dict[str, Any], ms: int) -> Record:
    return Record("notes", 0, offset, ms, None, json.dumps([{what: row}]).encode(), ())


ONE = {"person": 1, "text": "a text of some length, and more", "stars": 3}
TWO = {"person": 2, "text": None, "stars": 0}
INPUTS: dict[str, list[Record]] = {
    **{source: [] for source in SETTINGS},
    "notes": [note(0, "insert", ONE, MS), note(1, "insert", TWO, MS), note(2, "delete", ONE, MS + 5)],
}
FIRST, SECOND, THIRD = MS * 10**6, MS * 10**6 + 1, (MS + 5) * 10**6
ROW_ONE: list[Any] = [*ONE.values()]
ROW_TWO: list[Any] = [*TWO.values()]


def published(*updates: tuple[list[Any], int, int], seq: int = 0) -> Record:
    value = {"v": 1, "t": "0", "u": [[row, str(time), diff] for row, time, diff in updates]}
    headers = (("vernier-kind", b"updates"), ("vernier-message-id", f"notes_now:0:9:0:{seq}".encode()))
    return Record(f"{APP}.notes_now", 0, seq, MS, None, json.dumps(value).encode(), headers)


def quoted(*updates: tuple[list[Any], int, int]) -> Record:
    rows = [([*row, None, None], time, diff) for row, time, diff in updates]
    made = published(*rows)
    headers = (("vernier-kind", b"updates"), ("vernier-message-id", b"quoted:0:9:0:0"))
    return Record(f"{APP}.quoted", 0, 0, MS, None, made.value, headers)


RIGHT: list[tuple[list[Any], int, int]] = [(ROW_ONE, FIRST, 1), (ROW_TWO, SECOND, 1), (ROW_ONE, THIRD, -1)]


def outputs(*notes: Record) -> dict[str, list[Record]]:
    return {**{view: [] for view in VIEWS}, "notes_now": [*notes], "quoted": [quoted(*RIGHT)]}


def sample(view: str = "", rows: Rows | None = None) -> dict[str, Rows]:
    right: dict[str, Rows] = {name: Counter() for name in VIEWS}
    right["notes_now"] = Counter([tuple(ROW_ONE), tuple(ROW_TWO)])
    right["quoted"] = Counter([(*ROW_ONE, None, None), (*ROW_TWO, None, None)])
    return right | ({view: rows} if rows is not None else {})


def wrong(out: dict[str, list[Record]], samples: dict[int, dict[str, Rows]], skewed: int = 0) -> list[str]:
    findings = Findings()
    updates = moved_up(updates_of(INPUTS), out, {"notes": skewed}, findings)
    check(Truth(updates), samples, out, findings)
    return findings.wrong


def test_what_is_right_is_right() -> None:
    assert wrong(outputs(published(*RIGHT)), {SECOND: sample(), THIRD - 1: sample()}) == []


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([published(*RIGHT[:2])], "missing"),
        ([published(*RIGHT, (ROW_TWO, THIRD + 1, -1))], "not in truth"),
        ([published(*RIGHT), published(RIGHT[0], seq=1)], "came twice"),
        ([published((ROW_ONE, FIRST + 7, 1), *RIGHT[1:])], f"first difference at {FIRST}"),
    ],
)
def test_output_that_is_not_the_truth_is_found(records: list[Record], said: str) -> None:
    assert any(said in text for text in wrong(outputs(*records), {}))


def test_an_audit_that_found_something_or_left_a_view_out_is_a_finding() -> None:
    whole = [TopicAudit(view, f"{APP}.{view}", "vernier", messages=2) for view in VIEWS]
    findings = Findings()
    check_audits(whole, findings)
    assert findings.wrong == []
    assert findings.compared == {"audited messages": 2 * len(VIEWS)}
    first, second, *others = whole
    first.add(Difference("doubled", "message x:0:9:0:0", None, 1, 2, 7, ((0, 1), (0, 2))))
    second.problem = "another state was published"
    check_audits([first, second, *others[1:]], findings)
    assert findings.wrong == [
        f"views whose topics were not audited: {others[0].view}",
        f"{first.topic}: 1 doubled: {first.differences[0].describe()}",
        f"{second.topic}: another state was published",
    ]


def test_a_sample_that_is_not_the_truth_is_found() -> None:
    told = wrong(outputs(published(*RIGHT)), {SECOND: sample("notes_now", Counter([tuple(ROW_ONE)]))})
    assert len(told) == 1
    assert told[0].startswith(f"notes_now as of {SECOND}: missing 1")
    assert wrong(outputs(published(*RIGHT)), {THIRD: sample()})


def test_arrivals_may_be_moved_up_as_often_as_it_was_counted() -> None:
    moved = [(ROW_ONE, FIRST, 1), (ROW_TWO, SECOND + 50, 1), (ROW_ONE, THIRD, -1)]
    out = {**outputs(published(*moved)), "quoted": [quoted(*moved)]}
    assert wrong(out, {}, skewed=1) == []
    assert wrong(out, {}, skewed=0)


def test_letters_that_are_missing_doubled_or_harmless_are_found() -> None:
    cut = next(message for message in MESSAGES if message.name == "cut")
    inputs = {**INPUTS, "links": [Record("links", 1, 9, MS, None, cut.value, ((HOSTILE, b"cut"),))]}

    def letter(offset: int = 9, reason: bytes = b"decode", value: bytes | None = cut.value) -> Record:
        about = {"reason": reason, "detail": b"", "topic": b"links", "partition": b"1", "offset": str(offset).encode()}
        return Record("links.dlq", 0, 0, MS, None, value, tuple((f"vernier-{k}", v) for k, v in about.items()))

    def told(*letters: Record) -> list[str]:
        findings = Findings()
        check_letters(inputs, {"links.dlq": [*letters]}, findings)
        return findings.wrong

    assert told(letter()) == []
    assert "without a dead letter" in told()[0]
    assert "several" in told(letter(), letter())[0]
    assert "harmless" in told(letter(), letter(8))[0]
    assert "refused for 'late'" in told(letter(reason=b"late"))[0]
    assert "not the message" in told(letter(value=b"other"))[0]


def test_a_control_group_is_one_of_the_kernels(tmp_path: Path) -> None:
    with Group(f"vernier-chaos-test-{os.getpid()}", 256 << 20) as group:
        if group.path is None:  # not root: the run is watched instead
            assert group.kind is None
            return
        command = [sys.executable, "-c", "print(open('/proc/self/cgroup').read()); bytearray(1 << 30)"]
        ran = subprocess.run(command, preexec_fn=group.enter, capture_output=True, text=True)
        assert group.path.name in ran.stdout
        assert ran.returncode == -9
        assert group.killed() == 1
    assert not group.path.exists()
