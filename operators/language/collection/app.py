"""An App: the sources and views of one program, and how a program file is loaded as one."""

import linecache
import re
import sys
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from vernier.operators.errors import BadLoop, NameClash, ProgramError, WrongType, listed, meant
from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.collection.sql import front, is_sql
from vernier.operators.language.collection.variable import DelayedNode, delayed_below
from vernier.operators.language.expr.arguments import checked_methods
from vernier.operators.language.plan.logical import SourceNode, sources_below
from vernier.operators.language.plan.node import ROOT, Node
from vernier.operators.language.plan.owners import own
from vernier.operators.language.types.duration import nanoseconds
from vernier.operators.language.types.schema import Schema
from vernier.operators.location import NOWHERE, Location, at_frame, here

ON_LATE = ("dead_letter", "advance")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,127}")


@dataclass(frozen=True)
class ViewDecl:
    """A named view: its collection, and the columns by which readers look rows up."""

    name: str
    node: Node
    key: tuple[str, ...]
    where: Location = field(default=NOWHERE, compare=False)


@checked_methods
class App:
    """A program: sources that change, and views that are computed from them.

    name: letters, digits, _ and -; it names topics and state. retain: how far back views can be read, e.g.
    "10m" (`retain_ns` in nanoseconds of data time). on_late: what happens to an update whose time is before the
    frontier: "dead_letter" sends it to the dead-letter topic, "advance" moves it to the frontier; both are counted.
    """

    def __init__(self, name: str, *, retain: str | int = "10m", on_late: str = "dead_letter") -> None:
        self.where = here()
        self.name = _checked_name(name, "an app")
        self.retain = retain
        self.retain_ns = nanoseconds(retain, "retain")
        if on_late not in ON_LATE:
            hint = meant(str(on_late), ON_LATE)
            raise WrongType(problem=f"on_late must be one of {listed(ON_LATE)}, not {on_late!r}{hint}")
        self.on_late = on_late
        self.sources: dict[str, SourceNode] = {}
        self.kept_sources: dict[str, int] = {}
        """How much history of which sources is kept, in nanoseconds."""
        self.relied_keys: dict[str, tuple[tuple[str, ...], Location]] = {}
        """Keys of sources in which no two rows agree, on which views depend, and where they are declared."""
        self.views: dict[str, ViewDecl] = {}
        self.required: list[Node] = []

    def source(self, name: str, schema: type[Schema], *, retain: str | int | None = None) -> Collection:
        """Declare an input: a collection with the schema's columns. The configuration says where its updates come
        from.

        retain: keep its rows whole, with this much history ("10m"), so that programs and views that join later have
        that history, too (docs/changing.md). That costs one more arrangement of the source.
        """
        _checked_name(name, "a source")
        if not (isinstance(schema, type) and issubclass(schema, Schema) and schema is not Schema):
            raise WrongType(problem=f"source {name!r} needs a subclass of vn.Schema, not {schema!r}")
        if name in self.sources:
            raise NameClash(problem=f"source {name!r} is declared already, at {self.sources[name].where}")
        self.sources[name] = SourceNode(name, schema.row_type)
        own(self.sources[name], self)
        if retain is not None:
            self.kept_sources[name] = nanoseconds(retain, f"retain of source {name!r}")
        return Collection(self.sources[name])

    def require(self, node: Node) -> None:
        """Compute a collection although no view shows it, as checks and probes need."""
        self.required.append(node)

    def view(self, name: str, collection: Collection, *, key: str | Sequence[str] | None = None) -> Collection:
        """Declare a view that is kept up to date; `key`: the columns by which rows are looked up (default: all)."""
        _checked_name(name, "a view")
        given: object = collection
        if not isinstance(given, Collection):
            way = getattr(given, "unfinished", "")
            raise WrongType(problem=f"view {name!r} needs a collection, not {given!r}{way and f'; {way}'}")
        if name in self.views:
            raise NameClash(problem=f"view {name!r} is declared already, at {self.views[name].where}")
        node = collection.node
        if node.scope is not ROOT:
            raise BadLoop(
                problem=f"view {name!r} shows a collection from inside the body of fixpoint "
                f"{node.scope.name!r}; use what the fixpoint returns"
            )
        for source in sources_below(node):
            if self.sources.get(source.name) is not source:
                raise ProgramError(problem=f"view {name!r} uses source {source.name!r} of another app ({source.where})")
        names = collection.columns if key is None else (key,) if isinstance(key, str) else tuple(key)
        if not names or len(set(names)) < len(names):
            raise ProgramError(problem=f"the key of view {name!r} needs at least one column, each once, not {key!r}")
        for column in names:
            collection.schema.field(column, f"view {name!r}")
        self.views[name] = ViewDecl(name, node, names, here())
        return collection

    def sql(
        self,
        query: str,
        *,
        name: str | None = None,
        key: str | Sequence[str] | None = None,
        **collections: Collection,
    ) -> Collection:
        """The collection of a query in Spark SQL (docs/sql.md). It may name this app's sources and views, and the
        collections that are passed by keyword. With `name` it also becomes a view, which has this `key`.

        The first time, Spark plans the query in a process of its own (some seconds); plans are kept.
        """
        if not isinstance(query, str):
            raise WrongType(problem=f"sql takes the text of a query, not {query!r}")
        for given, one in collections.items():
            if not isinstance(one, Collection):
                raise WrongType(problem=f"sql: {given}= needs a collection, not {one!r}")
        found = front().query(self, query, collections)
        return found if name is None else self.view(name, found, key=key)

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that change when the meaning of a view, a view's key or a source's columns change."""
        sources = sorted((name, source.fingerprint) for name, source in self.sources.items())
        views = sorted((name, view.node.fingerprint, view.key) for name, view in self.views.items())
        variables = sorted((variable.name, variable.body.fingerprint) for variable in self.variables)
        parts = (self.name, sources, views, *variables)
        return xxhash.xxh3_128_hexdigest(repr(parts).encode())

    @property
    def variables(self) -> list[DelayedNode]:
        """The delayed variables that views, checks and probes depend on. Raises ProgramError for one that is never
        set."""
        return delayed_below([*(view.node for view in self.views.values()), *self.required])

    def __repr__(self) -> str:
        return f"App({self.name!r}, sources: {listed(self.sources)}, views: {listed(self.views)})"


def load_program(program: str | Path, name: str = "<program>") -> App:
    """Run a program and return its App. `program` is a path, or the program's text (`name` then stands for the file).
    A file whose name ends in .sql is a program in SQL (docs/sql.md).

    The program runs as a module of its own, and its directory is on the import path while it runs. Raises ProgramError,
    with the program's line, when the file cannot be read, the program raises, or it does not build exactly one App with
    a view.
    """
    text = str(program)
    if isinstance(program, Path) or "\n" not in text:
        path = Path(program)
        try:
            source, file, folder = path.read_text("utf-8"), str(path), str(path.resolve().parent)
        except (OSError, UnicodeDecodeError) as error:
            raise ProgramError(
                problem=f"the program {path} cannot be read: {error}", where=Location(str(path), 0, "")
            ) from error
    else:
        source, file, folder = text, name, ""
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    if is_sql(file, source):
        return front().program(source, file)
    module = types.ModuleType("vernier_program")
    module.__file__ = file
    _run(source, file, folder, module)
    apps = list({id(value): value for value in vars(module).values() if isinstance(value, App)}.values())
    at = apps[-1].where if apps else Location(file, 0, "")
    if len(apps) != 1:
        raise ProgramError(problem=f"a program builds one vn.App, but this one has {len(apps)}", where=at)
    if not apps[0].views:
        raise ProgramError(problem=f"app {apps[0].name!r} has no view: app.view(name, collection, key=[...])", where=at)
    _ = apps[0].variables  # raises for a variable that is not set
    return apps[0]


def _run(source: str, file: str, folder: str, module: types.ModuleType) -> None:
    try:
        code = compile(source, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        at = Location(file, error.lineno or 0, (error.text or "").strip())
        raise ProgramError(problem=f"syntax error: {error.msg}", where=at) from error
    # Schemas look up their annotations in sys.modules, and pickles their classes.
    before, sys.modules[module.__name__] = sys.modules.get(module.__name__), module
    if folder:
        sys.path.insert(0, folder)
    try:
        exec(code, module.__dict__)
    except ProgramError:
        raise
    except Exception as error:
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        at = at_frame(file, lines[-1].lineno or 0) if lines else Location(file, 0, "")
        raise ProgramError(problem=f"the program raised {type(error).__name__}: {error}", where=at) from error
    finally:
        if folder:
            sys.path.remove(folder)
        if before is None:
            sys.modules.pop(module.__name__, None)
        else:
            sys.modules[module.__name__] = before


def _checked_name(name: object, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WrongType(
            problem=f"{name!r} is not a valid name for {what}; use letters, digits, _ and -, a letter first"
        )
    return name
