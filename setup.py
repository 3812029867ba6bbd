"""Builds the distribution: one package, `vernier`, that contains `service`, `operators` and `storage`.

In the checkout these three lie beside `vernier.py`, which becomes the package's `__init__`. All other package metadata
is in pyproject.toml.
"""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

TOPS = ("storage", "operators", "service")


class OnePackage(build_py):
    """Installs vernier.py as the package's `__init__`, and adds `py.typed` and the `__main__` for `python -m
    vernier`."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            package = Path(self.build_lib, "vernier")
            self.copy_file("vernier.py", str(package / "__init__.py"))
            self.copy_file("service/cli/__main__.py", str(package / "__main__.py"))
            (package / "py.typed").touch()


setup(
    packages=[
        f"vernier.{name}" for name in find_packages(include=[pattern for top in TOPS for pattern in (top, f"{top}.*")])
    ],
    package_dir={f"vernier.{top}": top for top in TOPS},
    cmdclass={"build_py": OnePackage},
)
