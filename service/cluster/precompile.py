"""Precompile: compile and load all kernels before their first use, both the engine's and those that decode messages.

A kernel is otherwise compiled when it is first called, which takes up to ten seconds; loading a compiled kernel takes
milliseconds. storage/kernels/signatures.txt lists the signatures that Python calls, so no kernel has to be called here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from vernier.storage.kernels import listing
from vernier.storage.kernels.listing import Listed
from vernier.storage.kernels.separate import Separate

COLLECTED = 8
"""A compiling process frees garbage each time that it has compiled this number of kernels."""


def warm(report: Callable[[str], None] = lambda text: None) -> None:
    """Load every kernel. Kernels that numba's cache lacks are compiled first; `report` receives the progress."""
    prepare(report)
    for kernel in listing.kernels():
        kernel.load()


def prepare(report: Callable[[str], None] = lambda text: None) -> int:
    """Compile what numba's cache lacks, on all cores; returns the number of kernels compiled."""
    lacking = [kernel for kernel in listing.kernels() if not kernel.is_compiled()]
    if lacking:
        compile_all(lacking, report)
    return len(lacking)


def compile_all(
    kernels: Sequence[Listed], report: Callable[[str], None] = lambda text: None, workers: int | None = None
) -> None:
    """Compile kernels into numba's cache, with one process per core.

    If this is interrupted, what has been compiled stays, so the next call continues from there. Kernels that others
    call by name come first, in one process; those that call none of them, beside them; then the rest, by size. Kernels
    of one file go to one process, because they share the functions they call. Raises RuntimeError with the process's
    output when a kernel does not compile.
    """
    first = [kernel for kernel in kernels if kernel.is_separate()]
    files: dict[str, list[Listed]] = {}
    for kernel in kernels:
        if kernel not in first:
            files.setdefault(kernel.module, []).append(kernel)
    dependent = {module for module, those in files.items() if _reach(those)[1]}
    order = sorted(files, key=lambda module: (module not in dependent, _size(files[module])))
    waiting = [(module in dependent, files[module]) for module in order]
    ready = threading.Event()
    if first:
        waiting.append((False, first))
    else:
        ready.set()
    progress = _Progress(sum(_size([kernel]) for kernel in kernels), len(kernels), report)
    failures: list[str] = []

    def work() -> None:
        with _compiler() as process:
            assert process.stdin is not None
            assert process.stdout is not None
            while waiting and not failures:
                with contextlib.suppress(IndexError):
                    later, share = waiting.pop()
                    if later:
                        ready.wait()
                    for kernel in share:
                        progress.begin(kernel)
                        process.stdin.write(f"{kernel.module} {kernel.function} {kernel.types}\n")
                        process.stdin.flush()
                        if process.stdout.readline() != "done\n":
                            failures.append(f"{kernel.name} does not compile: its process ended, see above")
                            ready.set()
                            return
                        progress.end(kernel, _size([kernel]))
                    if share is first:
                        ready.set()

    cores = len(os.sched_getaffinity(0))
    threads = [threading.Thread(target=work) for _ in range(min(workers or cores, len(waiting)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(failures[0])


@contextlib.contextmanager
def _compiler() -> Iterator[subprocess.Popen[str]]:
    """A process that compiles the kernels named on its input and ends when its input ends, also when this process is
    killed."""
    command = [sys.executable, "-m", "vernier.service.cluster.precompile"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def _size(kernels: Sequence[Listed]) -> int:
    """A measure of the time kernels take to compile: the number of Python instructions in them and in the functions
    they call, which are compiled once for all of them."""
    return _reach(kernels)[0]


def _reach(kernels: Sequence[Listed]) -> tuple[int, bool]:
    """(The number of Python instructions in kernels and what they contain, whether they call kernels by name)."""
    seen: set[int] = set()
    total, by_name = 0, False
    waiting = [kernel.dispatcher().py_func for kernel in kernels]
    while waiting:
        function = waiting.pop()
        if id(function) not in seen:
            seen.add(id(function))
            total += len(function.__code__.co_code)
            called = [function.__globals__.get(name) for name in function.__code__.co_names]
            by_name |= any(isinstance(found, Separate) for found in called)
            waiting += [found.py_func for found in called if hasattr(found, "py_func")]
    return total, by_name


class _Progress:
    """Reports which kernels are being compiled, how many are done, and how long the rest will take."""

    def __init__(self, total: int, count: int, report: Callable[[str], None]) -> None:
        self.total, self.count, self.report = total, count, report
        self.size = self.finished = 0
        self.began = time.monotonic()
        self.lock = threading.Lock()

    def begin(self, kernel: Listed) -> None:
        """A process begins to compile a kernel."""
        with self.lock:
            self.report(f"compiling {kernel.name} ({self.finished} of {self.count} done{self._left()})")

    def end(self, kernel: Listed, size: int) -> None:
        """A process has compiled a kernel."""
        with self.lock:
            self.finished += 1
            self.size += size

    def _left(self) -> str:
        if self.finished * 5 < self.count:
            return ""
        taken = time.monotonic() - self.began
        return f", about {taken * max(0, self.total - self.size) / self.size:.0f} s left"


def _compile_what_comes() -> None:
    # The compiler makes millions of small objects, and looking for cycles among them takes a sixth of its time.
    gc.disable()
    for number, line in enumerate(sys.stdin, 1):
        module, function, kinds = line.rstrip("\n").split(" ", 2)
        Listed(module, function, kinds).load()
        print("done", flush=True)
        if number % COLLECTED == 0:
            gc.collect()
            gc.freeze()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        _compile_what_comes()
