"""Names as DuckDB compares them. Apart from question.py, because the sidecar has no DuckDB."""

from __future__ import annotations


def folded(name: str) -> str:
    """Equal for equal names: DuckDB ignores case in ASCII only, so the Kelvin sign is no `k` and `Ä` is no `ä`."""
    return name.encode().lower().decode()
