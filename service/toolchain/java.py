"""Find a Java runtime that Spark and Kafka can run on.

Set-up runs this with the system's Python before anything is installed, so it needs the standard library only.

    python -m vernier.service.toolchain.java            print the runtime's home
"""

import glob
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from vernier.storage.errors import CallerError

MINIMUM = 17
HOMES = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
)


class JavaMissing(CallerError):
    """No Java runtime of version MINIMUM or newer was found; `found` names the older ones."""

    found: tuple[str, ...] = ()

    def describe(self) -> str:
        seen = f" (there is {', '.join(self.found)})" if self.found else ""
        return (
            f"no java {MINIMUM} or newer{seen}: install one (debian: apt-get install"
            f" openjdk-{MINIMUM}-jre-headless) or let JAVA_HOME point to one"
        )


def java_version(java: str | Path) -> int | None:
    """Return the feature release (8, 17, 21, …) of a `java` program, or None if it does not run.

    Starts it once, about 50 ms.
    """
    try:
        ran = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # an earlier line may say `Picked up JAVA_TOOL_OPTIONS: ...`
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(found.group(1)) if found and ran.returncode == 0 else None


def _candidates() -> Iterator[str]:
    if home := os.environ.get("JAVA_HOME"):
        yield os.path.join(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield on_path
    for pattern in HOMES:
        for home in sorted(glob.glob(os.path.expanduser(pattern))):
            yield os.path.join(home, "bin", "java")


@cache
def find_java() -> Path:
    """Return the first `java` of version MINIMUM or newer: JAVA_HOME, PATH, the usual folders.

    Starts each candidate once, then caches the result. Raises JavaMissing.
    """
    tried: list[str] = []
    for java in dict.fromkeys(_candidates()):
        version = java_version(java)
        if version is not None and version >= MINIMUM:
            return Path(java)
        if version is not None:
            tried.append(f"java {version} at {java}")
    raise JavaMissing(found=tuple(tried))


def java_home() -> Path:
    """Return the JAVA_HOME that belongs to find_java(); PySpark needs it in the environment.

    Raises JavaMissing.
    """
    return find_java().resolve().parent.parent


def main() -> int:
    """Print the runtime's home, or one line that says what is missing; returns the exit status."""
    try:
        print(java_home())
    except JavaMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
