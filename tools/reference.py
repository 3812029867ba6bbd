"""Write docs/settings.md and docs/reference.md from the code: every setting, every name of `vernier`, every method.

python tools/reference.py      rewrites both; tests/docs/test_reference.py holds them to the code
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import vernier as vn  # noqa: E402
from vernier.operators import testing  # noqa: E402
from vernier.operators.language.collection.collection import Collection  # noqa: E402
from vernier.operators.language.collection.grouping import Grouped  # noqa: E402
from vernier.operators.language.expr.expression import Case, Expr, ExprLike  # noqa: E402
from vernier.operators.language.expr.methods import NumberMethods, PartMethods, TextMethods, TimeMethods  # noqa: E402
from vernier.service.client.client import Client  # noqa: E402
from vernier.service.config.reference import sections, settings_reference  # noqa: E402
from vernier.service.local.session import Session  # noqa: E402

HIDDEN = frozenset({"require", "children", "walk", "key", "text", "columns", "request"})
"""Public methods that are no business of programs."""
NOTE = "<!-- written by tools/reference.py from the code; `make golden` rewrites it -->"


def settings_page() -> str:
    """docs/settings.md."""
    titles = sections()
    lines = [
        "# Settings",
        "",
        NOTE,
        "",
        "Defaults are overridden by a YAML file (`--config F`), that by the environment (`VERNIER_KAFKA__BOOTSTRAP`,",
        "two underscores for a dot), that by `--set kafka.bootstrap=…`. `vernier config KEY` explains a setting and",
        "shows its value and where that comes from; `vernier up PROGRAM.py --print-config` shows all values. NAME is",
        "the name of a source (`sources.edges.format`) or of a view. A duration is text with a unit (`250ms`, `5s`,",
        "`10m`); where a key ends in `_ms`, a plain number is milliseconds. Secrets come from the environment or from",
        "files alone.",
    ]
    settings = settings_reference()
    for section, title in titles.items():
        mine = [one for one in settings if one.section == section]
        lines += ["", f"## {section or 'At the top'}", *([title, ""] if title else [""])]
        lines += ["| setting | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{one.key}` | {_cell(one.kind)} | {_code(one.default)} | {_cell(one.description)} |" for one in mine
        ]
    return "\n".join(lines) + "\n"


def api_page() -> str:
    """docs/reference.md."""
    functions = [name for name in vn.__all__ if inspect.isfunction(getattr(vn, name))]
    lines = [
        "# Reference",
        "",
        NOTE,
        "",
        "Every name of `import vernier as vn`, with its arguments. [Operators](operators.md),",
        "[expressions](expressions.md) and [types](types.md) explain them with examples.",
    ]
    lines += _class("vn.App", vn.App)
    lines += _class("Collections", Collection)
    lines += _class("Grouped collections: what `group_by` gives", Grouped)
    lines += ["", "## Functions", *_functions("vn.", ((name, getattr(vn, name)) for name in functions))]
    for title, kind in (
        ("Expressions", Expr),
        ("What `vn.when(...)` gives", Case),
        ("Expressions of texts, binaries and lists", TextMethods),
        ("Expressions of numbers", NumberMethods),
        ("Expressions of dates and times", TimeMethods),
        ("Expressions of structs and lists", PartMethods),
    ):
        lines += _class(title, kind)
    lines += _class("vn.Variable", vn.Variable)
    lines += ["", "## Tests: `vn.testing`", *_functions("vn.testing.", [("run", testing.run)])]
    lines += _class("What `vn.testing.run` gives", testing.Run)
    lines += ["", "## Notebooks: `vn.local`", *_functions("vn.", [("local", vn.local)])]
    lines += _class("What `vn.local` gives", Session)
    lines += ["", "## Clients: `vn.connect`", *_functions("vn.", [("connect", vn.connect)])]
    lines += _class("What `vn.connect` gives", Client)
    lines += _class("vn.Producer", vn.Producer)
    return "\n".join(lines) + "\n"


def _class(title: str, kind: type[Any]) -> list[str]:
    """A section: the class, its constructor, its public methods in the order of the source."""
    methods = {name: value for name, value in vars(kind).items() if name[0] != "_" and name not in HIDDEN}
    lines = ["", f"## {title}", *_text(kind)]
    if "__init__" in vars(kind) and title.startswith("vn."):
        lines += ["", f"`{title}{_arguments(kind.__init__)}`"]
    return lines + _functions(".", ((n, m) for n, m in methods.items() if inspect.isfunction(m)))


def _functions(prefix: str, found: Iterable[tuple[str, Any]]) -> list[str]:
    lines = []
    for name, function in found:
        lines += [
            "",
            f"### {prefix}{name}",
            "```python",
            f"{prefix}{name}{_arguments(function)}",
            "```",
            *_text(function),
        ]
    return lines


def _arguments(function: Any) -> str:
    """The signature as a call has it, without self and without the types' modules."""
    signature = inspect.signature(function)
    kept = [one for name, one in signature.parameters.items() if name != "self" and name[0] != "_"]
    text = str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    text = text.replace(str(ExprLike), "ExprLike")
    text = re.sub(r": '([^']*)'", r": \1", text)
    text = re.sub(r"\b[a-z_.]+\.(?=[A-Z])", "", text)
    return re.sub(r"\bC\b", "Collection", text)  # C: the class of `self` (collection/rows.py)


def _text(thing: Any) -> list[str]:
    """A docstring's paragraphs, as they stand."""
    return ["", inspect.cleandoc(thing.__doc__ or "")] if thing.__doc__ else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


PAGES = {"settings.md": settings_page, "reference.md": api_page}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (ROOT / "docs" / page).write_text(write(), "utf-8")
