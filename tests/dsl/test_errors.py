"""Wrong programs get their error when they are built: the user's line, what was found, what was meant."""

import datetime
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import vernier as vn
from vernier.operators.errors import (
    BadLoop,
    BadValue,
    NameClash,
    ProgramError,
    UnknownColumn,
    UnknownName,
    WrongArguments,
    WrongType,
)

HEAD = """\
import vernier as vn
from vernier import col, lit, when
class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64
class Node(vn.Schema):
    node: vn.Int64
class Sale(vn.Schema):
    shop: vn.Int64
    price: vn.Float64
    day: vn.Date
    note: vn.Int64 | None
app = vn.App("t")
edges = app.source("edges", Edge)
nodes = app.source("nodes", Node)
sales = app.source("sales", Sale)
"""
LINE = HEAD.count("\n") + 1

WRONG, NO, TYPE, ARGUMENTS = ProgramError, UnknownName, WrongType, WrongArguments

CASES: list[tuple[str, type[ProgramError], str]] = [
    # columns
    ('edges.select("scr")', UnknownColumn, "no column 'scr' in the collection; did you mean 'src'? (it has src, dst)"),
    ('edges.filter(col("dest") > 1)', UnknownColumn, "did you mean 'dst'?"),
    ('edges.group_by("sorc")', UnknownColumn, "did you mean 'src'?"),
    ('edges.drop("x")', UnknownColumn, "it has src, dst"),
    ('edges.rename(sr="x")', UnknownColumn, "did you mean 'src'?"),
    ('edges.rename(src="dst")', NameClash, "two columns would have the name 'dst'"),
    ("edges.rename(src=1)", TYPE, "must be text"),
    ("edges.cast(drc=vn.Float64)", UnknownColumn, "did you mean"),
    ("edges.cast(src=vn.Date)", TYPE, "there is no such cast"),
    ("edges.cast(src=vn.Decimal)", TYPE, "is Decimal without its arguments; write vn.Decimal(10, 2)"),
    ('edges.drop("src", "dst")', WRONG, "at least one column"),
    ("edges.select()", WRONG, "select needs at least one column (there are src, dst)"),
    ('edges.select(col("src") + 1)', WRONG, 'write select(name=col("src") + 1) or (col("src") + 1).alias(...)'),
    ('edges.select("src", src=col("dst"))', WRONG, "uses the name 'src' twice"),
    ('edges.select(["src", "dst"])', TYPE, "one by one, not in a list"),
    ('edges.select(col("src").alias("_x"))', TYPE, "'_x' is not a valid name for a column"),
    ("edges.select(n=lit(None))", TYPE, "lit(None).cast(vn.Int64)"),
    ('edges.with_columns(n=col("src") + "a")', TYPE, "cannot be computed: col(\"src\") is Int64, lit('a') is String"),
    ("edges.with_columns(n=2**70)", TYPE, "does not fit 64 bits"),
    ("edges.with_columns(n=object())", TYPE, "is not a value for a column"),
    ("edges.with_columns(n=vn.count)", TYPE, "did you mean to call it?"),
    ("edges.filter(lambda row: row.src > 1)", TYPE, 'write an expression such as col("n") > 1'),
    # conditions
    ("edges.filter()", WRONG, "filter needs a condition"),
    ('edges.filter("src")', TYPE, "did you mean col('src')?"),
    ('edges.filter(col("src") + 1)', TYPE, 'a condition must be Bool, but col("src") + 1 is Int64'),
    ('edges.filter(col("src") > 1 and col("dst") > 1)', TYPE, "write & | ~ for and, or, not"),
    ('edges.filter(1 < col("src") < 3)', TYPE, "and a < b < c"),
    ('edges.filter(col("src") > 1 & col("dst") > 1)', TYPE, "put comparisons in parentheses"),
    ('sales.filter(col("day") > 1)', TYPE, "values of different types"),
    ('edges.filter(col("src").isNull())', NO, "did you mean 'is_null'?"),
    ('edges.filter(col("src").betwen(1, 2))', NO, "did you mean 'between'?"),
    ('when(col("src") > 1, 1).otherwise(2).otherwise(3)', WRONG, "an otherwise(...) already"),
    # functions of expressions
    ('edges.select(n=col("src").upper())', TYPE, 'needs String, but col("src") is Int64; write .cast(vn.String)'),
    ('edges.select(n=col("src").cast("bigint"))', TYPE, "has no Vernier type: 'bigint'; did you mean vn.Int64?"),
    ('edges.select(n=col("src").cast(int))', TYPE, "did you mean vn.Int64?"),
    ('edges.select(n=col("src").isin(1))', NO, "did you mean 'is_in'?"),
    ('edges.filter(col("src").is_in([1, 2]))', TYPE, "one by one, not in a list: write *[...]"),
    ('edges.filter(col("src").is_in())', TYPE, "is_in needs at least one value"),
    ('edges.select(n=col("src").isNaN())', NO, "did you mean 'is_nan'?"),
    ('edges.select(n=col("src").substring(1, 2))', NO, "did you mean 'substr'?"),
    ('edges.select(n=col("src").getField("a"))', NO, "did you mean 'field'?"),
    ('edges.select(n=col("src").uper())', NO, "did you mean 'upper'?"),
    ('edges.select(n=col("src").str.upper())', NO, "methods for text are the expression's own"),
    ('edges.select(n=col("src").over(1))', NO, "windows are methods of collections"),
    ('edges.select(n=col("src").sum())', NO, 'agg(total=vn.sum("column"))'),
    ('edges.select(n=col("src").is_nan())', TYPE, "needs Float64, but"),
    ('sales.select(n=col("day").hour())', TYPE, "needs TimestampNs, but"),
    ('sales.select(n=col("day").date_trunc("mont"))', TYPE, "has no unit 'mont'; did you mean 'month'?"),
    ('sales.select(n=vn.struct("shop", "prise"))', UnknownColumn, "no column 'prise' in the collection; did you mean"),
    ('sales.select(n=vn.struct("shop")["shp"])', TYPE, "has no field 'shp'; did you mean 'shop'? (it has shop)"),
    (
        'sales.select(n=vn.coalesce("note", lit("x")))',
        TYPE,
        'has values of different types (col("note") is Int64 | None;',
    ),
    ('sales.select(n=vn.coalesce("note", "x"))', UnknownColumn, "no column 'x' in the collection"),
    ("sales.select(n=vn.greatest(1))", TYPE, "of a column over rows: .agg(x=vn.max(...))"),
    ("sales.select(n=[])", TYPE, "an empty list has no element type"),
    ('vn.upper(col("shop"))', NO, 'upper is a method of expressions: col("x").upper()'),
    ('vn.nvl(col("shop"), 1)', NO, "did you mean 'coalesce'?"),
    ("import random; vn.udf(lambda x: random.random(), returns=vn.Float64)", WRONG, "uses random. A retraction must"),
    ("vn.udf(lambda x: x, returns=vn.Int64)()", TYPE, "needs columns"),
    ("vn.udf(lambda x: x, returns=float)", TYPE, "did you mean vn.Float64?"),
    # other systems' names
    ('edges.groupBy("src")', NO, "did you mean 'group_by'?"),
    ('edges.withColumn("n", col("src"))', NO, "did you mean 'with_columns'?"),
    ('edges.where(col("src") > 1)', NO, "did you mean 'filter'?"),
    ("edges.unionAll(edges)", NO, "did you mean 'union'?"),
    ("edges.distnct()", NO, "did you mean 'distinct'?"),
    ("edges.count()", NO, ".group_by(...).agg(n=vn.count())"),
    ("edges.limit(3)", NO, '.top_k(10, by="column")'),
    ("edges.sort('src')", NO, "top_k, rank, lag and others take by="),
    ("edges.crossJoin(nodes)", NO, "constant column"),
    ("edges.show()", NO, "through a view"),
    ("edges.src", NO, "for the column write col('src')"),
    ('edges["src"]', NO, "for the column write col('src')"),
    ("for row in edges: pass", TYPE, "cannot be iterated over"),
    ('edges.group_by("src").count()', NO, ".agg(n=vn.count(...))"),
    ("vn.coll", NO, "did you mean 'col'?"),
    ("vn.Timestamp", NO, "did you mean 'TimestampNs'?"),
    ("vn.fixpont", NO, "did you mean 'fixpoint'?"),
    ("vn.top_k", NO, "it is a method of collections: rows.top_k"),
    ("edges.flatMap", NO, "did you mean 'flat_map'?"),
    ('edges.join(nodes, left_on="src", right_on="node", how="innr")', TYPE, "did you mean 'inner'?"),
    ('edges.join(nodes, left_on="src", right_on="node", how="leftsemi")', TYPE, "did you mean 'semi'?"),
    (
        'edges.join(nodes, left_on="src", right_on="node", how="outer")',
        TYPE,
        "did you mean 'full'? (it has inner, left",
    ),
    ("edges.intersect(nodes)", TYPE, "intersect needs the columns (src: Int64, dst: Int64), but one side has"),
    ("edges.except_all(3)", TYPE, "except_all takes collections"),
    # joins
    ("edges.join(edges)", WRONG, 'either on="column", or left_on="a", right_on="b"'),
    ('edges.join(edges, on="src", left_on="src")', WRONG, "join needs its keys"),
    ('edges.join(nodes, left_on="src")', WRONG, "join needs at least one key"),
    ('edges.join(nodes, left_on=["src", "dst"], right_on="node")', WRONG, "both need the same number"),
    ('edges.join(nodes, on="node")', UnknownColumn, "no column 'node' in the left side of the join"),
    ('edges.join(edges, on="src")', NameClash, "both sides of the join have a column 'dst'"),
    ('edges.join(edges, left_on="src", right_on="src")', NameClash, "write on=['src']"),
    ('edges.join(sales, left_on="src", right_on="day")', TYPE, "src is Int64 and day is Date; cast one of them"),
    ('edges.join(nodes, left_on="src", right_on="node", where=col("nod") > 1)', UnknownColumn, "did you mean 'node'?"),
    ('edges.join(vn, on="src")', TYPE, "join takes collections"),
    ('edges.join(nodes, left_on=col("src") + 1, right_on="node")', TYPE, "with_columns first"),
    (
        'edges.join(nodes, "src", "left")',
        ARGUMENTS,
        "by position, everything else by name: write how='left'",
    ),
    (
        'edges.join(nodes, "src", kind="left")',
        ARGUMENTS,
        "join has no argument 'kind' (it is join(other, on=",
    ),
    # arguments
    ("edges.top_k(3, by='src', desc=True)", ARGUMENTS, 'an order is part of by=: by=col("a").desc()'),
    ("edges.top_k(3, by='src', partition_by='dst')", ARGUMENTS, "write within="),
    ("sales.window('day', size='1d')", ARGUMENTS, 'write length="1m", every="10s" (it is window(on, tumble=, length='),
    ("sales.window('day', length='2d', hop='2d', every='1d')", TYPE, "length= and hop= of window are the same"),
    ("app.view('v', edges, keys=['src'])", ARGUMENTS, "did you mean 'key'?"),
    ("vn.App('t', retan='5m')", ARGUMENTS, "App has no argument 'retan'; did you mean 'retain'?"),
    ("edges.select(n=col('src').round(1, 2))", ARGUMENTS, "round takes digits by position"),
    # values
    ("edges.select(total=vn.sum('src'))", TYPE, 'an aggregate belongs in .group_by("key").agg(name=...)'),
    ('edges.select(step="view")', UnknownColumn, "for the text itself write select(step=lit('view'))"),
    ('sales.filter(col("note") == None)', TYPE, 'a comparison with None is never true; write col("note").is_null()'),
    ('sales.filter(None != col("note"))', TYPE, 'write col("note").is_not_null()'),
    ('sales.filter(col("day") > "2026-01-01")', TYPE, "a constant date is date(...)"),
    # orders
    ("edges.top_k(3)", ARGUMENTS, "top_k needs by= (it is top_k(n, by=, within=))"),
    ("edges.top_k(0, by='dst')", TYPE, "a number of rows from 1 to"),
    ("edges.top_k(1, by=[])", WRONG, 'top_k needs an order: by="column"'),
    ("edges.top_k(1, by='dist')", UnknownColumn, "did you mean 'dst'?"),
    ("edges.rank(by=col('dst') + 1)", TYPE, "compute the value with with_columns first"),
    ("edges.rank(by=['dst', col('dst').desc()])", WRONG, "ordered by 'dst' twice"),
    ("edges.rank(by='src', within='src')", TYPE, "keys of within= alone"),
    ("edges.row_number(by='dst', name='src')", NameClash, "two columns would have the name 'src'"),
    ("edges.lag('dst', 'x', by='src')", TYPE, "lag looks a number of places away"),
    ("edges.lead('dst', by='src', default=1.5)", TYPE, "the default of lead must fit 'dst', Int64, but is 1.5"),
    ("sales.running_sum('day', by='price')", TYPE, "running_sum adds Int64, Decimal or Float64, but 'day' is Date"),
    ("edges.running_sum('src', by='dst', within='src')", TYPE, "it is a key of within="),
    # unions
    (
        "vn.union(edges, nodes)",
        TYPE,
        "the union needs the columns (src: Int64, dst: Int64), but one side has (node: Int64)",
    ),
    ("edges.union(edges.cast(dst=vn.Float64))", TYPE, "cast 'dst'"),
    ("vn.union(edges, 3)", TYPE, "union takes collections, not 3"),
    # aggregates
    ('edges.group_by("src").agg()', WRONG, "named aggregates: .agg(n=vn.count())"),
    ('edges.group_by("src").agg(vn.count())', WRONG, "named aggregates"),
    ('edges.group_by("src").agg(n=col("dst"))', TYPE, "must be an aggregate such as vn.count()"),
    ('edges.group_by("src").agg(n=vn.sum("ds"))', UnknownColumn, "did you mean 'dst'?"),
    ('edges.group_by("src").agg(src=vn.count())', NameClash, "'src' is a key and an aggregate"),
    ('edges.group_by(col("src") + 1)', WRONG, "needs a name: write group_by(name="),
    ('sales.group_by("shop").agg(n=vn.sum("day"))', TYPE, "needs numbers (Int64, Float64 or Decimal), but Date"),
    ('sales.group_by("shop").agg(n=vn.avg("day"))', TYPE, "needs numbers (Int64, Float64 or Decimal), but Date"),
    ('sales.group_by("shop").agg(n=vn.quantile("price", 2))', TYPE, "a number from 0 to 1, not 2"),
    ("sales.threshold(0)", TYPE, "a number of copies from 1 on, not 0"),
    ('sales.group_by("shop").median("price")', NO, "it has agg and reduce"),
    ("vn.sum([1, 2])", TYPE, "for Python's own, import builtins"),
    # sources, views, apps
    ('app.source("edges", Edge)', NameClash, "source 'edges' is declared already, at <program>:14"),
    ('app.source("a b", Edge)', TYPE, "is not a valid name for a source"),
    ('app.source("x", Edge())', TYPE, "needs a subclass of vn.Schema"),
    ('app.view("v", edges, key=["n"])', UnknownColumn, "in view 'v'"),
    ('app.view("v", edges, key=[])', WRONG, "at least one column"),
    ('app.view("v", 3)', TYPE, "needs a collection"),
    ('app.view("v", edges.group_by("src"))', TYPE, "add .agg(n=vn.count())"),
    ('app.view("v", vn.App("u").source("edges", Edge))', WRONG, "source 'edges' of another app"),
    ('vn.App("u", retain="ten minutes")', TYPE, 'retain must be like "10m"'),
    ('vn.App("u", on_late="dead_leter")', TYPE, "did you mean 'dead_letter'?"),
    # loops
    ("vn.fixpoint(max_rounds=0)", TYPE, "max_rounds must be a positive integer"),
    ('vn.fixpoint(on_limit="stop")', TYPE, 'must be "error" or "truncate"'),
    ("vn.fixpoint(3)", TYPE, "decorates a function"),
    ("vn.fixpoint(lambda *, edges: edges)", BadLoop, "needs a positional parameter"),
    ("vn.fixpoint(lambda *xs: xs)", BadLoop, "without *xs"),
    ("vn.fixpoint(lambda x=1: x)", BadLoop, "cannot have a default"),
    ("vn.fixpoint(lambda x: x)(3)", TYPE, "variable 'x' of fixpoint '<lambda>' needs a collection"),
    ("vn.fixpoint(lambda x, *, y: x)(nodes)", BadLoop, "has the variables (x) and takes (y) by keyword"),
    ("vn.fixpoint(lambda x: x)(nodes, nodes)", BadLoop, "too many positional arguments"),
    ("vn.fixpoint(lambda x: None)(nodes)", BadLoop, "is a `return` missing?"),
    ("vn.fixpoint(lambda x, y: x)(nodes, nodes)", BadLoop, "y would never be returned"),
    ("vn.fixpoint(lambda x: (x, x))(nodes)", BadLoop, "has 1 variables (x) but returned 2"),
    (
        "vn.fixpoint(lambda x: x.with_columns(n=1))(nodes)",
        BadLoop,
        "starts as (node: Int64) but the body returns (node",
    ),
    (
        "vn.fixpoint(lambda x: x.cast(node=vn.Int64 | None))(nodes)",
        BadLoop,
        "select, rename or cast until they are equal",
    ),
]


