"""Write the requirements among the packages of this environment to packages.jsonl, from their metadata.

python examples/dependency_impact/collect.py

The graph begins with this project and all of its extras, and follows `Requires-Dist` as an installer does: markers are
evaluated for this interpreter, and an extra counts where some package requests it.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "vernier"
TIME = "2026-11-22T00:00:00Z"
FILE = Path(__file__).parent / "packages.jsonl"


def requirements(package: str, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """What an installed package requires with these extras: the packages, and the extras that it requests of them."""
    found = []
    for text in distribution(package).requires or ():
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.append((str(canonicalize_name(one.name)), frozenset(one.extras)))
    return found


def edges() -> set[tuple[str, str]]:
    """All requirements between packages that are installed, as (package, what it requires)."""
    found: set[tuple[str, str]] = set()
    seen: dict[str, frozenset[str]] = {}
    waiting = [(ROOT, frozenset(distribution(ROOT).metadata.get_all("Provides-Extra") or ()))]
    while waiting:
        package, extras = waiting.pop()
        if package in seen and extras <= seen[package]:
            continue
        seen[package] = extras | seen.get(package, frozenset())
        for required, wanted in requirements(package, seen[package]):
            try:
                distribution(required)
            except PackageNotFoundError:
                continue  # optional, and not installed here
            found.add((package, required))
            waiting.append((required, wanted))
    return found


if __name__ == "__main__":
    lines = [
        f'{{"input":"requirements","data":["{package}","{required}"],"time":"{TIME}"}}\n'
        for package, required in sorted(edges())
    ]
    FILE.write_text("".join(lines), encoding="utf-8")
    print(f"{FILE.name}: {len(lines)} requirements")
