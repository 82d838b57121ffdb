"""The API's reference as a page: its own description (OpenAPI) for people, with the fields of bodies and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from controlplane.platform.guide import documents
from runs.api import application

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    name: str
    kind: str
    """Such as "text", "list of numbers" or "read | operate"."""
    required: bool
    about: str


@dataclass(frozen=True)
class FieldTable:
    """What is sent or answered in one place."""

    title: str
    fields: list[Field]


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    title: str
    about: str
    parts: list[FieldTable]


@dataclass(frozen=True)
class OperationGroup:
    title: str
    operations: list[Operation]

    @property
    def anchor(self) -> str:
        return slugify(self.title)


@require_safe
def reference(request: HttpRequest) -> HttpResponse:
    server = request.build_absolute_uri("/").rstrip("/")
    context = {"groups": groups(), "server": server, "others": documents.listed()}
    return render(request, "platform/guide/api.html", context)


@cache
def groups() -> list[OperationGroup]:
    """All operations, by their tag, in the order of the description."""
    found: dict[str, list[Operation]] = {}
    for path, methods in application.description()["paths"].items():
        for method, described in methods.items():
            found.setdefault(described["tags"][0], []).append(_operation(method, path, described))
    return [OperationGroup(tag.capitalize(), operations) for tag, operations in found.items()]


def _operation(method: str, path: str, described: Schema) -> Operation:
    parameters = described.get("parameters", [])
    parts = [FieldTable(title, _parameters(parameters, place)) for place, title in PLACES.items()]
    for content, schema in _contents(described.get("requestBody", {})):
        parts.append(FieldTable("Body" if content == JSON else f"Body, {content}", _fields(schema)))
    parts += _answer(described["responses"])
    about = described.get("description", "")
    kept = [part for part in parts if part.fields]
    return Operation(method.upper(), path, described["summary"], about, kept)


def _answer(responses: Schema) -> list[FieldTable]:
    """What all good answers hold alike. That a field of it is required says nothing to its reader."""
    schemas = [schema for answer in responses.values() for _, schema in _contents(answer)]
    fields = [replace(field, required=False) for field in _fields(schemas[0])] if schemas else []
    return [FieldTable(f"Answer {', '.join(responses)}", fields)]


JSON = "application/json"
PLACES = {"path": "Path", "query": "Query", "header": "Headers"}


def _contents(place: Schema) -> Iterator[tuple[str, Schema]]:
    for content, told in place.get("content", {}).items():
        yield content, _resolved(told.get("schema", {}))


def _parameters(parameters: Iterable[Schema], place: str) -> list[Field]:
    found = []
    for each in parameters:
        if each["in"] == place:
            name = each["name"].replace("_", "-").title() if place == "header" else each["name"]
            schema = each["schema"]
            about = each.get("description") or schema.get("description", "")
            found.append(Field(name, _kind(schema), each.get("required", False), about))
    return found


def _fields(schema: Schema) -> list[Field]:
    """Of an object, or of the objects of a list."""
    schema = _resolved(schema.get("items", schema))
    required = schema.get("required", ())
    return [
        Field(name, _kind(each), name in required, each.get("description", ""))
        for name, each in schema.get("properties", {}).items()
    ]


KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true | false", "null": "null"}


def _kind(schema: Schema) -> str:
    if "$ref" in schema and "enum" not in _resolved(schema):
        fields = ", ".join(_resolved(schema).get("properties", ()))
        return f"{{{fields}}}"
    schema = _resolved(schema)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(str(each) for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return KINDS.get(schema.get("type", ""), "object" if schema.get("type") else "anything")


def _resolved(schema: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    found: Schema = application.description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found
