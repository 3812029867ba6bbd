"""Writes a first program and updates for it: `vernier new NAME`."""

from __future__ import annotations

import re
from pathlib import Path

from vernier.storage.errors import CallerError

_PROGRAM = """\
import vernier as vn

class Sale(vn.Schema):
    shop: vn.Int64
    cents: vn.Int64

app = vn.App("{name}")
sales = app.source("sales", Sale)
totals = sales.group_by("shop").agg(sales=vn.count(), cents=vn.sum("cents"))
app.view("totals", totals, key="shop")
"""

_UPDATES = """\
{"input":"sales","data":[1,250],"time":10}
{"input":"sales","data":[2,990],"time":20}
{"input":"sales","data":{"shop":1,"cents":400},"time":20}
{"input":"sales","data":[2,990],"time":30,"diff":-1}
{"input":"sales","data":[2,890],"time":30}
"""


class CannotMake(CallerError):
    """A file of that name exists already, or the name is not valid."""

    message = "cannot make {file}: {reason}"
    file: str
    reason: str


def new_program(path: str) -> tuple[Path, Path]:
    """Write PATH.py and PATH.jsonl; returns both paths. Never overwrites a file. Raises CannotMake."""
    stem = Path(path.removesuffix(".py"))
    name = re.sub(r"[^a-z0-9_-]+", "-", stem.name.lower()).strip("-")
    if not name or not name[0].isalpha():
        raise CannotMake(file=f"{stem}.py", reason="a program's name begins with a letter, as in `vernier new sales`")
    program, updates = stem.with_name(f"{stem.name}.py"), stem.with_name(f"{stem.name}.jsonl")
    for file in (program, updates):
        if file.exists():
            raise CannotMake(file=str(file), reason="it exists already; choose another name")
    for file, text in ((program, _PROGRAM.replace("{name}", name)), (updates, _UPDATES)):
        try:
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
        except OSError as error:
            raise CannotMake(file=str(file), reason=(error.strerror or str(error)).lower()) from error
    return program, updates
