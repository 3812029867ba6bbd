"""Chaos: a real service under killed and stopped processes, a full disk and hostile messages.

    python -m bench.chaos --seconds 600 --seed 7 --memory-gb 4

`vernier up` with an embedded broker runs bench/chaos/program.py: six sources (formats vernier, upsert, json, debezium,
arrow, insert_delete; both clocks) and twelve views, all of which are published to topics. A seeded load feeds it, with
three hostile messages a minute; a seeded schedule kills (SIGKILL) and stops (SIGSTOP for 5 to 60 s) each of its
processes, restarts it (SIGTERM), and fills the disk of its state twice. All the while answers are sampled over HTTP.

At the end /readyz must say yes within 60 s; then every sample, every output topic and every dead letter is compared
with a recomputation from the messages in the input topics (bench/chaos/truth.py), exactly. With --memory-gb the whole
service has no more memory than that (a control group as root, else watched), and none of it may be killed for memory.

Progress goes to standard error, the report to standard output as one line of JSON. The exit status is 1 when something
is wrong; then the folder with logs and state stays. Its seed repeats the random choices of a run, but not
the timing between processes.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time

from bench.chaos.run import Plan, line, run
from bench.record import record


def main() -> int:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600, help="how long faults come")
    parser.add_argument("--seed", type=int, default=None, help="default: one of chance, which the report names")
    parser.add_argument("--memory-gb", type=float, default=None, help="for all processes of the service together")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--speed", type=float, default=1.0, help="of the load; 1 is some 30 updates a second")
    parser.add_argument("--own-poison", action="store_true", help="without the messages of tests/attack/hostile.py")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 31)
    memory = None if given.memory_gb is None else int(given.memory_gb * 2**30)

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} chaos: {text}", file=sys.stderr, flush=True)

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    say(f"seed {seed}, {given.seconds:.0f} s of faults")
    report = run(Plan(given.seconds, seed, memory, given.workers, given.speed, not given.own_poison), say)
    text = line(report)
    print(text, flush=True)
    record(json.loads(text))
    for problem in report.findings.wrong:
        say(f"WRONG: {problem}")
    return 1 if report.findings.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
