"""Kernels are compiled for a processor that can run them."""

from pathlib import Path

import pytest

from vernier.storage.kernels.processor import LEVELS, flags, settle

V3 = LEVELS["x86-64-v3"]


def test_a_level_that_the_processor_has_is_kept_without_features_of_its_own() -> None:
    environment = {"NUMBA_CPU_NAME": "x86-64-v3"}
    assert settle(environment, V3 | {"avx512f"}) is None
    assert environment == {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}


@pytest.mark.parametrize("lacking", ["avx2", "bmi2", "fma"])
def test_a_level_that_the_processor_lacks_is_not_used(lacking: str) -> None:
    environment = {"NUMBA_CPU_NAME": "x86-64-v3"}
    why = settle(environment, V3 - {lacking})
    assert why == f"this processor lacks {lacking}, which kernels for x86-64-v3 use: it gets kernels of its own"
    assert environment == {}


def test_a_name_that_nobody_can_check_is_not_used() -> None:
    environment = {"NUMBA_CPU_NAME": "sapphirerapids"}
    why = settle(environment, V3)
    assert why is not None
    assert why.startswith("NUMBA_CPU_NAME=sapphirerapids is none of generic, x86-64, ")
    assert environment == {}


def test_native_and_nothing_are_this_processor() -> None:
    for environment in ({"NUMBA_CPU_NAME": "native"}, {}):
        assert settle(environment, V3) is None
        assert environment == {}


def test_features_that_are_set_by_hand_are_left_alone() -> None:
    environment = {"NUMBA_CPU_NAME": "skylake", "NUMBA_CPU_FEATURES": "+avx2"}
    assert settle(environment, frozenset()) is None
    assert environment == {"NUMBA_CPU_NAME": "skylake", "NUMBA_CPU_FEATURES": "+avx2"}


def test_flags_are_read_as_the_system_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert flags(tmp_path / "cpuinfo") == {"fpu", "avx", "avx2"}
    assert flags(tmp_path / "none") == frozenset()
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert flags(tmp_path / "cpuinfo") == frozenset()
