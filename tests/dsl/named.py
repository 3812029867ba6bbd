"""What a test's parameter is called: the same in every process, so that several can share the tests."""

from typing import Any


def named(value: Any) -> str:
    """A function by its name and line, anything else by its text."""
    code = getattr(value, "__code__", None)
    if code is not None:
        return f"{value.__name__}:{code.co_firstlineno}"
    return f"{type(value).__name__}:{getattr(value, '__name__', '')}" if callable(value) else str(value)
