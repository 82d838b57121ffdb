"""JSON as configs have it: comments and trailing commas are taken, surprises are not."""

from __future__ import annotations

import pytest

from controlplane.platform.json_with_comments import JsonRefused, load


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, // one\n "b": [2, /* two */ 3,],}', {"a": 1, "b": [2, 3]}),
        ('{"url": "http://x//y", "c": "/* no */", "d": "1,}"}', {"url": "http://x//y", "c": "/* no */", "d": "1,}"}),
        ('\ufeff{"a": "\\""}', {"a": '"'}),
        ("[]", []),
    ],
)
def test_comments_and_trailing_commas_are_taken(text, value):
    assert load(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n// x\n"a": }', "Line 3, column 6"),
        ('{"a": 1, "a": 2}', "occurs twice"),
        ('{"a": Infinity}', "not a JSON value"),
        ('{"a": "\\ud800"}', "unpaired surrogate"),
        ("[" * 100_000, "nested more than"),
        ("9" * 10_000, "too long"),
        ('{"a": 1} /* open', "Line 1"),
        (",", "Line 1"),
        ("/*" * 400_000, "Line 1"),
        ('{"' + '\\"' * 400_000, "Line 1"),
        ("/*/", "Line 1"),
    ],
)
def test_what_can_not_be_read_is_said_with_its_line(text, words):
    with pytest.raises(JsonRefused, match=words):
        load(text)
