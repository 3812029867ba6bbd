"""Makes what an installed package still lacks on a machine at its first use: the jars and the compiled kernels.

A checkout has both from `make setup`. Both are stored in the user's cache folder and are checked at each start
(milliseconds). An interrupted run continues where it stopped.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from vernier.service.toolchain import jars, setup
from vernier.service.toolchain.home import cache_folder, checkout
from vernier.storage.errors import CallerError


class KernelsFailed(CallerError):
    """The kernels do not compile on this machine."""

    message = "the kernels do not compile: {problem}"
    problem: str


def have_kernels(say: Callable[[str], None]) -> None:
    """Compile the kernels if necessary, which takes a minute or two. say: receives progress lines. Raises
    KernelsFailed.
    """
    if checkout() is not None or setup.compiled():
        return
    say(f"kernels: compiling into {cache_folder()}, once; a minute or two")
    command = [sys.executable, "-m", "vernier.service.toolchain.setup", "kernels"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        last = ""
        assert process.stdout is not None
        for line in process.stdout:
            last = line.strip() or last
            say(last)
    if process.returncode:
        raise KernelsFailed(problem=last)


def have_jars(say: Callable[[str], None]) -> None:
    """Fetch Kafka's jars if they are missing. say: receives progress lines. Raises JarsError, JavaMissing."""
    if checkout() is not None or jars.present():
        return
    say(f"jars: fetching 55 MB into {jars.jars_dir()}, once")
    jars.fetch(say)
