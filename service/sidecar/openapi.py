"""The OpenAPI document: what the routes declare, plus what all routes share: problems and tokens."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from vernier.service.sidecar import schemas
from vernier.service.sidecar.guard import needed

_BEARER = {"type": "http", "scheme": "bearer", "description": "A token of scope `read` or `admin`, where there are any"}


def described(app: FastAPI) -> dict[str, Any]:
    """Return the document; it is built once."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = document.setdefault("components", {})
    known = components.setdefault("schemas", {})
    # FastAPI's own error models, which are never used in answers.
    for name in ("HTTPValidationError", "ValidationError"):
        known.pop(name, None)
    for model in schemas.models:
        known.setdefault(model.__name__, model.model_json_schema(ref_template="#/components/schemas/{model}"))
    components["securitySchemes"] = {"token": _BEARER}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            # Every route refuses unknown query parameters with 400.
            operation["responses"] = {"400": schemas.problems(400)[400]} | operation["responses"]
            scope = needed(method.upper(), path, open_metrics=False)
            if scope == "none":
                continue
            operation["security"] = [{}, {"token": []}]
            operation["description"] = f"{operation.get('description', '')}\n\nScope: `{scope}`.".strip()
            refused = schemas.problems(401, 403)
            operation["responses"] |= {str(status): about for status, about in refused.items()}
    app.openapi_schema = document
    return document
