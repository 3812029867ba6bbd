"""After set-up, programs compile nothing: storage/kernels/signatures.txt has the types and layouts that really come."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import graphs
from tests.cli.command import ROOT, environment

SCRIPT = """
import importlib, json, pkgutil, sys
from pathlib import Path

from numba.core.dispatcher import Dispatcher

from vernier.service.cluster.precompile import warm
from vernier.storage.kernels import listing
from vernier.storage.kernels.separate import dispatcher_of

warm()


def versions():
    return {(name, kinds) for name, kernel in kernels().items() for kinds in kernel.signatures}


def kernels():
    found = {}
    for package in ("vernier.storage.kernels", "vernier.operators.kernels", "vernier.service.kernels"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            for value in map(dispatcher_of, vars(importlib.import_module(f"{package}.{module.name}")).values()):
                if isinstance(value, Dispatcher) and value.stats.cache_path is not None:
                    found[f"{value.py_func.__module__}.{value.py_func.__qualname__}"] = value
    return found


def compiled():
    return {name: sum(kernel.stats.cache_misses.values()) for name, kernel in kernels().items()}


# Loaded, every one of them, and nothing compiled: set-up has done that.
assert not any(compiled().values()), compiled()
before = versions()
assert len(before) == len(list(listing.kernels())) > 50, len(before)

from vernier.operators.language.collection.app import load_program
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.service.files.changefiles import ChangeFile
from vernier.service.replay.replay import epochs_of
from vernier.service.files.updatefiles import read_updates

for program in json.loads(sys.argv[1]):
    plan = compile_app(load_program(Path(program)))
    updates = read_updates([Path(sys.argv[2])], plan.sources)
    for workers, size in ((1, 7), (2, 100), (2, 100_000)):
        views = {name: view.schema for name, view in plan.views.items()}
        with LocalEngine(plan, workers) as engine, ChangeFile(Path(sys.argv[3]), views) as out:
            for epoch in epochs_of(updates, size):
                out.add(engine.run_epoch(*epoch), engine.heap)
from tests.cli import dataflows

dataflows.run()
print(*sorted(map(str, versions() - before)), *(name for name, count in compiled().items() if count), sep="\\n")
"""

EVERYTHING = """
import vernier as vn
from vernier import col

class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64

class Node(vn.Schema):
    node: vn.Int64

app = vn.App("everything")
edges, nodes = app.source("edges", Edge), app.source("roots", Node)
app.view("filtered", edges.filter(col("src") % 2 == 0).select(b="dst", a="src"))
app.view("both", edges.join(edges.select(src="dst", to="src"), on="src").distinct())
app.view("groups", edges.group_by("src").agg(n=vn.count(), s=vn.sum("dst"), a=vn.min("dst"), b=vn.max("dst"),
                                             m=vn.avg("dst")))
app.view("whole", edges.group_by("src").agg(s=vn.count_distinct("dst"), a=vn.arg_max("dst", "dst"), b=vn.mode("dst"),
                                            c=vn.median("dst"), m=vn.avg("dst")))
app.view("often", edges.threshold(2))
app.view("followed", edges.group_by("dst").agg(n=vn.count(), s=vn.sum("src"), m=vn.avg("src")))
app.view("found", nodes.lookup(edges, left_on="node", right_on="src").valid_between(to="dst"))
gone = vn.Variable("gone", Node, delay=50)
gone.set(nodes.union(edges.select(node="src").coarsen(100)).consolidate())
app.view("gone", gone)
long = vn.lit("a name that is longer than words are: ")
named = edges.select("dst", name=vn.concat(long, col("src").cast(vn.String)))
app.view("named", named.join(named.select("name", to="dst"), on="name").distinct())
app.view("names", named.group_by("dst").agg(all=vn.collect_list("name"), last=vn.max("name")))
app.view("rest", vn.union(nodes, edges.select(node="dst").negate()))


@vn.fixpoint(max_rounds=5, on_limit="truncate")
def inner(x, *, start):
    return vn.union(start, x.join(edges, left_on="node", right_on="src").select(node="dst")).distinct()


@vn.fixpoint(max_rounds=4, on_limit="truncate")
def outer(y):
    kept = vn.union(inner(y, start=y), edges.select(node="src")).join(nodes, on="node")
    return vn.union(kept, y).group_by("node").agg(n=vn.count()).select("node")


@vn.fixpoint(max_rounds=6, on_limit="truncate")
def mutual(even, odd):
    def step(nodes):
        return nodes.join(edges, left_on="node", right_on="src").select(node="dst")
    return vn.union(nodes, step(odd)).distinct(), step(even).distinct()


@vn.fixpoint(max_rounds=3, on_limit="truncate")
def stay(x):
    return vn.union(nodes, x.valid_between(to="node").union(gone)).consolidate().distinct()


app.view("stay", stay(nodes))
app.view("nested", outer(nodes))
even, odd = mutual(nodes, nodes.filter(col("node") < 0))
app.view("even", even)
app.view("odd", odd)
"""


@pytest.mark.slow
def test_nothing_is_compiled_after_warming(tmp_path: Path) -> None:
    # Enough for batches that are sorted as large ones.
    graphs.write(tmp_path / "graph.jsonl", graphs.updates(6_000))
    (tmp_path / "everything.py").write_text(EVERYTHING)
    examples = (
        path
        for path in (ROOT / "tests/programs").glob("*.py")
        if "vn.App(" in path.read_text() and not path.name.startswith("test_")
    )
    programs = [tmp_path / "everything.py", *examples]
    graph_programs = [str(path) for path in programs if {"edges", "roots"} == _sources(path)]
    assert len(graph_programs) >= 3
    listed = "[" + ",".join(f'"{path}"' for path in graph_programs) + "]"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, listed, "graph.jsonl", "out.jsonl"],
        cwd=tmp_path,
        env=environment({"KERNEL_LIST": "strict"}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def _sources(program: Path) -> set[str]:
    from vernier.operators.language.collection.app import load_program

    return set(load_program(program).sources)
