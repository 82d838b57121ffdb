"""The API reference page, built from the OpenAPI description."""

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
    """Description of the type, such as "string", "list of number" or "read | operate"."""
    required: bool
    about: str


@dataclass(frozen=True)
class FieldTable:
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
    context = {"groups": groups(), "server": server, "others": documents.links()}
    return render(request, "platform/guide/api.html", context)


@cache
def groups() -> list[OperationGroup]:
    by_tag: dict[str, list[Operation]] = {}
    for path, methods in application.description()["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    return [OperationGroup(tag.capitalize(), operations) for tag, operations in by_tag.items()]


def _operation(method: str, path: str, description: Schema) -> Operation:
    parameters = description.get("parameters", [])
    parts = [FieldTable(title, _parameters(parameters, location)) for location, title in LOCATIONS.items()]
    for content, schema in _contents(description.get("requestBody", {})):
        parts.append(FieldTable("Body" if content == JSON else f"Body, {content}", _fields(schema)))
    parts += _response_table(description["responses"])
    about = description.get("description", "")
    filled = [part for part in parts if part.fields]
    return Operation(method.upper(), path, description["summary"], about, filled)


def _response_table(responses: Schema) -> list[FieldTable]:
    """Return the table of a successful response. It marks no field as required, which matters only in requests."""
    schemas = [schema for response in responses.values() for _, schema in _contents(response)]
    fields = [replace(field, required=False) for field in _fields(schemas[0])] if schemas else []
    return [FieldTable(f"Response {', '.join(responses)}", fields)]


JSON = "application/json"
LOCATIONS = {"path": "Path", "query": "Query", "header": "Headers"}


def _contents(body: Schema) -> Iterator[tuple[str, Schema]]:
    for content, described in body.get("content", {}).items():
        yield content, _resolve(described.get("schema", {}))


def _parameters(parameters: Iterable[Schema], location: str) -> list[Field]:
    fields = []
    for parameter in parameters:
        if parameter["in"] == location:
            name = parameter["name"].replace("_", "-").title() if location == "header" else parameter["name"]
            schema = parameter["schema"]
            about = parameter.get("description") or schema.get("description", "")
            fields.append(Field(name, _kind(schema), parameter.get("required", False), about))
    return fields


def _fields(schema: Schema) -> list[Field]:
    schema = _resolve(schema.get("items", schema))
    required_names = schema.get("required", ())
    return [
        Field(name, _kind(value), name in required_names, value.get("description", ""))
        for name, value in schema.get("properties", {}).items()
    ]


KINDS = {"string": "string", "integer": "integer", "number": "number", "boolean": "true | false", "null": "null"}


def _kind(schema: Schema) -> str:
    if "$ref" in schema and "enum" not in _resolve(schema):
        fields = ", ".join(_resolve(schema).get("properties", ()))
        return f"{{{fields}}}"
    schema = _resolve(schema)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_kind(choice) for choice in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(str(choice) for choice in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return KINDS.get(schema.get("type", ""), "object" if schema.get("type") else "anything")


def _resolve(schema: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    target: Schema = application.description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return target
