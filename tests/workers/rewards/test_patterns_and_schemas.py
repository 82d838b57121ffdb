"""Patterns that would run for ever and schemas that are none: refused before they are saved, bounded when they run."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from workers.rewards import pattern, schema
from workers.rewards.library import LIBRARY
from workers.rewards.scoring import score

CATASTROPHIC = [
    "(a+)+$", "(a|a)*$", "(a|aa)+$", r"(\d+)*x", "(.*a){20}b", r"^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y",
    r"([a-zA-Z]+)*\d", r"(\p{L}+)+!", "((ab)*)*c", r"(<think>(.|\n)*</think>)+x", r"(?:(?:\d+)+)+!", "(?R)?a",
]  # fmt: skip
TOO_MANY = [
    "a{99999999}", "(?:a{1000}){1000}", "a{2}{3}{10}{1000}{1000}", "a{" + "9" * 100 + "}", "(?:(a{99}){99}){99}",
    r"(\p{L}{999}){99}", "(?x)a{ 99 999 999 }", "(?x)(?:a{ 1000 }){ 1000 # often\n}", "(?ix-s:a{9#\n9999})",
]  # fmt: skip
BROKEN = ["(", "[", "*a", "a{2,1}", r"\L<words>", "(?P<n>a)(?P<n", "(" * 500 + ")" * 500]
FINE = [
    "<answer>.*?</answer>", r"^<think>.+?</think>\s*\S", r"<think>.*?</think>\s*<answer>.*?</answer>",
    r"\d{4}-\d{2}-\d{2}", ".{0,500}x.{0,500}", r"\p{L}+ing\b", r"^(?=.*\d)(?=.*[a-z]).{8,}$",
    "a{100}b{100}c{100}d{100}", r"\p{L}{100}x{100}",
    r"(?i)final answer:\s*(.+)", r"^\{.*\}$", r"<(\w+)>.*?</\1>", ".*foo.*bar.*baz", "[[a-z]--[aeiou]]+",
]  # fmt: skip


def test_a_pattern_that_backtracks_catastrophically_is_refused_soon(subtests: pytest.Subtests) -> None:
    for typed in CATASTROPHIC:
        with subtests.test(typed=typed):
            started = time.process_time()
            [said] = LIBRARY["regex_match"].check({"pattern": typed})
            assert said.startswith("pattern: backtracks catastrophically: 2,000 characters beginning with '")
            assert time.process_time() - started < 5


def test_a_pattern_that_would_fill_the_memory_is_never_compiled(subtests: pytest.Subtests) -> None:
    for typed in TOO_MANY:
        with subtests.test(typed=typed):
            assert pattern.problem(typed) == "must not repeat anything more than 10,000 times"


def test_a_pattern_that_does_not_compile_is_refused(subtests: pytest.Subtests) -> None:
    for typed in BROKEN:
        with subtests.test(typed=typed):
            assert pattern.problem(typed).startswith("is not a valid regular expression")


def test_a_usual_pattern_is_fine(subtests: pytest.Subtests) -> None:
    for typed in FINE:
        with subtests.test(typed=typed):
            assert pattern.problem(typed) == ""


def test_matching_is_interrupted_and_counts_for_nothing() -> None:
    text = "a" * 50_000 + "!"
    given = score(LIBRARY["regex_match"], [text, "aa"], [{}, {}], {"pattern": "(a+)+$"})
    assert given.values == [None, 1.0]
    assert [(failure.index, failure.kind) for failure in given.failures] == [(0, "timeout")]


PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "tags": {"type": "array", "uniqueItems": True}},
    "required": ["name"],
}
DOUBLING = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(30)}
NO_SCHEMAS = [
    ("{", "is not JSON: "),
    ("3", "is not a valid JSON Schema: it must be an object"),
    ("[" * 15_000, "is not JSON: "),
    ('{"maximum": NaN}', "is not JSON: NaN is not valid JSON"),
    ('{"type": "strin"}', "is not a valid JSON Schema: at type: 'strin' is not valid"),
    ('{"properties": {"a": {"required": "b"}}}', "is not a valid JSON Schema: at properties.a.required: 'b' is"),
    ('{"name": "Ann"}', "has no JSON Schema keyword"),
    ('{"$schema": "http://nowhere/", "type": "object"}', "has an unknown $schema"),
    ('{"$ref": "http://127.0.0.1:9/x.json"}', "refers to another document ('http://127.0.0.1:9/x.json'), which is"),
    ('{"properties": {"a": {"$ref": "file:///etc/passwd"}}}', "refers to another document"),
    ('{"properties": {"a": {"$ref": "#/$defs/b"}}}', "refers to '/$defs/b', which it doesn't define"),
    ('{"pattern": "("}', "is not a valid JSON Schema: at pattern: '(' is not a 'regex'"),
    ('{"items": {"pattern": "(a+)+$"}}', "has a pattern ('(a+)+$') that backtracks catastrophically"),
    ('{"patternProperties": {"(a|a)*$": {}}}', "has a pattern ('(a|a)*$') that backtracks catastrophically"),
    (json.dumps({"$defs": {**DOUBLING, "a30": {}}, "$ref": "#/$defs/a0"}), "takes more than 0.25 s"),
]  # fmt: skip


def test_what_is_no_schema_is_refused(subtests: pytest.Subtests) -> None:
    for typed, complaint in NO_SCHEMAS:
        with subtests.test(typed=typed):
            [said] = LIBRARY["json_valid"].check({"schema": typed})
            assert said.startswith(f"schema: {complaint}")


SCHEMAS = ["{}", "true", json.dumps(PERSON), '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}']


@pytest.mark.parametrize("typed", SCHEMAS)
def test_a_schema_is_fine(typed: str) -> None:
    assert schema.problem(typed) == ""


def test_a_value_is_held_against_the_schema() -> None:
    fits = {
        '{"name": "Ann"}': True,
        '{"name": "ann"}': False,
        "{}": False,
        '{"name": "Ann", "tags": [1, true, "1", [1], {"a": 1}]}': True,
        '{"name": "Ann", "tags": [1, 1.0]}': False,
        '{"name": "Ann", "tags": [{"a": [1]}, {"a": [1.0]}]}': False,
    }
    assert {value: schema.fits(schema.parsed(value), json.dumps(PERSON)) for value in fits} == fits


def test_forty_thousand_items_are_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # A collection of garbage over all that a test process holds may take longer than a value may.
    monkeypatch.setattr(schema, "VALIDATION_SECONDS", 5.0)
    items = [item for number in range(20_000) for item in (number, str(number))]
    assert schema.fits({"name": "Ann", "tags": items}, json.dumps(PERSON))  # comparing each with each takes minutes


def test_a_value_that_keeps_a_schema_busy_counts_for_nothing() -> None:
    held = {"$defs": {"a": {"items": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}, "type": "array"}}}
    value = '["x"]'
    for _ in range(24):
        value = f"[{value}]"
    given = score(LIBRARY["json_valid"], [value], [{}], {"schema": json.dumps({**held, "$ref": "#/$defs/a"})})
    assert given.values == [None]
    assert [failure.kind for failure in given.failures] == ["timeout"]


def test_a_number_beyond_any_float_does_not_fit() -> None:
    assert not schema.fits(schema.parsed("1" + "0" * 4_000), '{"multipleOf": 0.1}')


def test_a_reference_is_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket, "getaddrinfo", reached)
    monkeypatch.setattr(socket, "create_connection", reached)
    for typed in ('{"$ref": "http://example.com/a.json"}', '{"$id": "http://example.com/", "$ref": "a.json"}'):
        assert "never fetched" in schema.problem(typed)
        given = score(LIBRARY["json_valid"], ["{}"], [{}], {"schema": typed})
        assert (given.values, given.failures[0].kind) == ([None], "error")
