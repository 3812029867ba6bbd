"""Runs a module in a process that does not outlive its parent.

    python -m vernier.service.supervision.parent_watch MODULE ARGS…

The standard input is a pipe from the parent. The kernel closes it however the parent dies, even by kill -9. The watch
then sends SIGTERM to the module, and kills it if it does not stop.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Sequence

PATIENCE_SECONDS = 7
"""How long the module may take to stop. A driver finishes its running epoch (`epoch.stop_ms`). Anything that takes
longer waits for a broker that died with the parent, so killing it loses nothing.
"""
UMASK = 0o077
"""Only the user of the service may read what its processes write (state, logs, the broker's data)."""


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)


def command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs a module under the parent watch. Start it with a pipe as standard input."""
    return [sys.executable, "-m", "vernier.service.supervision.parent_watch", module, *arguments]


def main() -> None:
    """Run the module that the command line names, as `python -m` would."""
    threading.Thread(target=_watch, name="parent-watch", daemon=True).start()
    os.umask(UMASK)
    module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