@pytest.mark.parametrize(("line", "kind", "message"), CASES, ids=[line for line, _, _ in CASES])
def test_wrong_programs_name_the_line_and_the_way_out(line: str, kind: type[ProgramError], message: str) -> None:
    with pytest.raises(kind) as caught:
        vn.load_program(f"{HEAD}{line}\n")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"<program>:{LINE}: ")
    assert str(caught.value).endswith(f"[{line}]")
    assert (caught.value.where.line, caught.value.where.text) == (LINE, line)
    assert "\n" not in str(caught.value)


def test_schemas_refuse_what_is_no_column() -> None:
    for body, kind, message in [
        ("    src: int", TYPE, "did you mean vn.Int64?"),
        ("    src: vn.List", TYPE, "column 'src' of schema Edge is List without its arguments"),
        ("    src: vn.Decimal(40, 2) | None", TYPE, "the precision is 1 to 38"),
        ("    src: list[int]", TYPE, "did you mean vn.List(vn.Int64)?"),
        ("    src: dict", TYPE, "did you mean vn.Struct(a=vn.Int64)?"),
        ("    src: [int]", TYPE, "has no Vernier type: [<class 'int'>] (types are"),
        ("    src: vn.Struct()", TYPE, "a Struct without fields"),
        ("    src: vn.List(int)", TYPE, "the element of a List has no Vernier type: <class 'int'>"),
        ("    src: vn.Int64 | vn.Float64", TYPE, "only `| None` is possible"),
        ("    src: vn.Int64 = 3", TYPE, "write `= vn.column(default=3)`"),
        ("    _src: vn.Int64", TYPE, "is not a valid name for a column"),
        ("    src: 'vn.Nope'", TYPE, "has a type that cannot be found"),
        ("    pass", TYPE, "has no columns"),
    ]:
        with pytest.raises(kind) as caught:
            vn.load_program(f"import vernier as vn\nclass Edge(vn.Schema):\n{body}\n")
        assert message in str(caught.value)
        assert caught.value.where.line in (2, 3)


