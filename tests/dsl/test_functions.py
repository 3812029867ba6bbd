"""Functions of a program: what counts as the same one, in every process, and what is refused."""

import datetime
import functools
import math
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vernier as vn
from tests.dsl.named import named
from vernier.operators.language.expr import evaluate, functions
from vernier.operators.language.expr.compute import vector
from vernier.operators.language.expr.functions import NotDeterministic, check_function, function_key

FACTOR = 3


def helper(x: Any) -> Any:
    return x * FACTOR


def uses_helper(x: Any) -> Any:
    return helper(x) + 1


def rolls(x: Any) -> Any:
    return x + random.random()


def through_a_helper(x: Any) -> Any:
    return rolls(x)


def imports_inside(x: Any) -> Any:
    import secrets

    return x + secrets.randbelow(3)


def imports_a_name(x: Any) -> Any:
    from os import urandom

    return urandom(x)


def imports_two_names(x: Any) -> Any:
    from os import path, urandom

    return path.join(urandom(x))


def renames(x: Any) -> Any:
    clock = datetime.datetime
    return clock.now(datetime.UTC)


def nested(x: Any) -> Any:
    return [datetime.datetime.now(datetime.UTC) for _ in x]


SEEDED = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (rolls, "random"),
        (through_a_helper, "random"),
        (imports_inside, "secrets"),
        (imports_a_name, "urandom"),
        (nested, "datetime.datetime.now"),
        (imports_two_names, "urandom"),
        (renames, "now"),
        (lambda x: time.time(), "time.time"),
        (lambda x: time.gmtime().tm_year, "time.gmtime"),
        (lambda x: uuid.uuid4(), "uuid.uuid4"),
        (lambda x: os.urandom(1), "os.urandom"),
        (lambda x: np.random.rand(len(x)), "np.random"),
        (lambda x: SEEDED.integers(0, 9, len(x)), "SEEDED"),
        (lambda x: hash(x), "hash"),
        (functools.partial(rolls, 1), "random"),
        (random.random, "random"),
    ],
    ids=named,
)
def test_chance_and_clocks_are_refused(function: Callable[..., Any], named: str) -> None:
    with pytest.raises(NotDeterministic) as caught:
        check_function(function, "select")
    assert named in str(caught.value)
    assert "before the row is sent" in str(caught.value)
    check_function(function, "select", deterministic=True)


class Words:
    """Has methods with the names of clocks' methods."""

    def now(self) -> int:
        return 1

    def time(self) -> int:
        return 2


@pytest.mark.parametrize(
    "function",
    [
        uses_helper,
        lambda x: Words().now() + Words().time(),
        lambda x: datetime.date(2020, 1, 1) + x,
        lambda x: uuid.uuid5(uuid.NAMESPACE_DNS, x),
        lambda x: time.strptime(x, "%Y"),
        lambda x: [time + 1 for time in x],
        math.sqrt,
        np.sqrt,
    ],
    ids=named,
)
def test_what_is_steady_is_taken(function: Callable[..., Any]) -> None:
    check_function(function, "select")
    with pytest.raises(NotDeterministic, match="declared deterministic=False"):
        check_function(function, "select", deterministic=False)


def adder(n: object) -> Callable[[Any], Any]:
    def add(x: Any) -> Any:
        return x + n

    return add


def compiled(source: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"np": np}
    exec(compile(source, "program.py", "exec"), names)
    return names["f"]  # type: ignore[no-any-return]


SAME = [
    ("def f(x):\n    return x + 1", "\n\ndef f(x):\n    'Says so.'\n    return x + 1  # a comment"),
    ("def f(x):\n    return np.abs(x)", "z = 3\ndef f(x):\n    return np.abs(x)"),
    ("def g(x):\n    return x\ndef f(x):\n    return g(x)", "def f(x):\n    return g(x)\ndef g(x):\n    return x"),
]
OTHER = [
    ("def f(x):\n    return x + 1", "def f(x):\n    return x + 2"),
    ("def f(x):\n    return x + 1", "def f(x):\n    return x + 1.0"),
    ("def f(x, n=1):\n    return x", "def f(x, n=2):\n    return x"),
    ("def f(x, *, n=1):\n    return x", "def f(x, *, n=2):\n    return x"),
    ("def f(x):\n    return np.abs(x)", "def f(x):\n    return np.exp(x)"),
    ("K = 1\ndef f(x):\n    return x + K", "K = 2\ndef f(x):\n    return x + K"),
    ("def f(x):\n    return [y + 1 for y in x]", "def f(x):\n    return [y + 2 for y in x]"),
    ("def f(x):\n    return list('a' for y in x)", "def f(x):\n    return list('b' for y in x)"),
    ("def g(x):\n    return 1\ndef f(x):\n    return g(x)", "def g(x):\n    return 2\ndef f(x):\n    return g(x)"),
    ("def f(x):\n    return x in {'a', 'b'}", "def f(x):\n    return x in {'a', 'c'}"),
    (
        "class C:\n    def go(self):\n        return 1\ndef f(x):\n    return C().go()",
        "class C:\n    def go(self):\n        return 2\ndef f(x):\n    return C().go()",
    ),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_equal_meaning_is_one_key(one: str, two: str) -> None:
    assert function_key(compiled(one)) == function_key(compiled(two))


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_a_changed_function_is_another(one: str, two: str) -> None:
    assert function_key(compiled(one)) != function_key(compiled(two))


def test_what_a_closure_holds_counts() -> None:
    assert function_key(adder(1)) == function_key(adder(1))
    assert function_key(adder(1)) != function_key(adder(2))
    assert function_key(adder(np.arange(3))) == function_key(adder(np.arange(3)))
    assert function_key(adder(np.arange(3))) != function_key(adder(np.arange(1, 4)))
    assert function_key(adder({"a": [1.5]})) != function_key(adder({"a": [2.5]}))
    assert function_key(functools.partial(helper, 1)) != function_key(functools.partial(helper, 2))


def test_keys_are_the_same_in_every_process(root: Path) -> None:
    code = (
        "from vernier.operators.language.expr.functions import function_key\n"
        "K = {'a', 'b', 'c', 'd'}\n"
        "def g(x):\n    return x in {'p', 'q', 'r', 's'}\n"
        "def f(x):\n    return x in K and g(x)\n"
        "print(function_key(f))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(root), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_states_know_functions_of_the_language_by_the_modules_they_were_first_in() -> None:
    def spelled(value: object) -> tuple[str, ...]:
        return (functions._home(value), value.__qualname__)  # type: ignore[attr-defined]

    assert spelled(vn.col) == ("operators.language.expr", "col")
    assert spelled(vn.Int64) == ("operators.language.types", "Int64")
    assert spelled(vn.Schema) == ("operators.language.schema", "Schema")
    assert spelled(vn.ProgramError) == ("operators.errors", "ProgramError")
    assert spelled(evaluate.bind) == ("operators.language.evaluate", "bind")
    assert spelled(vector.Vector) == ("operators.language.compute.vector", "Vector")
