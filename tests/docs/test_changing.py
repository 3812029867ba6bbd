"""The page on changing a program: `vernier plan` and `vernier programs` for real, on a state that the page's program
made; `vernier up` is stood in for, because the service itself runs in tests/service/test_driver.py."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_plan import make_state
from tests.docs.session import Session, blocks


def test_a_reader_sees_what_the_page_shows(tmp_path: Path) -> None:
    session = Session(tmp_path)

    def up(words: list[str]) -> str:
        folder = tmp_path / Path(words[-1]).parent if words[-2] == "--state" else tmp_path
        if not (folder / "state").exists():
            folder.mkdir(exist_ok=True)
            text = (tmp_path / words[2]).read_text("utf-8")
            make_state(folder, text, [(n % 7, n % 3, n) for n in range(50)])
        return "ready: \n"

    session.instead["vernier up"] = up
    assert session.follow("changing.md") == len(blocks("changing.md")) > 0
