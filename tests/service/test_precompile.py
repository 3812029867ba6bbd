"""Set-up compiles kernels in several processes, and goes on where it was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vernier.service.cluster import precompile
from vernier.storage.kernels import listing
from vernier.storage.kernels.listing import Listed

SCRIPT = """
import sys
from vernier.service.cluster import precompile as warm
from vernier.storage.kernels import listing

few = [kernel for kernel in listing.kernels() if kernel.name in sys.argv[1].split(",")]
assert len(few) == len(sys.argv[1].split(","))
lacking = [kernel for kernel in few if not kernel.is_compiled()]
print("lacking", *(kernel.name for kernel in lacking), flush=True)
warm.compile_all(lacking, lambda what: print(what, flush=True), workers=1)
"""
FEW = (
    "vernier.storage.kernels.step_index.forget_blocks",
    "vernier.storage.kernels.tries.describe_rows",
    "vernier.storage.kernels.step_index.lay_out",
)


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, ",".join(FEW)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_what_was_compiled_before_an_interruption_stays(tmp_path: Path) -> None:
    killed = start(tmp_path)
    assert killed.stdout is not None
    assert killed.stdout.readline().split() == ["lacking", *sorted(FEW)]
    first = killed.stdout.readline()
    assert first.startswith("compiling ")
    assert first.endswith("(0 of 3 done)\n")
    assert "(1 of 3 done" in killed.stdout.readline()
    # With what it has started, as when a machine is switched off.
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    again = start(tmp_path)
    out, _ = again.communicate()
    lacking = out.splitlines()[0].split()[1:]
    assert len(lacking) < len(FEW)
    assert again.returncode == 0
    done = start(tmp_path)
    assert done.communicate()[0] == "lacking\n"


def test_a_compiling_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    parent = start(tmp_path)
    assert parent.stdout is not None
    parent.stdout.readline()
    parent.stdout.readline()
    os.kill(parent.pid, signal.SIGKILL)
    # They write errors where it did: that ends when they have, and not before.
    parent.communicate()


def test_a_kernel_that_does_not_compile_is_an_error_that_names_it(capfd: pytest.CaptureFixture[str]) -> None:
    kernel = next(listing.kernels())
    broken = Listed(kernel.module, kernel.function, "unicode_type")
    with pytest.raises(RuntimeError, match=rf"^{kernel.name} does not compile"):
        precompile.compile_all([broken])
    assert "Error" in capfd.readouterr().err
