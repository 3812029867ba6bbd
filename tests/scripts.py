"""Scripts of tools/ as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType


def script(root: Path, name: str) -> ModuleType:
    """The script tools/NAME.py, loaded."""
    spec = importlib.util.spec_from_file_location(name, root / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
