"""The pages that are written from the code are those that it writes now; every setting says what it means."""

from pathlib import Path

import pytest

import vernier as vn
from tools.reference import PAGES
from vernier.operators.language.collection.collection import Collection
from vernier.service.cli.main import run
from vernier.service.config.reference import settings_reference

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_code_says(page: str, update_golden: bool) -> None:
    if update_golden:
        (DOCS / page).write_text(PAGES[page](), "utf-8")
    assert (DOCS / page).read_text("utf-8") == PAGES[page](), "run `make golden`"


def test_everything_public_is_in_it_with_its_arguments() -> None:
    text = PAGES["reference.md"]()
    for name in Collection._methods():
        assert f"\n.{name}(" in text, name
    for name in ("count", "generate_series", "fixpoint", "udf", "connect"):
        assert f"\nvn.{name}(" in text, name
    assert set(vn.__all__) >= {"App", "Variable"}


def test_every_setting_says_what_it_means() -> None:
    silent = [one.key for one in settings_reference() if not one.description]
    assert silent == []


def test_the_command_explains_one_setting_a_section_and_a_slip(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "sources.edges.idle_timeout_ms"]) == 0
    said = capsys.readouterr().out
    assert "a partition no longer holds the frontier back" in said
    assert "VERNIER_SOURCES__NAME__IDLE_TIMEOUT_MS" in said
    assert run(["config", "kafka.bootstrap", "--set", "kafka.bootstrap=there:9092"]) == 0
    assert [word for line in capsys.readouterr().out.splitlines() if "now" in line for word in line.split()] == [
        "now",
        "there:9092",
        "#",
        "--set",
        "kafka.bootstrap",
    ]
    assert run(["config", "kafka"]) == 0
    assert "kafka.embedded" in capsys.readouterr().out
    assert run(["config"]) == 0
    assert "sources.NAME.idle_timeout_ms" in capsys.readouterr().out
    assert run(["config", "kafka.boostrap"]) == 1
    assert "did you mean kafka.bootstrap?" in capsys.readouterr().err
