"""Python's operators on expressions: `a + 1`, `a == b`, `~p`, `s["field"]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vernier.operators.language.expr.expression import Expr, ExprLike


class Signs:
    """The operators; the class that inherits them supplies the nodes that they make."""

    def _binary(self, op: str, other: object, swapped: bool = False) -> Expr:
        raise NotImplementedError

    def _unary(self, op: str) -> Expr:
        raise NotImplementedError

    def _call(self, name: str, *arguments: object) -> Expr:
        raise NotImplementedError

    def __add__(self, other: ExprLike) -> Expr:
        return self._binary("+", other)

    def __radd__(self, other: ExprLike) -> Expr:
        return self._binary("+", other, swapped=True)

    def __sub__(self, other: ExprLike) -> Expr:
        return self._binary("-", other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return self._binary("-", other, swapped=True)

    def __mul__(self, other: ExprLike) -> Expr:
        return self._binary("*", other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return self._binary("*", other, swapped=True)

    def __truediv__(self, other: ExprLike) -> Expr:
        return self._binary("/", other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return self._binary("/", other, swapped=True)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return self._binary("//", other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return self._binary("//", other, swapped=True)

    def __mod__(self, other: ExprLike) -> Expr:
        return self._binary("%", other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return self._binary("%", other, swapped=True)

    def __neg__(self) -> Expr:
        return self._unary("-")

    def __invert__(self) -> Expr:
        return self._unary("~")

    def __and__(self, other: ExprLike) -> Expr:
        return self._binary("&", other)

    def __rand__(self, other: ExprLike) -> Expr:
        return self._binary("&", other, swapped=True)

    def __or__(self, other: ExprLike) -> Expr:
        return self._binary("|", other)

    def __ror__(self, other: ExprLike) -> Expr:
        return self._binary("|", other, swapped=True)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._binary("==", other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._binary("!=", other)

    def __lt__(self, other: ExprLike) -> Expr:
        return self._binary("<", other)

    def __le__(self, other: ExprLike) -> Expr:
        return self._binary("<=", other)

    def __gt__(self, other: ExprLike) -> Expr:
        return self._binary(">", other)

    def __ge__(self, other: ExprLike) -> Expr:
        return self._binary(">=", other)

    def __pow__(self, other: ExprLike) -> Expr:
        return self._call("pow", other)

    def __abs__(self) -> Expr:
        return self._call("abs")

    def __round__(self, digits: int = 0) -> Expr:
        return self._call("round", digits)

    def __getitem__(self, part: str | ExprLike) -> Expr:
        return self._call("field" if isinstance(part, str) else "get", part)

    __hash__ = object.__hash__
