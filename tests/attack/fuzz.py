"""The fuzzer: mutated messages through ingestion, or as bodies and values over HTTP, in a process that may die of them.

    python -m tests.attack.fuzz --format json --cases 1000000 [--seed 7]
    python -m tests.attack.fuzz --format all --cases 10000

Seeds are good messages and once bad ones (`seeds/`), and the hostile messages. A finding is an exception that is no
dead letter, a refusal that no rule foresees, a message that enters and that the judge does not read, a process that
dies, hangs or takes gigabytes. The run prints each with its input, as a line for `seeds/`, and exits with 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from tests.attack import targets
from tests.attack.hostile import Message
from tests.attack.targets import BATCH, TARGETS, attack, mutants, spelled

_HANGS = 120.0
_MOST_KB = 3 << 20


@dataclass
class Outcome:
    """What came of a run. entered: messages that were taken; findings: what happened and the input."""

    target: str
    cases: int = 0
    entered: int = 0
    refused: int = 0
    seconds: float = 0.0
    findings: list[tuple[str, Message]] = field(default_factory=list)

    def __str__(self) -> str:
        rate = self.cases / self.seconds if self.seconds else 0
        told = f"{self.target}: {self.cases} cases in {self.seconds:.1f} s ({rate:.0f}/s), {self.entered} entered"
        return f"{told}, {self.refused} refused, {len(self.findings)} findings"


# --- processes --------------------------------------------------------------------------------------------------------


def _work(target: str, seed: int, numbers: Sequence[int], alone: bool, told: Connection) -> None:
    """Run batches, telling before each which; `alone`: each message of them by itself."""
    one_attack = attack(target)
    for number in numbers:
        messages = mutants(target, number, seed)
        for at in range(len(messages)) if alone else (-1,):
            told.send(("begins", number, at))
            chosen = messages if at < 0 else messages[at : at + 1]
            try:
                entered, refused, findings = one_attack(chosen, number)
            except Exception as error:
                if not alone:
                    told.send(("raised", number, at))
                    continue
                entered, refused, findings = 0, 0, [(f"{type(error).__name__}: {error}"[:500], chosen[0])]
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _MOST_KB:
                told.send(("grew", number, at))
                return
            told.send(("done", entered, refused, findings))
    told.send(("over",))


def fuzz(target: str, cases: int, seed: int = 0, seconds: float | None = None) -> Outcome:
    """Attack with `cases` mutants, or for `seconds` if that is less, with at least one batch. O(cases)."""
    outcome, begun = Outcome(target), time.monotonic()
    left = list(range(-(-cases // BATCH)))
    while left and not (seconds is not None and time.monotonic() - begun > seconds):
        left = _run(outcome, target, seed, left, None if seconds is None else begun + seconds)
    outcome.seconds = time.monotonic() - begun
    return outcome


def _run(
    outcome: Outcome, target: str, seed: int, numbers: list[int], deadline: float | None, alone: bool = False
) -> list[int]:
    """Run batches in a process; the ones that are left when it has died or time is over."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([targets.__name__])
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(target, seed, numbers, alone, there), daemon=True)
    child.start()
    there.close()
    number, at, problem = numbers[0], -1, ""
    try:
        while True:
            if not here.poll(_HANGS):
                problem = "the process hangs"
                break
            try:
                what, *about = here.recv()
            except EOFError:
                child.join(10)
                problem = f"the process dies with status {child.exitcode}"
                break
            if what == "over":
                return []
            if what == "begins":
                number, at = about
                if deadline is not None and outcome.cases and time.monotonic() > deadline:
                    return []
            elif what == "raised":
                _run(outcome, target, seed, [number], None, alone=True)
            elif what == "grew":
                problem = "the process takes gigabytes"
                break
            else:
                entered, refused, findings = about
                outcome.cases += 1 if alone else BATCH
                outcome.entered, outcome.refused = outcome.entered + entered, outcome.refused + refused
                outcome.findings += findings
    finally:
        child.kill()
        child.join()
        here.close()
    if alone:
        outcome.findings.append((problem, mutants(target, number, seed)[at]))
        return []
    before = len(outcome.findings)
    _run(outcome, target, seed, [number], None, alone=True)
    if len(outcome.findings) == before:
        outcome.findings.append((f"{problem}, in batch {number} of seed {seed}", (None, None)))
    return numbers[numbers.index(number) + 1 :]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack.fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--format", choices=(*TARGETS, "all"), default="all", help="what to attack")
    parser.add_argument("--cases", type=int, default=100_000, help="mutants of each")
    parser.add_argument("--seed", type=int, default=0, help="of the generator: the same one makes the same mutants")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    chosen = parser.parse_args(arguments)
    failed = False
    for target in TARGETS if chosen.format == "all" else (chosen.format,):
        outcome = fuzz(target, chosen.cases, chosen.seed, chosen.seconds)
        print(outcome, flush=True)
        for problem, message in outcome.findings[:20]:
            print(f"  {problem[:300]}\n  {spelled(message)[:2_000]}", flush=True)
        failed |= bool(outcome.findings)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
