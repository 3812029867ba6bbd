"""docs/architecture.md draws the rooms as the imports have them, names each of them, and its paths lead somewhere."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.scripts import script


@pytest.fixture(scope="module")
def rooms(root: Path) -> ModuleType:
    """tools/rooms.py."""
    return script(root, "rooms")


def test_the_drawing_is_that_of_the_imports(rooms: ModuleType, root: Path, update_golden: bool) -> None:
    if update_golden:
        rooms.write()
    page = (root / "docs" / "architecture.md").read_text("utf-8")
    assert rooms.drawing() in page, "the rooms have changed: python tools/rooms.py write"


def test_a_circle_is_named(rooms: ModuleType) -> None:
    with pytest.raises(rooms.Circle, match="a -> b -> c -> a"):
        rooms.floors({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_every_room_says_what_it_is(rooms: ModuleType, root: Path) -> None:
    page = (root / "docs" / "architecture.md").read_text("utf-8")
    for top in rooms.TOPS:
        for room in rooms.arrows(top):
            folder = root / top / room.replace(".", "/")
            if folder.is_dir():
                assert (folder / "__init__.py").read_text("utf-8").startswith('"""'), folder
                assert f"`{room}`" in page, room


def test_files_that_the_page_names_exist(root: Path) -> None:
    page = (root / "docs" / "architecture.md").read_text("utf-8")
    for name in re.findall(r"`((?:storage|operators|service)/[\w/.]+)`", page):
        assert (root / name).exists(), name
