"""Hostile values in questions: a problem of status 400, from a process that goes on answering."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.attack.hostile import Hostile
from tests.attack.test_bodies import DEEP, VALUES
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served


@pytest.fixture
def rows(tmp_path: Path, serve: Callable[..., Served]) -> Iterator[Served]:
    """A sidecar with one view of the hostile columns."""
    builder = StateBuilder(tmp_path / "state", {"all": (Hostile.row_type, ["m"])})
    builder.commit(10, {"all": [((1, None, "a", None, None, None, None, None), 5, 1)]})
    yield serve(builder.path)
    builder.close()


def test_questions_over_http(rows: Served) -> None:
    asked = [
        ("where", f"{column}:eq:{text}") for column, texts in VALUES.items() for text in texts if "\ud800" not in text
    ]
    asked += [("where", f"{column}:in:{texts[0]},{texts[1]}") for column, texts in VALUES.items() if len(texts) > 3]
    asked += [("as_of", text) for text in ("+5", " 5", "1_0", "2026-W01-1", "9" * 200, "[" * 5_000)]
    deep = "W1sBW1tb" * 2_000
    asked += [("cursor", deep), ("where", "tags:eq:" + DEEP)]
    with httpx.Client(base_url=rows.url, trust_env=False) as http:
        for name, value in asked:
            answer = http.get("/v1/views/all", params={name: value})
            assert answer.status_code == 400, (name, value[:100], answer.text[:300])
            assert answer.headers["content-type"] == "application/problem+json"
        for text in ("1e-999999999", "+5", "1_0", "0.001"):
            assert http.get(f"/v1/views/all/rows/{text}").status_code == 400
        assert http.get("/v1/views/all/rows/0e-999999999").json()["rows"] == []
        for body in (f'{{"keys":{DEEP}}}', '{"keys":' * 2_000, f'{{"keys":[{"9" * 5_000}]}}', f'{{"keys":[[{DEEP}]]}}'):
            answer = http.post("/v1/views/all/rows", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400, (body[:50], answer.text)
        for body in (
            '{"keys":["1e-999999999"]}',
            '{"keys":[1e-400]}',
            '{"keys":[{"m":"+5"}]}',
            '{"keys":[1e999]}',
            '{"keys":["\\ud800"]}',
        ):
            answer = http.post("/v1/views/all/rows", content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (200, 400), (body[:50], answer.text)
        assert http.get("/v1/tokens/" + deep).status_code == 400
        assert http.get("/healthz").status_code == 200
