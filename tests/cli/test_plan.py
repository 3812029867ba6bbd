"""`vernier plan` and `vernier up --check`: what a change of the program would do to a state."""

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.cli.command import Done
from vernier.operators.engine.worker import Worker
from vernier.operators.language.collection.app import load_program
from vernier.operators.planning.planner import compile_app
from vernier.service.cli.main import run as command
from vernier.service.cluster.shard import Shard, store
from vernier.service.config.settings import Settings
from vernier.service.coordinator.bundle import Programs
from vernier.service.coordinator.opening import show_plan
from vernier.service.coordinator.preview import Preview
from vernier.storage.state.manifest import Manifest, SourceEntry, TraceEntry, ViewEntry, WholeEntry
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import Updates

HEAD = """
import vernier as vn

class Use(vn.Schema):
    account: vn.Int64
    kind: vn.Int64
    spent: vn.Int64

app = vn.App("bank", retain="10s")
uses = app.source("uses", Use)
"""
SUMS = 'app.view("sums", uses.group_by("account").agg(total=vn.sum("spent")), key=["account"])\n'
COUNTS = 'app.view("counts", uses.group_by("kind").agg(n=vn.count()), key=["kind"])\n'
SECOND = 1_000_000_000


def make_state(
    folder: Path, text: str, rows: Sequence[tuple[int, ...]], *, keep_sources: bool = True, push: bool = True
) -> Path:
    """A state directory with one epoch of a program."""
    plan = compile_app(load_program(text, "program.py"), keep_sources=keep_sources, push=push)
    worker, upper = Worker(plan), 100 * SECOND
    words = plan.sources["uses"].encode_rows(rows)
    result = worker.run_epoch(0, upper, {"uses": Updates.of(words, 50 * SECOND, 1)})
    directory = StateDirectory(folder / "state")
    directory.acquire()
    shard = Shard(0, 1, "a", worker.state, {"uses": []})
    stored = store(directory, plan, shard, (0, upper), result.changes, [])
    manifest = Manifest(
        epoch=1,
        attempt="a",
        lower=0,
        upper=upper,
        committed_ns=0,
        workers=1,
        app=plan.app,
        program=plan.fingerprint,
        sources={name: SourceEntry(topic=name, columns=row.to_json()) for name, row in plan.sources.items()},
        traces={
            name: TraceEntry(
                shape.key_width,
                shape.val_width,
                shape.depth,
                [[batch.ref for batch in worker.state.traces[name].named if batch.ref is not None]],
                None if shape.whole is None else WholeEntry(shape.whole.of, list(shape.whole.words)),
                worker.state.traces[name].since if shape.retained else None,
            )
            for name, shape in plan.arrangements.items()
        },
        views={
            name: ViewEntry(view.schema.to_json(), list(view.key), view.trace, worker.state.traces[view.trace].since)
            for name, view in plan.views.items()
        },
        changes={name: [ref] for name, ref in stored.changes.items()},
    )
    directory.commit(manifest)
    directory.release()
    return folder / "state"


