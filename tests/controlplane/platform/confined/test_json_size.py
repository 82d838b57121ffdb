"""The values of a JSON text are counted before it is parsed."""

from __future__ import annotations

import pytest

from controlplane.platform.confined.messages import has_too_many_values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[" + b"[]," * 50 + b"0]", True),
        (b"{" + b'"a":1,' * 50 + b'"b":0}', True),
        (b'{"a": "' + b"[{," * 500 + b'"}', False),
        (b'{"a": "' + b'\\",[' * 500 + b'"}', False),
        (b'{"a": "\\\\", "b": [' + b"1," * 50 + b"1]}", True),
        (b'["' + b'","' * 10 + b'"]', False),
        (b'["' + b'","' * 50 + b'"]', True),
        (b'"' * 1000 + b"," * 100, True),
        (b"", False),
    ],
)
def test_only_what_is_outside_strings_counts(text: bytes, expected: bool) -> None:
    assert has_too_many_values(text, limit=20) is expected
