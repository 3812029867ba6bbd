"""PageRank in integers against the same twenty rounds in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from tests.programs.snapshots import Held, Row, check, graph


@pytest.mark.parametrize("seed", range(3))
def test_pagerank(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        after: dict[int, list[int]] = {}
        for src, dst in held["edges"]:
            after.setdefault(src, []).append(dst)
            after.setdefault(dst, [])
        ranks = dict.fromkeys(after, 6_000_000)
        for _ in range(20):
            given = dict.fromkeys(after, 1_000_000)
            for node, targets in after.items():
                for target in targets:
                    given[target] += ranks[node] * 5 // (len(targets) * 6)
            ranks = given
        return {"ranks": list(ranks.items())}

    assert check("pagerank", {"edges": graph(seed, 7, 40)}, answer)
