"""The notebook of docs/examples: its cells run, and give the tables and charts that are stored in it."""

import ast
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "rumour.ipynb"


def outputs(value: Any, count: int) -> list[dict[str, Any]]:
    """What a notebook keeps of the value of a cell."""
    if value is None:
        return []
    data = {"text/plain": repr(value)}
    for kind, method in (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_")):
        if hasattr(value, method):
            data[kind] = getattr(value, method)()
    shown = {kind: text.splitlines(keepends=True) for kind, text in data.items()}
    return [{"data": shown, "execution_count": count, "metadata": {}, "output_type": "execute_result"}]


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; returns the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)


def test_it_runs_and_gives_what_it_shows(update_golden: bool) -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "notebook"}
    run_again = json.loads(json.dumps(notebook))
    code = [cell for cell in run_again["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(code, 1):
        cell["execution_count"] = count
        cell["outputs"] = outputs(run("".join(cell["source"]), names), count)
    if update_golden:
        NOTEBOOK.write_text(json.dumps(run_again, indent=1, ensure_ascii=False) + "\n", "utf-8")
        notebook = run_again
    assert notebook == run_again, "run `make golden`"
    assert sum("text/html" in output["data"] for cell in code for output in cell["outputs"]) >= 5
    assert sum("image/svg+xml" in output["data"] for cell in code for output in cell["outputs"]) == 2