def test_the_error_names_the_line_inside_helpers_and_files(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("def narrow(c):\n    return c.select('nope')\n")
    path = tmp_path / "program.py"
    path.write_text(HEAD + "from parts import narrow\nnarrow(edges)\n")
    with pytest.raises(UnknownColumn) as caught:
        vn.load_program(path)
    assert str(caught.value).startswith(f"{tmp_path / 'parts.py'}:2: ")
    assert caught.value.where.text == "return c.select('nope')"


def test_a_chain_over_lines_names_the_line_of_its_call() -> None:
    text = HEAD + "r = (\n    edges\n    .distinct()\n    .select('nope')\n)\n"
    with pytest.raises(UnknownColumn) as caught:
        vn.load_program(text)
    assert (caught.value.where.line, caught.value.where.text) == (LINE + 3, ".select('nope')")


def test_programs_that_do_not_load_say_why(tmp_path: Path) -> None:
    for text, message in [
        ("x = (\n", "<program>:1: syntax error"),
        ("import vernier\n1 / 0\n", "<program>:2: the program raised ZeroDivisionError: division by zero [1 / 0]"),
        ("import nowhere_at_all\n\n", "the program raised ModuleNotFoundError"),
        ("import vernier\n\n", "a program builds one vn.App, but this one has 0"),
        (HEAD + 'other = vn.App("b")\n', "but this one has 2"),
        (HEAD, "app 't' has no view"),
    ]:
        with pytest.raises(ProgramError) as caught:
            vn.load_program(text)
        assert message in str(caught.value)
    with pytest.raises(ProgramError, match="cannot be read"):
        vn.load_program(tmp_path / "none.py")


def test_errors_survive_a_pickle() -> None:
    with pytest.raises(ProgramError) as caught:
        vn.load_program(HEAD + "edges.nope\n")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.where) == (str(caught.value), caught.value.where)


