"""Masks the secrets in settings before they are shown to anyone."""

from __future__ import annotations

import re

MASK = "********"
_SECRET = re.compile(
    r"(?:password|passwd|secret|token|credential|private|api_?key|sasl_jaas|jaas)(?!.*_file$)", re.IGNORECASE
)
"""Names of secrets. A name that ends in _file is the path of a file, which is not a secret."""
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


def masked(value: object, name: str = "") -> object:
    """Return the JSON value with secret values, and user names and passwords inside URLs, replaced by a mask."""
    if isinstance(value, dict):
        return {str(key): masked(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(inner, name) for inner in value]
    if value is not None and not isinstance(value, bool) and _SECRET.search(name) and value != "":
        return MASK
    return _USERINFO.sub(f"{MASK}@", value) if isinstance(value, str) else value
