"""JSON bodies: what is replaced in reported text, and what is refused in names."""

from __future__ import annotations

import json

import pytest

from controlplane.platform.http.request_body import (
    PIECE_BYTES,
    BadBody,
    decode,
    decode_exact,
    decode_lines,
    field_value,
)
from runs.intake.host_api.views import SamplesBody
from workers.contract.wire.artifacts import StoreRequest


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": "x\\u0000y"}', {"a": "x\ufffdy"}),
        (b'{"a\\u0000": "\\\\u0000 \\\\\\u0000"}', {"a\ufffd": "\\u0000 \\\ufffd"}),
        (b'{"a": "\\ud800\\u0000"}', {"a": "?\ufffd"}),
        (b'{"a": "\\ud83e\\udd93"}', {"a": "🦓"}),
    ],
)
def test_odd_characters_of_reports_are_replaced(body: bytes, expected: dict[str, str]) -> None:
    assert decode(body, dict[str, str]) == expected


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be"])
def test_only_utf_8_is_read_because_escapes_of_others_are_not_seen(encoding: str) -> None:
    with pytest.raises(BadBody, match="not JSON"):
        decode('{"a": "\\u0000"}'.encode(encoding), dict[str, str])


@pytest.mark.parametrize("odd", ["\\u0000", "\\ud800", "\\udc00x", "\\\\\\u0000"])
@pytest.mark.parametrize(
    "where", ['"path": "/b/{}"', '"path": "/b", "query": "{}"', '"path": "", "headers": {{"{}": ""}}']
)
def test_names_with_odd_characters_are_refused_in_words(odd: str, where: str) -> None:
    with pytest.raises(BadBody, match="NUL character or an unpaired surrogate") as caught:
        decode_exact(f'{{"method": "GET", {where.format(odd)}}}'.encode(), StoreRequest)
    assert caught.value.status == 422


def test_plain_bytes_of_half_a_character_are_refused_too() -> None:
    with pytest.raises(BadBody, match="unpaired surrogate"):
        decode_exact(b'{"a": "\xed\xa0\x80"}', dict[str, str])


@pytest.mark.parametrize("text", ["\\\\u0000", "\\u00e4", "\\ud83e\\udd93", "\\\\ud800"])
def test_names_with_other_escapes_are_kept(text: str) -> None:
    assert decode_exact(f'{{"a": "{text}"}}'.encode(), dict[str, str])["a"]


LONG = "x, [" * 30_000


def body_of(*lines: str) -> bytes:
    return b'{"first_line": 3, "lines": [' + ", ".join(lines).encode() + b"]}" + b" " * PIECE_BYTES


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('"step": 1, "text": "', {"step": 1, "text": LONG}),
        ('"step": NaN, "text": "NaN -Infinity', {"step": None, "text": f"NaN -Infinity{LONG}"}),
        ('"step": -Infinity, "text": "\\u0000\\ud800', {"step": None, "text": f"\ufffd?{LONG}"}),
        ('"step": 1, "text": "\\"\\uD83E\\uDD93 \\\\ud800', {"step": 1, "text": f'"🦓 \\ud800{LONG}'}),
        ('"step": 1, "text": "\\uDD93', {"step": 1, "text": f"?{LONG}"}),
    ],
)
def test_long_bodies_are_decoded_line_by_line_with_the_same_result(line: str, expected: dict[str, object]) -> None:
    body = body_of(*[f'{{{line}{LONG}"}}'] * 3)
    document = decode_lines(body, SamplesBody)
    assert (document.first_line, document.lines) == (3, [expected] * 3)
    assert document.lines == decode(body, SamplesBody).lines


def test_no_piece_of_a_long_body_is_decoded_with_too_many_values() -> None:
    few, many = ('{"a": [' + "0," * count + "0]}" for count in (250_000, 400_000))
    for lines in ([many], [few] * 8):
        with pytest.raises(BadBody, match="values") as caught:
            decode_lines(body_of(*lines), SamplesBody)
        assert caught.value.status == 413
    with pytest.raises(BadBody, match="more than 300,000 values"):
        decode(many.encode(), dict[str, list[int]])


def test_an_error_in_a_long_body_names_its_line() -> None:
    with pytest.raises(BadBody, match="Expected `object`") as caught:
        decode_lines(body_of('{"a": 1}', '{"a": NaN}', '"not an object"'), SamplesBody)
    assert caught.value.where == "$.lines[2]"
    with pytest.raises(BadBody, match="not JSON"):
        decode_lines(body_of('{"a": 1}')[:28] + b" " * PIECE_BYTES, SamplesBody)


@pytest.mark.parametrize("escape", ["\\u0000", "\\\\", "\\\\u0000", "\\n"])
def test_escapes_are_decoded_alike_wherever_a_long_body_is_cut(escape: str) -> None:
    for lead in range(8):
        text = "a" * lead + escape * PIECE_BYTES
        expected = json.loads(f'"{text}"').replace("\0", "\ufffd")
        assert decode(f'{{"a": "{text}"}}'.encode(), dict[str, str]) == {"a": expected}


def test_the_values_of_a_body_and_of_a_field_are_counted_before_they_are_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = "[" + "0," * 400_000 + "0]"
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("parsed"))
    for parse in (lambda: decode_exact(many.encode(), list[int]), lambda: field_value(many)):
        with pytest.raises(BadBody, match="more than 300,000 values, which is the limit") as caught:
            parse()
        assert caught.value.status == 413
