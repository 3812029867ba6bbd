"""All benchmarks, one after another, each in a process of its own: `python -m bench [--full] [NAME…]`.

Each prints JSON lines, which are shown as they are and added to build/bench.jsonl with the time, the commit, the
machine, the load before it began and how long it took; each keeps its newest run in bench/results (bench/record.py). At
the end the ratios to the peers are printed as tables (bench/tables.py). Without names and `--full` it takes about ten
minutes: benchmarks that run the service for minutes are left out.
"""

import argparse
import json
import subprocess
import sys
import time

from bench.record import ROOT, about
from bench.tables import tables

OUT = ROOT / "build" / "bench.jsonl"

EXACT = "vernier,differential"
BOTH = "vernier,differential,vernier/batch,differential/batch"
TWO = "vernier,vernier:2,vernier*2,vernier-threads:2,differential,differential:2,differential*2"
"""With many short turns: the speed of a machine's cores changes, and two workers have that of the slower one."""


def race(program: str, size: str, batch: int, updates: int, turns: int, players: str) -> list[str]:
    """The arguments of a race; size: nodes/edges."""
    nodes, edges = size.split("/")
    return [
        "--program", program, "--nodes", nodes, "--edges", edges, "--batch", str(batch), "--updates", str(updates),
        "--turns", str(turns), "--players", players,
    ]  # fmt: skip


