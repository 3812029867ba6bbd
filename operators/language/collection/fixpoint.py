"""Loops: `@fixpoint` turns a function on collections into a loop that iterates it to its limit.

The positional parameters of the function are the loop's variables. Keyword-only parameters, and collections that the
body captures, are brought in from outside the loop. With X0 the collection that is passed in and X(i+1) = body(Xi), the
result is the limit: the Xi that no longer changes. The limit is computed from X0 at every data time (in inner loops, at
every outer round too), never from the previous answer. Several variables step together; the body then returns a tuple
with one collection for each. Bodies may call other fixpoints.
"""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, overload

from vernier.operators.errors import BadLoop, WrongType, listed
from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.collection.rows import conform
from vernier.operators.language.plan.loops import Loop, LoopResultNode, VariableNode
from vernier.operators.language.plan.node import ROOT, Node, Scope
from vernier.operators.location import here

DEFAULT_ROUNDS = 100_000

_open: ContextVar[Scope] = ContextVar("open loop", default=ROOT)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def open_loop() -> Scope:
    """The loop whose body is being built; ROOT outside all loops."""
    return _open.get()


class Fixpoint:
    """A loop's body with its limits. Calling it with the initial collections builds the loop and returns its limit."""

    __name__: str

    def __init__(self, body: Callable[..., Any], max_rounds: int, on_limit: str) -> None:
        functools.update_wrapper(self, body)
        self.body = body
        self.name = getattr(body, "__name__", "fixpoint")
        self.max_rounds, self.on_limit = max_rounds, on_limit
        self.signature = inspect.signature(body)
        self.variables = tuple(p.name for p in self.signature.parameters.values() if p.kind in _POSITIONAL)
        self._building = False
        for parameter in self.signature.parameters.values():
            if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                raise BadLoop(problem=f"fixpoint {self.name!r} must name its parameters, without *{parameter.name}")
            if parameter.kind in _POSITIONAL and parameter.default is not inspect.Parameter.empty:
                raise BadLoop(
                    problem=f"the variable {parameter.name!r} of fixpoint {self.name!r} cannot have a default; "
                    "put parameters that are not variables after a *"
                )
        if not self.variables:
            raise BadLoop(problem=f"fixpoint {self.name!r} needs a positional parameter: the variable of the loop")

    def __call__(self, *initials: Collection, **captured: Any) -> Any:
        """Build the loop. Returns a Collection for one variable, a tuple of them for several. Raises BadLoop and
        WrongType."""
        try:
            arguments = self.signature.bind(*initials, **captured).arguments
        except TypeError as error:
            behind = [p.name for p in self.signature.parameters.values() if p.name not in self.variables]
            raise BadLoop(
                problem=f"fixpoint {self.name!r} has the variables ({listed(self.variables)}) and takes "
                f"({listed(behind)}) by keyword: {error}"
            ) from error
        for name in self.variables:
            if not isinstance(arguments[name], Collection):
                raise WrongType(
                    problem=f"variable {name!r} of fixpoint {self.name!r} needs a collection to start from, "
                    f"not {arguments[name]!r}"
                )
        if self._building:
            raise BadLoop(
                problem=f"the body of fixpoint {self.name!r} calls itself; its own value is the variable "
                f"{self.variables[0]!r}"
            )
        starts = tuple(arguments.pop(name).node for name in self.variables)
        return self._build(starts, arguments)

    def _build(self, starts: tuple[Node, ...], captured: dict[str, Any]) -> Any:
        outer = _open.get()
        inner = Scope(outer, outer.depth + 1, self.name)
        loop = Loop(inner, self.name, self.variables, starts, self.max_rounds, self.on_limit, here())
        for name, node in zip(self.variables, starts, strict=True):
            self._check_scope(node, outer, f"what variable {name!r} starts from")
        variables = [Collection(VariableNode(loop, i)) for i in range(len(starts))]
        token = _open.set(inner)
        self._building = True
        try:
            loop.bodies = self._bodies(self.body(*variables, **captured), starts, inner)
        finally:
            self._building = False
            inner.closed = True
            _open.reset(token)
        results = tuple(Collection(LoopResultNode(loop, i)) for i in range(len(starts)))
        return results[0] if len(results) == 1 else results

    def _bodies(self, returned: object, starts: tuple[Node, ...], inner: Scope) -> tuple[Node, ...]:
        """Check what the body returned: one collection per variable, each with its variable's columns."""
        results = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        at = here()
        for result in results:
            if not isinstance(result, Collection):
                hint = "; is a `return` missing?" if result is None else ""
                raise BadLoop(
                    problem=f"the body of fixpoint {self.name!r} returned {result!r}, not a collection{hint}", where=at
                )
        if len(results) != len(starts):
            never = self.variables[len(results) :]
            missing = f"; {listed(never)} would never be returned" if never else ""
            raise BadLoop(
                problem=f"the body of fixpoint {self.name!r} has {len(starts)} variables ({listed(self.variables)}) "
                f"but returned {len(results)} collections{missing}: return one for each variable, in their order",
                where=at,
            )
        bodies = []
        for name, start, result in zip(self.variables, starts, results, strict=True):
            self._check_scope(result.node, inner, f"what it returns for variable {name!r}")
            try:
                bodies.append(conform(result.node, start.schema, f"variable {name!r} of fixpoint {self.name!r}"))
            except WrongType as error:
                raise BadLoop(
                    problem=f"variable {name!r} of fixpoint {self.name!r} starts as {start.schema} but the body "
                    f"returns {result.schema}; select, rename or cast until they are equal",
                    where=result.node.where,
                ) from error
        return tuple(bodies)

    def _check_scope(self, node: Node, scope: Scope, what: str) -> None:
        if node.scope not in scope.chain():
            raise BadLoop(
                problem=f"fixpoint {self.name!r}: {what} comes from inside the body of fixpoint {node.scope.name!r}, "
                "which has ended; use what that fixpoint returned"
            )


@overload
def fixpoint(body: Callable[..., Any], /) -> Fixpoint: ...
@overload
def fixpoint(*, max_rounds: int = ..., on_limit: str = ...) -> Callable[[Callable[..., Any]], Fixpoint]: ...
def fixpoint(
    body: Callable[..., Any] | None = None, /, *, max_rounds: int = DEFAULT_ROUNDS, on_limit: str = "error"
) -> Fixpoint | Callable[[Callable[..., Any]], Fixpoint]:
    """Decorate a loop's body, with or without arguments (see the module docstring).

    max_rounds: the last round that is allowed. A loop that still changes there stops the epoch with an error that names
    the loop or, with on_limit="truncate", returns the value of that round.
    """
    if isinstance(max_rounds, bool) or not isinstance(max_rounds, int) or not 1 <= max_rounds < 2**62:
        raise WrongType(problem=f"max_rounds must be a positive integer, not {max_rounds!r}")
    if on_limit not in ("error", "truncate"):
        raise WrongType(problem=f'on_limit must be "error" or "truncate", not {on_limit!r}')
    if body is None:
        return lambda function: Fixpoint(function, max_rounds, on_limit)
    if not callable(body):
        raise WrongType(problem=f"fixpoint decorates a function: @vn.fixpoint(max_rounds=...), not {body!r}")
    return Fixpoint(body, max_rounds, on_limit)
