"""Validation of model-written JSON with a user-defined JSON Schema: fetches nothing, and can't run forever.

The schema's patterns are matched with the model's text, so they use workers.rewards.pattern. Everything else has a
deadline that each keyword checks.
"""

import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from workers.rewards import pattern

LONGEST_SCHEMA = 20_000
VALIDATION_SECONDS = 0.25
LONGEST_PATTERNED_NAME = 256
"""Limit of a property name's length if the schema has patternProperties, which are matched without a time limit."""

_now = threading.local()
_NOT_JSON = object()


def parsed(text: str) -> Any:
    """Return the value, or _NOT_JSON, also for NaN, Infinity and excessive nesting."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):  # ValueError: also integers of thousands of digits
        return _NOT_JSON


def is_json(value: Any) -> bool:
    return value is not _NOT_JSON


def fits(value: Any, schema: str) -> bool:
    """Return whether a value fits a schema, which must have no `problem`. Raises TimeoutError after
    VALIDATION_SECONDS."""
    validator = _validator(schema)
    _now.deadline = time.thread_time() + VALIDATION_SECONDS  # CPU time: the machine may be busy
    try:
        return bool(validator.is_valid(value))
    except (RecursionError, ArithmeticError):  # a value nested as deep as Python allows; a number beyond any float
        return False


@functools.lru_cache(maxsize=256)
def problem(schema: str) -> str:
    """Return why the text isn't a usable schema, as a sentence without subject; "" if it is."""
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
        return "is nested too deep"


def _schema_problem(schema: Any) -> str:
    import jsonschema  # 0.2 s that most processes don't need

    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    if dialect is not None and jsonschema.validators.validator_for(schema, default=None) is None:
        return f"names a $schema that isn't known: {str(dialect)[:100]!r}"
    kind = _kind(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = error.json_path.removeprefix("$").removeprefix(".")
        return f"is not a valid JSON Schema: {f'at {where}: ' if where else ''}{error.message[:200]}"
    keywords = {*kind.VALIDATORS, "$schema", "$defs", "definitions"}
    if isinstance(schema, dict) and schema and not keywords & set(schema):
        return "has no keyword of JSON Schema (type, properties, …), so anything would fit it"
    return ""


def _pattern_problem(schema: Any) -> str:
    for part in _parts(schema):
        names = part.get("patternProperties")
        for text in (part.get("pattern"), *(names if isinstance(names, dict) else ())):
            if isinstance(text, str) and (error := pattern.problem(text, dot_all=False)):
                return f"has a pattern ({text[:60]!r}) that {error}"
    return ""


def _reference_problem(schema: Any, text: str) -> str:
    for part in _parts(schema):
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(reference := part.get(keyword), str) and not reference.startswith("#"):
                return f"refers to another document ({reference[:100]!r}), which is never fetched"
    import referencing.exceptions

    try:
        smallest: tuple[Any, ...] = ({}, [], "", 0, None, True)
        for example in smallest:
            fits(example, text)
        for part in _parts(schema):
            if isinstance(part.get("$ref"), str):
                _validator(text).evolve(schema={"$ref": part["$ref"]}).is_valid({})
    except referencing.exceptions.Unresolvable as error:
        return f"refers to {str(error.ref)[:100]!r}, which isn't in it"
    except TimeoutError:
        return f"takes more than {VALIDATION_SECONDS:g} s on the smallest of values"
    return ""


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects in the schema, at any depth."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


@functools.lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    """Return a validator. Raises ValueError for text that isn't JSON."""
    import jsonschema.validators
    import referencing

    schema = json.loads(text)
    kind = _kind(schema)
    bounded = {keyword: _bounded(function) for keyword, function in kind.VALIDATORS.items()}
    bounded["pattern"] = _bounded(_pattern)
    bounded["patternProperties"] = _bounded(_short_names(kind.VALIDATORS.get("patternProperties")))
    bounded["uniqueItems"] = _bounded(_unique)
    # A registry of its own: the default one fetches what a $ref names.
    return jsonschema.validators.extend(kind, bounded)(schema, registry=referencing.Registry())


def _kind(schema: Any) -> Any:
    import jsonschema

    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a check of the deadline to a keyword: a harmless schema may be slow for a model's JSON."""

    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if time.thread_time() > getattr(_now, "deadline", float("inf")):
            raise TimeoutError(f"checking a value against its schema took more than {VALIDATION_SECONDS:g} s")
        yield from function(validator, value, instance, schema) or ()

    return keyword


def _pattern(validator: Any, value: str, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not pattern.matches(value, instance, dot_all=False):
        yield _error(f"{instance[:60]!r} doesn't match {value!r}")


def _short_names(usual: Callable[..., Any] | None) -> Callable[..., Any]:
    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if isinstance(instance, dict) and any(len(name) > LONGEST_PATTERNED_NAME for name in instance):
            yield _error("a property's name is too long to be matched")
        elif usual is not None:
            yield from usual(validator, value, instance, schema) or ()

    return keyword


def _unique(validator: Any, value: bool, instance: Any, schema: Any) -> Iterator[Any]:
    """Check uniqueItems in linear time; the standard keyword compares all pairs of items that can't be sorted."""
    if value and validator.is_type(instance, "array") and len({_plain(item) for item in instance}) < len(instance):
        yield _error("has an item twice")


def _plain(value: Any) -> Any:
    """Return a hashable key, equal for values that are equal in JSON Schema: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((name, _plain(item)) for name, item in value.items())
    if isinstance(value, list):
        return "array", tuple(_plain(item) for item in value)
    return (type(value).__name__ if isinstance(value, bool) else "", value)


def _error(message: str) -> Any:
    import jsonschema

    return jsonschema.ValidationError(message)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")