def run(*words: object) -> Done:
    """The command, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = command([str(word) for word in words])
    return Done(status, out.getvalue(), err.getvalue())


def plan_of(folder: Path, state: Path, text: str, *words: str) -> Done:
    program = folder / "changed.py"
    program.write_text(text, "utf-8")
    return run("plan", program, "--state", state, "--set", "state.keep_sources=true", *words)


def test_it_says_what_is_kept_filled_and_lost(tmp_path: Path) -> None:
    state = make_state(tmp_path, HEAD + SUMS, [(n % 7, n % 3, n) for n in range(50)])
    same = plan_of(tmp_path, state, HEAD + SUMS)
    assert (same.status, same.out.splitlines()[-1]) == (0, "the state of epoch 1 can go on: at once")
    more = plan_of(tmp_path, state, HEAD + SUMS + COUNTS, "--format", "json")
    found = json.loads(more.out)
    assert (more.status, found["refused"], found["rows"]) == (0, False, 50)
    views = {one["view"]: one for one in found["changes"] if "view" in one}
    assert views["sums"]["fate"] == "kept"
    assert views["counts"] == {
        "fate": "filled",
        "view": "counts",
        "columns": ["kind Int64", "n Int64"],
        "about": "new; history from the change on",
    }
    renamed = plan_of(tmp_path, state, HEAD + SUMS.replace('view("sums"', 'view("totals"'), "--format", "json")
    views = {one["view"]: one for one in json.loads(renamed.out)["changes"] if "view" in one}
    assert {name: (one["fate"], one["about"]) for name, one in views.items()} == {"totals": ("renamed", "was sums")}
    other = plan_of(tmp_path, state, HEAD + COUNTS)
    assert other.status == 0
    assert [line.split()[:3] for line in other.out.splitlines() if " sums " in line] == [["lost", "view", "sums"]]


def test_columns_of_a_view_and_history(tmp_path: Path) -> None:
    state = make_state(tmp_path, HEAD + SUMS, [(n % 7, n % 3, n) for n in range(50)])
    wider = SUMS.replace('total=vn.sum("spent")', 'total=vn.sum("spent"), n=vn.count()')
    views = {
        one["view"]: one
        for one in json.loads(plan_of(tmp_path, state, HEAD + wider, "--format", "json").out)["changes"]
        if "view" in one
    }
    assert views["sums"]["about"] == "its meaning changes (+ n Int64); history from the change on"
    big = SUMS + (
        'totals = uses.group_by("account").agg(total=vn.sum("spent"))\n'
        'app.view("rich", totals.filter(vn.col("total") > 9), key=["account"])\n'
    )
    views = {
        one["view"]: one
        for one in json.loads(plan_of(tmp_path, state, HEAD + big, "--format", "json").out)["changes"]
        if "view" in one
    }
    assert views["rich"]["about"] == "new; history of 10 s"


def test_it_says_what_is_refused_and_why(tmp_path: Path) -> None:
    narrow = SUMS.replace("uses.group_by", 'uses.select("account", "spent").group_by')
    state = make_state(tmp_path, HEAD + narrow, [(1, 1, 1)], keep_sources=False)
    late = 'app.view("late", uses.delay("1h"))\n'
    refused = plan_of(tmp_path, state, HEAD + narrow + COUNTS)
    assert refused.status == 1
    assert "no arrangement of the state holds all rows of source uses" in refused.out
    assert refused.out.splitlines()[-1].startswith("refused: the state of epoch 1 cannot go on with this")
    (tmp_path / "whole").mkdir()
    whole = make_state(tmp_path / "whole", HEAD + SUMS, [(1, 1, 1)])
    refused = plan_of(tmp_path, whole, HEAD + late)
    assert (refused.status, "depends on when rows came in the last 3600 s" in refused.out) == (1, True)
    program = tmp_path / "changed.py"
    where = ("--set", f"state.path={whole}", "--set", "state.keep_sources=true", "--check")
    assert run("up", program, *where).out == refused.out
    assert plan_of(tmp_path, tmp_path / "nowhere", HEAD).status == 1


def test_an_empty_state_begins(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(HEAD + SUMS, "utf-8")
    done = run("up", program, "--check", "--set", f"state.path={tmp_path / 'new'}")
    assert done.status == 0
    assert "the state is empty: the service reads its topics from their beginning" in done.out
    assert not (tmp_path / "new").exists()


JOINED = """
class Limit(vn.Schema):
    account: vn.Int64
    until: vn.Int64

