"""A bundle: several programs run as one, so that they share sources and all arrangements that mean the same.

Sources with the same name become one source and must have the same columns. Views keep their names, which must differ.
"""

from collections.abc import Sequence

from vernier.operators.errors import NameClash, WrongType, listed
from vernier.operators.language.collection.app import App


def bundle(apps: Sequence[App]) -> App:
    """One app with the sources and views of all apps. It takes its name and `on_late` from the first app, and the
    longest `retain` of all, of the apps and of each source. Raises NameClash when two views have the same name,
    WrongType when a source has different columns or the apps differ in on_late."""
    first = apps[0]
    if len(apps) == 1:
        return first
    made = App(first.name, retain=max(app.retain_ns for app in apps), on_late=first.on_late)
    for app in apps:
        if app.on_late != first.on_late:
            raise WrongType(
                problem=f"app {app.name!r} has on_late={app.on_late!r}, but {first.name!r} has {first.on_late!r}; "
                "programs of one service treat late updates alike",
                where=app.where,
            )
        for name, source in app.sources.items():
            known = made.sources.setdefault(name, source)
            if known.schema != source.schema:
                raise WrongType(
                    problem=f"source {name!r} has the columns {source.schema} here and {known.schema} at {known.where}",
                    where=source.where,
                )
        for name, retain_ns in app.kept_sources.items():
            made.kept_sources[name] = max(retain_ns, made.kept_sources.get(name, 0))
        made.relied_keys |= app.relied_keys
        for name, view in app.views.items():
            if name in made.views:
                raise NameClash(
                    problem=f"view {name!r} is in two programs of this service ({made.views[name].where}); it has "
                    f"{listed(made.views)}",
                    where=view.where,
                )
            made.views[name] = view
        made.required += app.required
    return made
