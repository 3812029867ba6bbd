"""The plugin of pytest, in a pytest of its own."""

from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

PROGRAM = """
import vernier as vn

class Pair(vn.Schema):
    key: vn.Int64
    name: vn.String

app = vn.App("counted")
app.view("counts", app.source("pairs", Pair).group_by("name").agg(n=vn.count()))
"""

TESTS = """
import vernier as vn

def test_counts(vernier):
    t = vernier("program.py", epochs=[6], workers=2)
    t.given("pairs", '''
        key  name  time  diff
        1    a     5
        2    a     6
        1    a     8     -1
    ''')
    t.finish()
    t.expect("counts", '''
        | name | n | time | diff |
        | ---- | - | ---- | ---- |
        | a    | 1 | 5    |      |
        | a    | 1 | 6    | -1   |
        | a    | 2 | 6    |      |
        | a    | 1 | 8    |      |
        | a    | 2 | 8    | -1   |
    ''')

def test_an_app_and_two_runs(vernier):
    app = vn.load_program("program.py")
    one, two = vernier(app), vernier(app)
    one.given("pairs", "key name time\\n1 a 5")
    one.finish()
    two.finish()
    one.expect("counts", "name n\\na 1", at=5)
    two.expect("counts", "name n", at=5)

def test_that_fails(vernier):
    t = vernier("program.py")
    t.given("pairs", "key name time\\n1 a 5")
    t.finish()
    t.expect("counts", "name n time\\na 2 5")

def test_without_it():
    pass
"""


def words() -> list[str]:
    """The plugin by name, where it is not installed as an entry point."""
    known = [entry.name for entry in entry_points(group="pytest11")]
    return [] if "vernier" in known else ["-p", "vernier.operators.pytest_plugin"]


def test_programs_run_in_tests_and_a_failure_shows_both_tables(pytester: pytest.Pytester, root: object) -> None:
    pytester.makepyfile(program=PROGRAM, test_program=TESTS)
    pytester.syspathinsert(str(root))
    ran = pytester.runpytest_subprocess(*words(), "-p", "no:cacheprovider", timeout=250)
    ran.assert_outcomes(passed=3, failed=1)
    ran.stdout.fnmatch_lines(
        [
            '>*t.expect("counts", "name n time\\na 2 5")',
            "E*AssertionError: the changes of counts are not as expected",
            "E*name  n  time  diff",
            "E*- a     2  5     +1",
            "E*+ a     1  5     +1",
        ]
    )


def test_the_plugin_alone_loads_no_engine(pytester: pytest.Pytester, root: object) -> None:
    pytester.syspathinsert(str(root))
    pytester.makepyfile("import sys\n\ndef test_nothing():\n    assert not {'numba', 'pyarrow'} & set(sys.modules)")
    ran = pytester.runpytest_subprocess(*words(), "-p", "no:cacheprovider", timeout=250)
    ran.assert_outcomes(passed=1)
