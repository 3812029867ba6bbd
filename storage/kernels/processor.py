"""Selects the processor that kernels are compiled for: this one, or the x86-64 level that NUMBA_CPU_NAME names.

numba's cache is keyed by the processor's name and features, so without NUMBA_CPU_NAME the kernels of another processor
are never loaded. With a level (say x86-64-v3, in the container image) all processors share kernels, and numba checks
nothing: a processor that lacks the level's instructions would crash at the first of them. Here such a processor gets
its own kernels, compiled at the first start.

numba adds the building machine's own features to a level. This module suppresses that, because the kernels would
otherwise fit only that machine.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import MutableMapping
from pathlib import Path

_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
LEVELS = {"generic": frozenset[str](), "x86-64": frozenset[str](), "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
"""The features that each level requires, as /proc/cpuinfo spells them."""


def flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """This processor's features; empty if the system does not report them."""
    if platform.machine() != "x86_64":
        return frozenset()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), []))


def settle(environment: MutableMapping[str, str], has: frozenset[str]) -> str | None:
    """Keep NUMBA_CPU_NAME if this processor supports what it names, else remove it; returns the reason for removing it.

    A user who also sets NUMBA_CPU_FEATURES has chosen the instructions by hand; then nothing is changed.
    """
    name = environment.get("NUMBA_CPU_NAME")
    if name is None or "NUMBA_CPU_FEATURES" in environment:
        return None
    if name not in LEVELS:
        del environment["NUMBA_CPU_NAME"]
        known = ", ".join(LEVELS)
        return None if name == "native" else f"NUMBA_CPU_NAME={name} is none of {known}: kernels are for this processor"
    lacks = sorted(LEVELS[name] - has)
    if lacks:
        del environment["NUMBA_CPU_NAME"]
        return f"this processor lacks {', '.join(lacks)}, which kernels for {name} use: it gets kernels of its own"
    environment["NUMBA_CPU_FEATURES"] = ""
    return None


_why = settle(os.environ, flags())
if _why is not None:
    logging.getLogger(__name__).warning("%s", _why)