def test_asking_for_attributes_is_safe() -> None:
    app = vn.App("a")
    edges = app.source("e", type("E", (vn.Schema,), {"__annotations__": {"src": vn.Int64}}))
    assert not hasattr(edges, "nope")
    assert not hasattr(vn.col("x"), "nope")
    assert not hasattr(vn, "__wrapped__")


def test_importing_is_light() -> None:
    heavy = ["pyspark", "numba", "fastapi", "httpx", "uvicorn", "zmq", "kafka", "pandas", "pydantic", "vernier.service"]
    code = f"import sys, vernier; vernier.App; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_suffix_tells_the_columns_of_the_right_side_apart() -> None:
    app = vn.load_program(
        f"{HEAD}app.view('v', edges.join(edges, left_on='dst', right_on='src', suffix='_2'), key=['src', 'dst_2'])\n"
    )
    with vn.testing.run(app) as run:
        run.update("edges", [((1, 2), 0, 1), ((2, 3), 0, 1)])
        run.finish()
        assert app.views["v"].node.schema.names == ("src", "dst", "src_2", "dst_2")
        assert run.rows("v") == [(1, 2, 2, 3)]


def test_rows_as_dicts_may_leave_nulls_out_and_nothing_else() -> None:
    app = vn.load_program(f"{HEAD}app.view('v', sales, key='shop')\n")
    row = {"shop": 1, "price": 2.5, "day": datetime.date(1970, 1, 4)}
    with vn.testing.run(app) as run:
        run.insert("sales", row, at=0)
        run.advance(1)
        assert run.rows("v") == [(1, 2.5, datetime.date(1970, 1, 4), None)]
        with pytest.raises(BadValue, match="has no value for it"):
            run.insert("sales", {"shop": 1}, at=1)
        with pytest.raises(BadValue, match="no such column; did you mean"):
            run.insert("sales", row | {"nots": 1}, at=1)
