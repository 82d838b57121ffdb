"""JSON that a model wrote against a JSON Schema that somebody typed: nothing fetched, nothing that can run for ever.

The schema may hold patterns, and those meet the model's text: they go through workers.rewards.pattern. Everything
else is bounded by a deadline that each keyword looks at.
"""

from __future__ import annotations

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
"""Of a property's name where the schema names properties by patterns: those are matched without a time limit."""

_now = threading.local()
_NOT_JSON = object()


def parsed(text: str) -> Any:
    """The value, or NOT_JSON: also for NaN and Infinity, which JSON hasn't, and for nesting beyond reason."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):  # ValueError: also whole numbers of thousands of digits
        return _NOT_JSON


def is_json(value: Any) -> bool:
    return value is not _NOT_JSON


def fits(value: Any, schema: str) -> bool:
    """Raises TimeoutError when it takes longer than VALIDATION_SECONDS; the schema has no `problem`."""
    validator = _validator(schema)
    _now.deadline = time.thread_time() + VALIDATION_SECONDS  # not of the clock: the machine may be busy
    try:
        return bool(validator.is_valid(value))
    except (RecursionError, ArithmeticError):  # a value nested as deep as Python goes; a number beyond any float
        return False


@functools.lru_cache(maxsize=256)
def problem(schema: str) -> str:
    """Why this text is no schema that can be used, in one sentence; empty when it is one."""
    try:
        held = json.loads(schema, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    if not isinstance(held, dict | bool):
        return "is no JSON Schema: it must be an object"
    try:
        return _schema_problem(held) or _pattern_problem(held) or _reference_problem(held, schema)
    except RecursionError:
        return "is nested too deep"


def _schema_problem(schema: Any) -> str:
    import jsonschema  # 0.2 s that most processes don't need

    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is not None and jsonschema.validators.validator_for(schema, default=None) is None:
        return f"names a $schema that isn't known: {str(named)[:100]!r}"
    kind = _kind(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = error.json_path.removeprefix("$").removeprefix(".")
        return f"is no JSON Schema: {f'at {where}: ' if where else ''}{error.message[:200]}"
    keywords = {*kind.VALIDATORS, "$schema", "$defs", "definitions"}
    if isinstance(schema, dict) and schema and not keywords & set(schema):
        return "has no keyword of JSON Schema (type, properties, …), so anything would fit it"
    return ""


def _pattern_problem(schema: Any) -> str:
    for part in _parts(schema):
        names = part.get("patternProperties")
        typed = [part.get("pattern"), *(names if isinstance(names, dict) else ())]
        for one in typed:
            if isinstance(one, str) and (said := pattern.problem(one, dot_all=False)):
                return f"has a pattern ({one[:60]!r}) that {said}"
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
    """Every object in it, at any depth."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


@functools.lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    """Raises ValueError for what `problem` refuses as no JSON."""
    import jsonschema.validators
    import referencing

    schema = json.loads(text)
    kind = _kind(schema)
    bounded = {keyword: _bounded(function) for keyword, function in kind.VALIDATORS.items()}
    bounded["pattern"] = _bounded(_pattern)
    bounded["patternProperties"] = _bounded(_short_names(kind.VALIDATORS.get("patternProperties")))
    bounded["uniqueItems"] = _bounded(_unique)
    # A registry of its own: the usual one fetches what a $ref names.
    return jsonschema.validators.extend(kind, bounded)(schema, registry=referencing.Registry())


def _kind(schema: Any) -> Any:
    import jsonschema

    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The keyword, which first looks at the time: a model may write what takes for ever under a harmless schema."""

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
    """The usual one compares every two items where they can't be sorted."""
    if value and validator.is_type(instance, "array") and len({_plain(item) for item in instance}) < len(instance):
        yield _error("has an item twice")


def _plain(value: Any) -> Any:
    """Equal for what JSON Schema calls equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((name, _plain(item)) for name, item in value.items())
    if isinstance(value, list):
        return "array", tuple(_plain(item) for item in value)
    return (type(value).__name__ if isinstance(value, bool) else "", value)


def _error(message: str) -> Any:
    import jsonschema

    return jsonschema.ValidationError(message)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
