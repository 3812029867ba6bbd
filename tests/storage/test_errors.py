"""Errors: families, codes, messages from fields, and the way between processes."""

import pickle

import pytest

from vernier.storage import errors
from vernier.storage.errors import (
    CallerError,
    CreateUnknown,
    EpochConflict,
    InvariantError,
    OwnershipLost,
    StateInUse,
    StorageError,
    SyncFailed,
    VernierError,
)


class WidthMismatch(InvariantError):
    """An error as other modules make them."""

    message = "rows of {found} words do not fit a collection of {expected} words"
    found: int
    expected: int


class Located(CallerError):
    """An error with a constructor of its own."""

    def __init__(self, file: str, line: int) -> None:
        self.file, self.line = file, line
        Exception.__init__(self, f"{file}:{line}: unknown column")


def test_an_error_says_its_fields_and_keeps_them() -> None:
    error = WidthMismatch(found=2, expected=3)
    assert str(error) == "rows of 2 words do not fit a collection of 3 words"
    assert error.code == "width_mismatch"
    assert error.fields == {"found": 2, "expected": 3}
    with pytest.raises(TypeError, match="expected"):
        WidthMismatch(found=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "error",
    [WidthMismatch(found=2, expected=3), Located("p.py", 7), StateInUse(path="/d", pid=7)],
    ids=lambda error: error.code,
)
def test_errors_pickle_with_fields_and_notes(error: VernierError) -> None:
    error.add_note("worker 1")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.fields, copy.__notes__) == (str(error), error.fields, ["worker 1"])


def test_every_error_belongs_to_one_family_and_has_its_own_code() -> None:
    families = (CallerError, StorageError, InvariantError)
    leaves = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, VernierError) and kind not in (VernierError, *families)
    ]
    assert len(leaves) > 10
    assert all(sum(issubclass(leaf, family) for family in families) == 1 for leaf in leaves)
    assert len({leaf.code for leaf in leaves}) == len(leaves)
    assert all(leaf.message[:1].islower() or leaf.message[:1] == "{" for leaf in leaves)
    unsure = {leaf for leaf in leaves if getattr(leaf, "may_have_happened", False)}
    assert unsure == {SyncFailed, CreateUnknown, OwnershipLost, EpochConflict}


def test_the_holder_of_a_directory_is_named_if_known() -> None:
    assert str(StateInUse(path="/d", pid=7)).startswith("state directory /d is in use by pid 7;")
    assert str(StateInUse(path="/d", pid=0)).startswith("state directory /d is in use by another process;")