SHORT: dict[str, list[list[str]]] = {
    "race": [
        race("bfs", "1000/2000", 1, 1_500, 5, f"{BOTH},pathway/batch"),
        race("bfs", "1000/2000", 10, 5_000, 5, BOTH),
        race("bfs", "1000/2000", 100, 10_000, 5, BOTH),
        race("bfs", "1000/2000", 1_000, 25_000, 5, f"{BOTH},pathway/batch"),
        race("bfs", "1000/2000", 10_000, 50_000, 5, BOTH),
        race("bfs", "1000/2000", 100_000, 300_000, 3, EXACT),
        race("bfs", "1000/2000", 1_000, 120_000, 20, TWO),
        race("bfs", "1000/2000", 10_000, 200_000, 10, TWO),
        race("bfs", "1000/2000", 100_000, 400_000, 4, TWO),
        race("bfs", "100000/1000000", 1_000, 3_000, 3, EXACT),
        race("degrees", "10000/50000", 1, 3_000, 5, EXACT),
        race("degrees", "10000/50000", 1_000, 100_000, 5, f"{BOTH},differential-count"),
        race("degrees", "10000/50000", 100_000, 500_000, 5, f"{BOTH},differential-count"),
        race("components", "20000/100000", 100, 500, 5, EXACT),
        race("scc", "5000/10000", 50, 250, 5, EXACT),
    ],
    "sustained": [["--updates", "100000", "--window", "2000"]],
    "through": [["--batches", "3"]],
    "sparks": [["--batches", "3"]],
    "profile": [["--batch", "1"], ["--batch", "10", "--updates", "10000"], ["--batch", "1000", "--updates", "20000"]],
    "engine": [
        ["--batch", "1", "--updates", "2000"],
        ["--batch", "10", "--updates", "5000"],
        ["--batch", "1000", "--updates", "20000"],
        ["--batch", "20000", "--updates", "60000"],
        ["--program", "reachability", "--batch", "1000", "--updates", "20000"],
    ],
    "linear": [["--rows", "1"], ["--rows", "1024"], ["--rows", "100000", "--repeat", "20"]],
    "scanner": [["--rows", "5000", "--rounds", "41"], []],
    "storage": [["--edges", "1000000"]],
    "steady": [["--epochs", "2000"]],
    "stores": [["--edges", "50000"]],
    "scale": [["--measure"], ["--check"], []],
    "memory": [[], ["--bound", "48"]],
    "idle": [[]],
    "restart": [[]],
    "sharing": [[]],
    "flows": [["--events", "20000", "--delays", "100ms"]],
    "seeds": [["--scale", "0.01"]],
    "changes": [["--rows", "100000", "--accounts", "5000"]],
    "rescale": [["--rows", "100000", "--accounts", "5000"]],
    "snapshots": [["--rows", "2000000", "--changes", "20000", "--kills", "1"]],
    "spark_reads": [["--rows", "200000"]],
    "door": [["--rows", "50000", "--rounds", "2"]],
    "sql": [["--scale", "0.01"]],
    "checkpoints": [[]],
    "nexmark": [[]],
    "recursion": [[]],
    "commit": [[]],
    "exchange": [[]],
    "skew": [["--epochs", "5"]],
    "groups": [[]],
    "handshake": [[]],
    "producer": [["--seconds", "5"]],
    "freshness": [["--seconds", "30"]],
    "burst": [[]],
    "capacity": [["--rates", "1000,3000,8000"]],
    "fanout": [[]],
    "load": [["--seconds", "30"]],
    "soak": [["--seconds", "600", "--retain", "2m"]],
    "chaos": [["--seconds", "600", "--memory-gb", "4"]],
    "failover": [[], ["--master", "local-cluster[2,2,1024]"], ["--what", "driver"]],
}
SERVING = ("freshness", "burst", "capacity", "fanout", "load", "soak", "chaos", "failover")
"""Benchmarks that run the service for minutes each: run when named, and with --full."""
FULL: dict[str, list[list[str]]] = {
    "race": [
        race("bfs", "1000/2000", 1, 5_000, 5, f"{BOTH},pathway/batch"),
        race("bfs", "1000/2000", 10, 20_000, 5, f"{BOTH},pathway/batch"),
        race("bfs", "1000/2000", 100, 50_000, 5, BOTH),
        race("bfs", "1000/2000", 1_000, 100_000, 5, f"{BOTH},pathway/batch"),
        race("bfs", "1000/2000", 10_000, 300_000, 5, BOTH),
        race("bfs", "1000/2000", 100_000, 500_000, 5, BOTH),
        race("bfs", "1000/2000", 1_000_000, 2_000_000, 2, BOTH),
        *(race("bfs", "1000/2000", batch, 120 * batch, 20, TWO) for batch in (1, 100, 1_000, 10_000)),
        race("bfs", "1000/2000", 100_000, 600_000, 6, TWO),
        race("bfs", "1000000/10000000", 1_000, 15_000, 5, EXACT),
        race("bfs", "1000000/10000000", 100_000, 300_000, 3, EXACT),
        race("bfs", "1000000/10000000", 1_000_000, 1_000_000, 1, EXACT),
        race("bfs", "1000000/10000000", 10_000, 30_000, 3, "vernier:2,differential:2"),
        race("degrees", "10000/50000", 1, 10_000, 5, f"{BOTH},differential-count"),
        race("degrees", "10000/50000", 1_000, 500_000, 5, f"{BOTH},differential-count"),
        race("degrees", "10000/50000", 100_000, 2_000_000, 5, f"{BOTH},differential-count"),
        race("degrees", "10000000/50000000", 1_000, 100_000, 5, EXACT),
        race("components", "1000000/5000000", 1_000, 5_000, 5, EXACT),
        race("scc", "1000000/5000000", 100, 300, 3, EXACT),
    ],
    "sustained": [["--updates", "1000000", "--window", "20000"], ["--updates", "10000000", "--window", "20000"]],
    "sparks": [[]],
    "through": [["--batches", "10"], ["--batch", "500000", "--batches", "4"]],
    "profile": [["--batch", "1"], ["--batch", "10", "--updates", "10000"], ["--batch", "1000", "--updates", "100000"]],
    "engine": [
        *(["--batch", str(batch), "--updates", "100000"] for batch in (100, 1000, 10_000, 100_000)),
        ["--nodes", "1000000", "--edges", "2000000", "--batch", "1000", "--updates", "100000"],
    ],
    "linear": [["--rows", "1"], ["--rows", "1024"], ["--rows", "1000000", "--repeat", "20"]],
    "scanner": [["--rows", "500", "--rounds", "101"], ["--rows", "5000", "--rounds", "41"], []],
    "storage": [["--edges", "10000000", "--batch", "100000", "--plot", "docs/images/bench-storage.png"]],
    "steady": [
        ["--epochs", "10000", "--warm", "4000", "--window", "200000", "--plot", "docs/images/bench-steady.png"],
        ["--epochs", "1000", "--stored"],
    ],
    "stores": [["--edges", "50000,500000,2200000"]],
    "scale": [["--measure"], ["--check"], []],
    "idle": [[]],
    "memory": [["--edges", "10000000"], ["--edges", "10000000", "--bound", "192"]],
    "restart": [["--sizes", "10000,100000,1000000,10000000", "--plot", "docs/images/bench-restart.png"]],
    "sharing": [["--friendships", "2000000", "--epochs", "2000"]],
    "seeds": [[]],
    "sql": [
        ["--scale", "0.1"],
        ["--scale", "1"],
        ["--scale", "1", "--queries", "1,13", "--sizes", "", "--loads", "1000,10000,100000"],
    ],
    "checkpoints": [["--scale", "0.1", "--workers", "2"], ["--scale", "1"]],
    "nexmark": [["--events", "1000000", "--files", "10"]],
    "recursion": [[], ["--nodes", "10000", "--edges", "20000"]],
    "flows": [
        [
            "--events",
            "10000000",
            "--plain-events",
            "1000000",
            "--pauses",
            "100us",
            "--plot",
            "docs/images/bench-flows.png",
        ],
        ["--open", "--events", "60000", "--pauses", "1ms", "--delays", "1s,1ms"],
        ["--open", "--events", "600000", "--pauses", "100us", "--delays", "1s,1ms"],
    ],
    "changes": [[]],
    "rescale": [[]],
    "snapshots": [["--kills", "0"], ["--kills", "2"]],
    "spark_reads": [["--turns", "5"]],
    "door": [[]],
    "commit": [[]],
    "exchange": [[], ["--bytes", "1048576", "--rounds", "200"]],
    "skew": [[]],
    "groups": [[]],
    "handshake": [["--connections", "200"]],
    "producer": [["--seconds", "20", "--rows", "500000", "--plot", "docs/images/bench-producer.png"]],
    "freshness": [["--seconds", "120"]],
    "burst": [["--seconds", "30", "--plot", "docs/images/bench-burst.png"]],
    "capacity": [["--seconds", "60", "--rates", "1000,2000,4000,8000,16000"]],
    "fanout": [[]],
    "load": [["--seconds", "60"]],
    "soak": [["--seconds", "3600", "--retain", "10m", "--plot", "docs/images/bench-soak.png"]],
    "chaos": [["--seconds", "3600", "--memory-gb", "4"]],
    "failover": [
        ["--kills", "10"],
        ["--kills", "10", "--master", "local-cluster[2,2,1024]"],
        ["--kills", "10", "--what", "driver"],
        ["--kills", "10", "--what", "driver", "--state", "s3"],
    ],
}


