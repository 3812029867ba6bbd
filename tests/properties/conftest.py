"""The properties' updates are few: slices of a length that suits them change it, too, and workers add up few rows."""

from collections.abc import Iterator

import pytest

from vernier.operators.physical import combine
from vernier.operators.runtime import slice_sizing


@pytest.fixture(autouse=True, scope="package")
def short_paces() -> Iterator[None]:
    """Slices that may have what suits have 2 updates to 16, according to what they seal."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"LEAST": 2, "FIRST": 4, "MOST": 16, "LEAST_ROWS": 8, "MOST_ROWS": 64}.items():
            patch.setattr(slice_sizing, name, value)
        yield


@pytest.fixture(autouse=True, scope="package")
def few_rows_are_added_up() -> Iterator[None]:
    """Workers add up what they send from 2 rows on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combine, "LEAST", 2)
        yield
