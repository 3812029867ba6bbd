"""Fixtures of the sidecar's tests, which serve a state, serve here, too."""

from tests.sidecar.conftest import builder, serve

__all__ = ["builder", "serve"]
