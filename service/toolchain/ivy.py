"""Ivy, which PySpark contains: fetches Java archives from the public repository or a mirror of it.

Ivy knows the repository by itself, so no address is written down.
"""

import errno
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from vernier.service.toolchain.java import find_java
from vernier.storage.errors import CallerError


class JarsError(CallerError):
    """The archives could not be fetched or are missing. `problem` is one line that includes the remedy."""

    message = "{problem}"
    problem: str


class BrokenCache(JarsError):
    """Ivy failed in a way that an empty cache may cure."""


def retrieve(
    home: Path,
    folder: Path,
    wanted: Sequence[tuple[str, str, str, bool]],
    *,
    poms: bool,
    pattern: str = "[artifact]-[revision].[ext]",
    each: Callable[[str], None] = lambda name: None,
) -> None:
    """Let Ivy put the wanted archives into the folder; calls `each` with the name of each one on arrival.

    home: its cache is below it. wanted: (group, artifact, version, with its runtime dependencies?). poms: whether to
    read the archives' descriptions. Raises JarsError, and OSError if the disk is full.
    """
    root = find_spec("pyspark")
    archives = list(Path(root.origin).parent.glob("jars/ivy-*.jar")) if root and root.origin else []
    if not archives:
        raise JarsError(problem="this pyspark has no ivy jar; reinstall it: remove .venv and run `make setup`")
    settings = Path(folder.parent) / "settings.xml"
    module = Path(folder.parent) / "ivy.xml"
    settings.write_text(
        f"""<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="t" connectionTimeout="20000" readTimeout="60000"/>
  </timeout-constraints>
  <caches defaultCacheDir={quoteattr(str(home / ".ivy"))}/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="{str(poms).lower()}" timeoutConstraint="t"/>
  </resolvers>
</ivysettings>
""",
        encoding="utf-8",
    )
    lines = "\n".join(
        f"    <dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        + (
            ' conf="default->master,runtime"/>'
            if deep
            else f' transitive="false" conf="default->{"master" if poms else "*"}"/>'
        )
        for group, artifact, version, deep in wanted
    )
    module.write_text(
        f"""<ivy-module version="2.0">
  <info organisation="vernier" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{lines}
  </dependencies>
</ivy-module>
""",
        encoding="utf-8",
    )
    own = os.environ.get("VERNIER_IVY_SETTINGS")  # a mirror inside a company's network
    command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", *_proxies(), "-jar", str(archives[0])]
    command += ["-verbose", "-settings", own or str(settings), "-cache", str(home / ".ivy"), "-ivy", str(module)]
    command += ["-retrieve", f"{folder}/{pattern}", "-types", "jar", "bundle"]
    said: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        try:
            assert ivy.stdout is not None
            for line in ivy.stdout:
                said.append(line)
                if found := re.search(r"\[SUCCESSFUL \] \S*#([^;]+);(\S+?)!\S*\.jar", line):
                    each(f"{found[1]}-{found[2]}.jar")
        except BaseException:
            ivy.kill()
            raise
    if ivy.returncode != 0:
        raise _explain("".join(said), ivy.returncode)


def _explain(said: str, status: int) -> JarsError | OSError:
    """Turn Ivy's output into one line, or into the error of a full disk."""
    if "No space left on device" in said or "Disk quota exceeded" in said:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    unreachable = re.search(
        r"java\.net\.\w+(Exception|Error): [^\n)]*|"
        r"(UnknownHost|Connect|NoRouteToHost|SocketTimeout|HttpHostConnect|SSL\w*)(Exception)?:? ?[^\n]*|"
        r"Server access error[^\n]*|host \S+ not found[^\n]*|Connection (refused|reset|timed out)[^\n]*",
        said,
        re.IGNORECASE,
    )
    missing = re.findall(r":: (\S+#\S+;\S+): not found", said)
    if unreachable:
        what = re.sub(r"\bhttps?://\S+", "the repository", unreachable.group(0)).strip()
        return JarsError(
            problem=f"no network for the jars ({what}); check the connection or HTTPS_PROXY,"
            " or name a mirror with VERNIER_IVY_SETTINGS=<ivysettings.xml>"
        )
    if missing:
        return BrokenCache(problem=f"the repository does not serve {', '.join(dict.fromkeys(missing))}")
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "no output")
    return BrokenCache(problem=f"ivy ended with status {status}: {last[:200]}")


def _proxies() -> list[str]:
    """Java ignores HTTPS_PROXY, so pass the proxies as system properties."""
    flags = []
    for scheme in ("https", "http"):
        address = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY")
        if address:
            parts = urlsplit(address if "//" in address else "//" + address)
            if parts.hostname:
                flags += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 3128}"]
    return flags
