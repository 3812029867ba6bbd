"""Fetch the packages that the console and its tests carry along: `python tools/vendor.py`, with npm on the path.

The exact versions are below. Each package's files are copied as they are, with its licence; VENDORED.txt beside them
says what they are. `npm pack` only fetches an archive: nothing of npm runs later, and what is copied is in the
repository.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Package:
    """One package to fetch. files: path in the package -> name of the copy; the licence among them."""

    name: str
    version: str
    licence: str
    folder: str
    purpose: str
    files: dict[str, str]


PACKAGES = (
    Package(
        "@dagrejs/dagre",
        "3.1.3",
        "MIT",
        "service/sidecar/static/vendor/dagre",
        "places of the operators in the dataflow graph",
        {
            "dist/dagre.esm.js": "dagre.esm.js",
            "dist/dagre.esm.js.LEGAL.txt": "dagre.esm.js.LEGAL.txt",
            "LICENSE": "LICENSE.txt",
        },
    ),
    Package(
        "axe-core",
        "4.14.1",
        "MPL-2.0",
        "tests/sidecar/vendor/axe-core",
        "accessibility checks of the console, in tests only",
        {"axe.min.js": "axe.min.js", "LICENSE": "LICENSE.txt", "LICENSE-3RD-PARTY.txt": "LICENSE-3RD-PARTY.txt"},
    ),
)


def fetch(package: Package) -> None:
    """Copy one package's files into its folder, replacing the old ones."""
    target = ROOT / package.folder
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package.name}@{package.version}"
        packed = subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", wanted],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        with tarfile.open(Path(folder) / packed.stdout.split()[-1]) as archive:
            archive.extractall(folder, filter="data")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for source, name in package.files.items():
            shutil.copyfile(Path(folder) / "package" / source, target / name)


def describe(packages: list[Package]) -> str:
    """The text of VENDORED.txt for the packages of one folder."""
    lines = [
        "What is carried along here, unchanged, from npm packages. `python tools/vendor.py` writes all of it anew.",
        "",
    ]
    for package in packages:
        folder = Path(package.folder).name
        files = ", ".join(f"{folder}/{name}" for name in package.files.values())
        lines += [f"{package.name} {package.version}, {package.licence}: {package.purpose}", f"  {files}", ""]
    return "\n".join(lines)


def main() -> None:
    """Fetch all packages, and describe them in VENDORED.txt."""
    for package in PACKAGES:
        fetch(package)
        print(f"{package.folder}: {package.name} {package.version}")
    for parent in {Path(package.folder).parent for package in PACKAGES}:
        here = [package for package in PACKAGES if Path(package.folder).parent == parent]
        (ROOT / parent / "VENDORED.txt").write_text(describe(here))


if __name__ == "__main__":
    main()
