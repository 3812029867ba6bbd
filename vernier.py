"""Vernier: standing queries over changing data, exact at every nanosecond. Programs import it as `vn`.

    import vernier as vn
    from vernier import col

    class Edge(vn.Schema):
        src: vn.Int64
        dst: vn.Int64

    app = vn.App("degrees")
    edges = app.source("edges", Edge)
    app.view("out_degree", edges.group_by("src").agg(n=vn.count()), key=["src"])

The public names are those of `operators/language/public.py`, and `connect`, `local`, `Producer`, `records`,
`register` and `testing`. They are loaded at first use, so that a process which needs one room of the package does not
load the language. `service`, `operators` and `storage` lie beside this file in a checkout and inside the package when
it is installed (setup.py); both import them as `vernier.service`, `vernier.operators` and `vernier.storage`.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

_INSTALLED = "__path__" in globals()
if not _INSTALLED:  # a checkout: this file is a module, and the rooms lie beside it
    __path__ = [str(Path(__file__).resolve().parent)]

if TYPE_CHECKING:
    from vernier.operators import testing as testing
    from vernier.operators.language.public import *  # noqa: F403
    from vernier.service.client.client import connect as connect
    from vernier.service.kafka.producer.policy import records as records
    from vernier.service.kafka.producer.producer import Producer as Producer
    from vernier.service.local import local as local
    from vernier.service.spark_source import register as register

_ALSO: dict[str, Callable[[], Any]] = {
    "Producer": lambda: import_module("vernier.service.kafka.producer.producer").Producer,  # brings a Kafka client
    "records": lambda: import_module("vernier.service.kafka.producer.policy").records,
    "connect": lambda: import_module("vernier.service.client.client").connect,  # brings an HTTP library
    "register": lambda: import_module("vernier.service.spark_source").register,  # Spark is loaded when it is called
    "local": lambda: import_module("vernier.service.local").local,  # loads the engine's kernels
    "testing": lambda: import_module("vernier.operators.testing"),  # loads the engine's kernels
}
"""Public names that are no part of the language."""
_LISTED = ("Producer", "records")
"""Of these, what `__all__` has, so that `from vernier import *` gives a program all that it writes with."""


def __getattr__(name: str) -> Any:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'vernier' has no attribute {name!r}")
    if _INSTALLED:
        # Compiled kernels are kept in the user's cache folder; numba must know that before it is loaded.
        import_module("vernier.service")
    if name in _ALSO:
        found = _ALSO[name]()
    else:
        public = import_module("vernier.operators.language.public")
        if name not in public.__all__ and name != "__all__":
            from vernier.operators.language.collection.names import no_function

            raise no_function(name, [*public.__all__, *_ALSO], public.Collection._methods())
        found = getattr(public, name)
        if name == "__all__":
            found = sorted([*found, *_LISTED])
    globals()[name] = found
    return found


def _sql_front() -> Any:
    """What builds SQL for the language (operators/language/collection/sql.py): the service's room for it."""
    return import_module("vernier.service.sql.front").FRONT


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), *_ALSO])


if __name__ == "__main__":
    import_module("vernier.service.cli.main").main()
