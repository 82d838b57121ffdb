"""Validation of model-written JSON against a user-defined JSON Schema, without fetching anything or running forever.

The schema's patterns are matched against the model's text, so they use workers.rewards.pattern. Everything else has a
deadline that each keyword checks.
"""

import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from workers.rewards import pattern

MAX_SCHEMA_LENGTH = 20_000
VALIDATION_SECONDS = 0.25
MAX_PATTERNED_NAME = 256
"""Maximum length of a property name if the schema has patternProperties, which are matched without a time limit."""

_local = threading.local()
_NOT_JSON = object()


def parsed(text: str) -> Any:
    """Parse JSON and return its value, or _NOT_JSON if it is invalid, contains NaN or Infinity, or is nested too
    deeply."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):  # ValueError: also integers of thousands of digits
        return _NOT_JSON


def is_json(value: Any) -> bool:
    return value is not _NOT_JSON


def fits(value: Any, schema: str) -> bool:
    """Return whether a value fits a schema without a `problem`. Raises TimeoutError after VALIDATION_SECONDS."""
    validator = _validator(schema)
    _local.deadline = time.thread_time() + VALIDATION_SECONDS  # CPU time: the machine may be busy
    try:
        return bool(validator.is_valid(value))
    except (RecursionError, ArithmeticError):  # a value nested as deep as Python allows; a number beyond any float
        return False


@functools.lru_cache(maxsize=256)
def problem(schema: str) -> str:
    """Return why the schema can't be used, as a sentence without its subject, or "" if it can be used."""
    try:
        parsed_schema = json.loads(schema, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    if not isinstance(parsed_schema, dict | bool):
        return "is not a valid JSON Schema: it must be an object"
    try:
        return (
            _schema_problem(parsed_schema)
            or _pattern_problem(parsed_schema)
            or _reference_problem(parsed_schema, schema)
        )
    except RecursionError:
        return "is nested too deeply"


def _schema_problem(schema: Any) -> str:
    import jsonschema  # 0.2 s that most processes don't need

    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    if dialect is not None and jsonschema.validators.validator_for(schema, default=None) is None:
        return f"has an unknown $schema: {str(dialect)[:100]!r}"
    kind = _kind(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = error.json_path.removeprefix("$").removeprefix(".")
        return f"is not a valid JSON Schema: {f'at {where}: ' if where else ''}{error.message[:200]}"
    keywords = {*kind.VALIDATORS, "$schema", "$defs", "definitions"}
    if isinstance(schema, dict) and schema and not keywords & set(schema):
        return "has no JSON Schema keyword (type, properties, …), so any value would fit it"
    return ""


def _pattern_problem(schema: Any) -> str:
    for part in _parts(schema):
        names = part.get("patternProperties")
        for expression in (part.get("pattern"), *(names if isinstance(names, dict) else ())):
            if isinstance(expression, str) and (error := pattern.problem(expression, dot_all=False)):
                return f"has a pattern ({expression[:60]!r}) that {error}"
    return ""


def _reference_problem(schema: Any, schema_json: str) -> str:
    for part in _parts(schema):
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(reference := part.get(keyword), str) and not reference.startswith("#"):
                return f"refers to another document ({reference[:100]!r}), which is never fetched"
    import referencing.exceptions

    try:
        examples: tuple[Any, ...] = ({}, [], "", 0, None, True)
        for example in examples:
            fits(example, schema_json)
        for part in _parts(schema):
            if isinstance(part.get("$ref"), str):
                _validator(schema_json).evolve(schema={"$ref": part["$ref"]}).is_valid({})
    except referencing.exceptions.Unresolvable as error:
        return f"refers to {str(error.ref)[:100]!r}, which it doesn't define"
    except TimeoutError:
        return f"takes more than {VALIDATION_SECONDS:g} s to check even the smallest values"
    return ""


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack += value.values()
        elif isinstance(value, list):
            stack += value


@functools.lru_cache(maxsize=256)
def _validator(schema_json: str) -> Any:
    import jsonschema.validators
    import referencing

    schema = json.loads(schema_json)
    kind = _kind(schema)
    bounded = {keyword: _with_deadline(function) for keyword, function in kind.VALIDATORS.items()}
    bounded["pattern"] = _with_deadline(_pattern)
    bounded["patternProperties"] = _with_deadline(_short_names(kind.VALIDATORS.get("patternProperties")))
    bounded["uniqueItems"] = _with_deadline(_unique)
    # Its own registry, because the default one fetches the documents that a $ref names.
    return jsonschema.validators.extend(kind, bounded)(schema, registry=referencing.Registry())


def _kind(schema: Any) -> Any:
    import jsonschema

    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)


def _with_deadline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a keyword's function with a deadline check, because a harmless schema may be slow for a model's JSON."""

    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if time.thread_time() > getattr(_local, "deadline", float("inf")):
            raise TimeoutError(f"checking a value against its schema took more than {VALIDATION_SECONDS:g} s")
        yield from function(validator, value, instance, schema) or ()

    return keyword


def _pattern(validator: Any, value: str, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not pattern.matches(value, instance, dot_all=False):
        yield _error(f"{instance[:60]!r} doesn't match {value!r}")


def _short_names(original: Callable[..., Any] | None) -> Callable[..., Any]:
    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if isinstance(instance, dict) and any(len(name) > MAX_PATTERNED_NAME for name in instance):
            yield _error("a property name is too long to be matched")
        elif original is not None:
            yield from original(validator, value, instance, schema) or ()

    return keyword


def _unique(validator: Any, value: bool, instance: Any, schema: Any) -> Iterator[Any]:
    """Check uniqueItems in linear time; the standard keyword compares all pairs of items that can't be sorted."""
    if value and validator.is_type(instance, "array") and len({_hashable(item) for item in instance}) < len(instance):
        yield _error("contains an item twice")


def _hashable(value: Any) -> Any:
    """Return a hashable key that is equal for values equal in JSON Schema: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((name, _hashable(item)) for name, item in value.items())
    if isinstance(value, list):
        return "array", tuple(_hashable(item) for item in value)
    return (type(value).__name__ if isinstance(value, bool) else "", value)


def _error(message: str) -> Any:
    import jsonschema

    return jsonschema.ValidationError(message)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")
