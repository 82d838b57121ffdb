"""Plausible bodies of the API's operations, made from their OpenAPI schema."""

from __future__ import annotations

import re
from typing import Any

WORDS = {
    "name": "another",
    "address": "https://hooks.example/x",
    "key": "k",
    "document": "",
    "code": "",
    "repository": "org/m",
    "grid": "",
    "text": "{}",
    "yaml": "",
}
"""Field -> a text that it may hold."""
PROPERTY = "properties"


class Bodies:
    """The bodies of a schema: one with only what is required, and one with everything that has no default too."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def of(self, operation: dict[str, Any], *, whole: bool) -> Any:
        content = operation.get("requestBody", {}).get("content", {})
        body = content.get("application/json") or next(iter(content.values()), None)
        return None if body is None else self.value("", body["schema"], whole=whole)

    def value(self, name: str, schema: dict[str, Any], *, whole: bool, depth: int = 0) -> Any:
        schema = self.resolved(schema)
        if "default" in schema and not whole:
            return schema["default"]
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[-1])
        kind = schema.get("type")
        if kind == "object" or PROPERTY in schema:
            wanted = schema.get(PROPERTY, {}) if whole and depth < 2 else schema.get("required", ())
            parts = {each: schema.get(PROPERTY, {}).get(each, {}) for each in wanted}
            return {each: self.value(each, part, whole=whole, depth=depth + 1) for each, part in parts.items()}
        if kind == "array":
            return [self.value(name, schema.get("items", {}), whole=whole, depth=depth + 1)]
        if kind in ("integer", "number"):
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        if kind == "boolean":
            return whole
        return WORDS.get(name, schema.get("default") or "text")[: schema.get("maxLength", 1000)] if kind else None

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Follow references, and take the first alternative that isn't null."""
        while True:
            if "$ref" in schema:
                schema = self.schema["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            elif options := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
                rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", "allOf")}
                first = next((each for each in options if each.get("type") != "null"), {})
                schema = {**self.resolved(first), **rest}
            else:
                return schema


def operations(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Route name -> its operation, as runs.api.access names routes."""
    found = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict):
                found[f"{method.upper()} {re.sub('^/api/v1/', '', path)}"] = operation
    return found
