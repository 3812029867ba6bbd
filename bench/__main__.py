"""All benchmarks, one after another, each in a process of its own: `python -m bench [--full] [NAME…]`.

Each prints one JSON line, which is shown as it is and added to build/bench.jsonl with the time, the commit and the load
of the machine before it began.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "bench.jsonl"

SHORT: dict[str, list[list[str]]] = {
    "engine": [
        ["--batch", "1", "--updates", "2000"],
        ["--batch", "10", "--updates", "5000"],
        ["--batch", "1000", "--updates", "20000"],
        ["--batch", "20000", "--updates", "60000"],
        ["--program", "reachability", "--batch", "1000", "--updates", "20000"],
    ],
    "linear": [["--rows", "1"], ["--rows", "1024"], ["--rows", "100000", "--repeat", "20"]],
    "storage": [["--edges", "1000000"]],
    "steady": [["--epochs", "2000"]],
    "memory": [[], ["--bound", "48"]],
    "restart": [[]],
    "sharing": [[]],
    "commit": [[]],
    "exchange": [[]],
    "freshness": [["--seconds", "30"]],
    "capacity": [["--rates", "1000,3000,8000"]],
}
FULL: dict[str, list[list[str]]] = {
    "engine": [
        *(["--batch", str(batch), "--updates", "100000"] for batch in (100, 1000, 10_000, 100_000)),
        ["--nodes", "1000000", "--edges", "2000000", "--batch", "1000", "--updates", "100000"],
    ],
    "linear": [["--rows", "1"], ["--rows", "1024"], ["--rows", "1000000", "--repeat", "20"]],
    "storage": [["--edges", "10000000", "--batch", "100000", "--plot", "docs/images/bench-storage.png"]],
    "steady": [
        ["--epochs", "10000", "--plot", "docs/images/bench-steady.png"],
        ["--epochs", "1000", "--stored"],
    ],
    "memory": [["--edges", "10000000"], ["--edges", "10000000", "--bound", "192"]],
    "restart": [["--sizes", "10000,100000,1000000,10000000", "--plot", "docs/images/bench-restart.png"]],
    "sharing": [["--friendships", "2000000", "--epochs", "2000"]],
    "commit": [[]],
    "exchange": [[], ["--bytes", "1048576", "--rounds", "200"]],
    "freshness": [["--seconds", "120"]],
    "capacity": [["--seconds", "60", "--rates", "1000,2000,4000,8000,16000"]],
}


def main() -> int:
    """Run what was asked for; exit status 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="at full size")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SHORT)}; default: all")
    given = parser.parse_args()
    suite = FULL if given.full else SHORT
    unknown = [name for name in given.names if name not in suite]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are {', '.join(suite)}")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    OUT.parent.mkdir(exist_ok=True)
    failed = 0
    for name in given.names or suite:
        for arguments in suite[name]:
            print(f"# {name} {' '.join(arguments)}", file=sys.stderr, flush=True)
            about = {
                "benchmark": name,
                "arguments": arguments,
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "commit": commit.stdout.strip(),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                "load": round(os.getloadavg()[0], 1),
            }
            run = subprocess.run([sys.executable, "-m", f"bench.{name}", *arguments], cwd=ROOT, stdout=subprocess.PIPE)
            lines = run.stdout.decode().splitlines()
            failed += run.returncode != 0
            print("\n".join(lines), flush=True)
            results = [json.loads(line) for line in lines if line.startswith("{")]
            with OUT.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps({**about, "result": result}) + "\n" for result in results)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
