"""Parent watch: runs a module in a process that does not outlive the one that started it.

    python -m vernier.service.supervision.parent_watch MODULE ARGS…

Its standard input is a pipe from the parent, which the kernel closes however the parent dies, also by kill -9. Then the
module is asked to stop as by SIGTERM, and ended if it does not.
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
"""How long the module may take to stop. A driver ends its running epoch (`epoch.stop_ms`); what takes longer waits for
a broker that has gone with the parent. Nothing is lost by ending it."""
UMASK = 0o077
"""What the processes of a service write (state, logs, the broker's data) is for their user alone."""


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)


def command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs a module on a leash; start it with a pipe as standard input."""
    return [sys.executable, "-m", "vernier.service.supervision.parent_watch", module, *arguments]


def main() -> None:
    """Run the module that the command line names, as `python -m` would."""
    threading.Thread(target=_watch, name="leash", daemon=True).start()
    os.umask(UMASK)
    module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
