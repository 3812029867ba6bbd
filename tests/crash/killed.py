"""Run the workload once for every storage call, each time in a fork that kills itself there with SIGKILL.

    python -m tests.crash.killed FOLDER CALLS

Forks are cheap where a fresh interpreter is not. Prints a line for each: call, signal, and the newest epoch whose
commit had returned.
"""

import os
import sys

from tests.crash.faults import Fault, FaultyDisk
from tests.crash.workload import EPOCHS, Service
from vernier.storage.blob.disk import OsDisk
from vernier.storage.blob.local_blob import LocalBlob


def main(folder: str, calls: int) -> None:
    """Leave the state directory of call n in FOLDER/n."""
    Service(LocalBlob(f"{folder}/0")).run()  # loads the kernels, which the forks then have
    for call in range(1, calls + 1):
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            service = Service(LocalBlob(f"{folder}/{call}", FaultyDisk(OsDisk(), Fault.KILL, call)))
            while service.epoch < EPOCHS:
                service.step()
                os.write(writes, b".")
            os._exit(0)
        os.close(writes)
        acknowledged = 0
        while data := os.read(reads, 100):
            acknowledged += len(data)
        os.close(reads)
        _, status = os.waitpid(child, 0)
        print(call, os.WTERMSIG(status), acknowledged, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
