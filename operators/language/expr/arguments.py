"""Checks the arguments of methods that programs call: a wrong one raises an error at the program's line that lists the
arguments that exist.

Python's own messages ("takes from 2 to 3 positional arguments but 4 were given") come from inside a method and do not
say what to write. `checked` inspects a call before the method runs: O(arguments), when a program is built.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vernier.operators.errors import WrongArguments, listed, meant

C = TypeVar("C", bound=type)

ELSEWHERE: Mapping[str, str] = {
    "asc": 'an order is part of by=: by=col("a"), or by=col("a").desc()',
    "ascending": 'an order is part of by=: by=col("a"), or by=col("a").desc()',
    "desc": 'an order is part of by=: by=col("a").desc()',
    "descending": 'an order is part of by=: by=col("a").desc()',
    "reverse": 'an order is part of by=: by=col("a").desc()',
    "order_by": "write by=",
    "partition_by": "write within=",
    "per": "write within=",
    "group_by": "write within=",
    "size": 'write length="1m", every="10s"',
    "width": 'write length="1m", every="10s"',
    "duration": 'write length="1m", every="10s"',
    "slide": 'write length="1m", every="10s"',
    "step": 'write length="1m", every="10s"',
    "gap": 'write session="5m"',
    "left_key": "write left_on=",
    "right_key": "write right_on=",
    "condition": "write where=",
    "type": "write how=",
    "rsuffix": "write suffix=",
    "suffixes": "write suffix=, which is for the columns of the right side",
    "primary_key": "write key=",
    "keys": "write key=",
}
"""Argument names from other systems, and what to write here. Used only where the method has no such argument."""


def checked(method: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """The method, raising WrongArguments instead of Python's TypeError for a call that does not fit its signature."""
    name = name or method.__name__
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise WrongArguments(problem=_problem(name, signature, args, kwargs, str(error))) from None
        return method(*args, **kwargs)

    return call


def checked_methods(kind: C) -> C:
    """A class decorator: the constructor and the class's own public methods become `checked`."""
    for name, member in list(vars(kind).items()):
        if name == "__init__":
            setattr(kind, name, checked(member, kind.__name__))
        elif inspect.isfunction(member) and not name.startswith("_"):
            setattr(kind, name, checked(member))
    return kind


def _problem(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], said: str
) -> str:
    """What is wrong with a call of the method `name`, and how to write it."""
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    by_name = [one.name for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)]
    usage = f"it is {name}({listed(map(_spelled, parameters))})"
    unknown = [given for given in kwargs if given not in signature.parameters]
    if unknown and not any(one.kind is one.VAR_KEYWORD for one in parameters):
        hint = meant(unknown[0], by_name)
        if not hint and unknown[0] in ELSEWHERE:
            hint = f"; {ELSEWHERE[unknown[0]]}"
        return f"{name} has no argument {unknown[0]!r}{hint} ({usage})"
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    given = args[1:] if "self" in signature.parameters else args
    if len(given) > len(positional) and not any(one.kind is one.VAR_POSITIONAL for one in parameters):
        further = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        extra = given[len(positional)]
        fits = "how" if "how" in further and isinstance(extra, str) else further[0] if len(further) == 1 else ""
        hint = f": write {fits}={extra!r}" if fits else ""
        takes = listed(one.name for one in positional) or "nothing"
        return f"{name} takes {takes} by position, everything else by name{hint} ({usage})"
    names = {**dict(zip((one.name for one in positional), given)), **kwargs}
    absent = [one for one in parameters if one.default is one.empty and one.name not in names]
    needed = [one for one in absent if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return f"{name} needs {listed(map(_spelled, needed))} ({usage})" if needed else f"{name}: {said} ({usage})"


def _spelled(parameter: inspect.Parameter) -> str:
    """A parameter as it is written in a call."""
    match parameter.kind:
        case parameter.VAR_POSITIONAL:
            return f"*{parameter.name}"
        case parameter.VAR_KEYWORD:
            return f"{parameter.name}=..."
        case parameter.KEYWORD_ONLY:
            return f"{parameter.name}="
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}="
