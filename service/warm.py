"""Compile all kernels ahead of their first use: the engine's and those that read messages."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from operators.language.schema import RowType
from operators.language.texts import String
from operators.language.types import Int64
from operators.warm import warm as warm_engine
from service.formats import FORMATS
from service.ring import warm_rings
from service.viewstate import changes_between, sum_until
from storage.layer import Layer
from storage.updates import Updates

_MESSAGES = {
    "vernier": b'{"v":1,"t":"1","input":"a","u":[[[1,"s"],"2",1],[{"x":1,"s":"s"},3,-1]]}',
    "json": b'{"input":"a","data":[1,"s"],"time":17,"diff":1}',
    "insert_delete": b'{"input":"a","insert":[1,"s"],"time":17}',
}


def warm(report: Callable[[str], None] = lambda text: None) -> None:
    """Compile or load every kernel; `report` is told what comes next. See operators.warm for what it takes."""
    warm_engine(report)
    report("views")
    layer = Layer.build(Updates.of([[1, 1], [2, 1]], 1, 1), 1, 1, 2, 1)
    sum_until([layer], 2, 1)
    changes_between([layer], 2, 1, 2)
    report("rings")
    warm_rings()
    report("messages")
    row = RowType([("x", Int64(), False), ("s", String(), False)])
    for name, message in _MESSAGES.items():
        FORMATS[name]({"a": row, "b": row}).decode(pa.array([message], pa.large_binary()))