def main() -> int:
    """Run the named benchmarks; exit status 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="at full size")
    parser.add_argument(
        "names", nargs="*", help=f"of {', '.join(SHORT)}; default: all but {', '.join(SERVING)}, which --full has, too"
    )
    given = parser.parse_args()
    suite = FULL if given.full else SHORT
    unknown = [name for name in given.names if name not in suite]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are {', '.join(suite)}")
    OUT.parent.mkdir(exist_ok=True)
    failed, shown = 0, []
    for name in given.names or [name for name in suite if given.full or name not in SERVING]:
        for arguments in suite[name]:
            print(f"# {name} {' '.join(arguments)}", file=sys.stderr, flush=True)
            known = {"benchmark": name, "arguments": arguments, **about()}
            began = time.monotonic()
            run = subprocess.run([sys.executable, "-m", f"bench.{name}", *arguments], cwd=ROOT, stdout=subprocess.PIPE)
            known["seconds"] = round(time.monotonic() - began, 1)
            lines = run.stdout.decode().splitlines()
            failed += run.returncode != 0
            print("\n".join(lines), flush=True)
            results = [json.loads(line) for line in lines if line.startswith("{")]
            noted = [{**known, "result": result} for result in results]
            shown += noted
            with OUT.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps(one) + "\n" for one in noted)
    print(tables(shown))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
