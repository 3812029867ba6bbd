"""The limits that the page names are those of the code."""

import re
from pathlib import Path
from typing import get_args

import pyspark
import pytest

import vernier as vn
from vernier.operators.language.collection.fixpoint import DEFAULT_ROUNDS
from vernier.service.codec.instants import format_instant
from vernier.service.config.sections import Http
from vernier.service.config.settings import Settings
from vernier.service.config.streams import Source
from vernier.storage.updates import CLOSED, MIN_TIME

MB = 1 << 20


@pytest.fixture
def rows(root: Path) -> dict[str, str]:
    """The rows of the table: what, and its limit."""
    page = (root / "docs/limits.md").read_text("utf-8")
    return dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE))


def test_numbers_of_the_table(rows: dict[str, str], clean_environment: pytest.MonkeyPatch) -> None:
    settings, http, source = Settings(), Http(), Source()
    days = f"{format_instant(MIN_TIME)[:10]} to {format_instant(CLOSED - 1)[:10]}"
    wanted = {
        "data times": f"{days}, in nanoseconds",
        "a Kafka message": f"{settings.max_message_bytes // MB} MiB (`max_message_bytes`)",
        "rounds of a loop": f"{DEFAULT_ROUNDS:,} (`max_rounds`)",
        "rows of one HTTP page": f"{http.max_rows:,}, {http.max_response_bytes // MB} MiB",
        "change streams of a sidecar": f"{http.max_subscribers:,}",
    }
    assert {name: rows[name] for name in wanted} == wanted
    assert (settings.diff_range, rows["a diff in a message"]) == (2**31, "2³¹ (`diff_range`)")
    assert (source.max_ahead, vn.App("a").retain) == ("1h", "10m")


def test_formats_and_releases(root: Path) -> None:
    page = (root / "docs/limits.md").read_text("utf-8")
    assert len(get_args(Source.model_fields["format"].annotation)) == 8
    assert "[eight formats]" in page
    assert f"exactly PySpark {pyspark.__version__}" in page


def test_measured_numbers_are_those_of_the_page_on_performance(root: Path) -> None:
    section = (root / "docs/limits.md").read_text("utf-8").partition("## Speed\n")[2].partition("\n## ")[0]
    measured = set(re.findall(r"\d[\d,.]*", (root / "docs/performance.md").read_text("utf-8")))
    words = re.sub(r"99th percentile|one update|one machine|two \w+", "", section)
    numbers = {number.rstrip(".,") for number in re.findall(r"\d[\d,.]*", words)}
    assert len(numbers) > 8
    assert numbers - {number.rstrip(".,") for number in measured} == set()