limits = app.source("limits", Limit)
within = uses.join(limits, on="account").valid_between(to="until")
app.view("within", within.select("account", "spent"), key=["account"])
"""


def test_a_state_from_before_temporal_filters_moved_goes_on_as_it_is(tmp_path: Path) -> None:
    """Its views keep their traces, and so their history, also when the program changes in other places."""

    def fates(state: Path, text: str) -> dict[str, str]:
        found = json.loads(plan_of(tmp_path, state, text, "--set", "state.keep_sources=false", "--format", "json").out)
        return {one["view"]: one["fate"] for one in found["changes"] if "view" in one}

    def pushes(state: Path) -> bool:
        settings = Settings(program=tmp_path / "changed.py", state={"path": str(state)})
        return Programs(settings).bundle().plan.pushes

    rows = [(n % 7, n % 3, n) for n in range(50)]
    for name, push in (("before", False), ("since", True)):
        (tmp_path / name).mkdir()
        state = make_state(tmp_path / name, HEAD + JOINED, rows, keep_sources=False, push=push)
        assert fates(state, HEAD + JOINED) == {"within": "kept"}
        assert pushes(state) is push
        assert fates(state, HEAD + JOINED + SUMS) == {"within": "kept", "sums": "filled"}
    assert pushes(tmp_path / "new") is True


NOTED = HEAD.replace("kind: vn.Int64", "kind: vn.Int64 = vn.column(default=3)\n    note: vn.String | None")


def changes(done: Done) -> dict[str, tuple[str, str]]:
    """What happens to sources and views, and about what."""
    found = json.loads(done.out)["changes"]
    return {one[kind]: (one["fate"], one["about"]) for one in found for kind in ("source", "view") if kind in one}


def test_columns_of_a_source_change_in_place(tmp_path: Path) -> None:
    state = make_state(tmp_path, HEAD + SUMS, [(n % 7, n % 3, n) for n in range(50)], keep_sources=False)
    where = ("--format", "json", "--set", "state.keep_sources=false")
    done = plan_of(tmp_path, state, NOTED + SUMS, *where)
    assert (done.status, json.loads(done.out)["rows"]) == (0, 0)
    assert changes(done) == {"uses": ("changed", "+ note String | None"), "sums": ("kept", "")}
    # A column that is read has another type, and the sums have no rows of which it could be made.
    wider = HEAD.replace("spent: vn.Int64", "spent: vn.Decimal(12, 2)")
    done = plan_of(tmp_path, state, wider + SUMS, *where)
    assert done.status == 1
    assert changes(done)["uses"] == ("changed", "spent Int64 → Decimal(12, 2)")
    assert changes(done)["sums"][0] == "refused"
    assert "no arrangement of the state holds all rows" in done.out
    renamed = HEAD.replace("account: vn.Int64", 'owner: vn.Int64 = vn.column(was="account")')
    done = plan_of(tmp_path, state, renamed + SUMS.replace("account", "owner"), *where)
    assert done.status == 0
    assert changes(done) == {
        "uses": ("changed", "owner Int64 was account Int64"),
        "sums": ("kept", "its columns were account Int64, total Int64"),
    }


def test_columns_that_rows_cannot_follow_are_refused_with_the_way_out(tmp_path: Path) -> None:
    state = make_state(tmp_path, HEAD + SUMS, [(1, 1, 1)])
    for old, new, said in (
        ("kind: vn.Int64", "kind: vn.String", "kind of source uses was Int64 and is String"),
        ("kind: vn.Int64", "kind: vn.Int64\n    place: vn.Int64", "place of source uses is new"),
        ("kind: vn.Int64", "sort: vn.Int64", "`= vn.column(was=…)`"),
    ):
        done = plan_of(tmp_path, state, HEAD.replace(old, new) + SUMS, "--format", "json")
        assert (done.status, changes(done)["uses"][0]) == (1, "refused")
        assert said in changes(done)["uses"][1]
        assert said in changes(done)["sums"][1]


def test_a_state_of_an_older_release_has_its_columns_in_the_plan(tmp_path: Path) -> None:
    """Its manifests do not say which columns the sources had."""
    state = make_state(tmp_path, HEAD + SUMS, [(1, 1, 1)], keep_sources=False)
    directory = StateDirectory(state)
    newest = directory.latest()
    assert newest is not None
    entries = {name: SourceEntry(topic=name) for name in newest.sources}
    plan = compile_app(load_program(HEAD + SUMS, "program.py"))
    directory.acquire()
    directory.commit(msgspec.structs.replace(newest, epoch=2, lower=newest.upper, sources=entries, rollup=None))
    show_plan(directory, plan)
    directory.release()
    done = plan_of(tmp_path, state, NOTED + SUMS, "--format", "json", "--set", "state.keep_sources=false")
    assert (done.status, changes(done)["sums"]) == (0, ("kept", ""))


def test_what_a_table_says_of_its_messages_counts_for_other_commands_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "shop.sql"
    program.write_text("CREATE TABLE items (id BIGINT NOT NULL) WITH (format = 'upsert', key = 'id');\n", "utf-8")
    seen: list[Settings] = []

    def previews(settings: Settings) -> Preview:
        seen.append(settings)
        return Preview(0, (), 0, 0.0)

    monkeypatch.setattr("vernier.service.coordinator.preview.preview", previews)
    state = make_state(tmp_path, HEAD + SUMS, [(1, 1, 1)])
    assert run("plan", program, "--state", state).status == 0
    assert run("up", program, "--set", f"state.path={state}", "--check").status == 0
    assert [(one.source("items").format, one.source("items").key) for one in seen] == [("upsert", ["id"])] * 2
    updates = tmp_path / "updates.jsonl"
    updates.write_text('{"data":[1]}\n', "utf-8")
    sent = run("send", updates, "--topic", "items", "--set", f"program={program}")
    assert sent.status == 2
    assert "topic items has format upsert, which send does not write" in sent.err
