"""Runs a module in a process that does not outlive its parent.

    python -m vernier.service.supervision.parent_watch MODULE ARGS…

The standard input is a pipe from the parent. The kernel closes it however the parent dies, even by kill -9. The watch
then sends SIGTERM to the module, and kills it if it does not stop.

The watch also exempts from Python's full garbage collections what the module has loaded: a collection looks at every
object, and a driver, which has 200,000 of them, would stop for 0.1 s each few hundred epochs. What a process loads when
it is first used, a while after its start, is exempt some time later: the intervals double. Cycles that are garbage at
one of these moments are never freed, which is little, and happens few times.
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence

PATIENCE_SECONDS = 7
"""How long the module may take to stop. A driver finishes its running epoch (`epoch.stop_ms`). Anything that takes
longer waits for a broker that died with the parent, so killing it loses nothing.
"""
FREEZE_SECONDS = 10.0
"""When objects are exempt from garbage collections for the first time; there are no collections before."""
UMASK = 0o077
"""Only the user of the service may read what its processes write (state, logs, the broker's data)."""


def _watch() -> None:
    freezes = FREEZE_SECONDS
    while True:
        if not select.select([0], [], [], freezes)[0]:
            gc.freeze()
            gc.enable()
            freezes *= 2
        elif not os.read(0, 4096):
            break
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)


def command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs a module under the parent watch. Start it with a pipe as standard input."""
    return [sys.executable, "-m", "vernier.service.supervision.parent_watch", module, *arguments]


def main() -> None:
    """Run the module that the command line names, as `python -m` would."""
    gc.disable()
    threading.Thread(target=_watch, name="parent-watch", daemon=True).start()
    os.umask(UMASK)
    module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
