"""URL-encoded forms are parsed as Django parses them, but in slices."""

from __future__ import annotations

import pytest
from django.core.exceptions import TooManyFieldsSent
from django.http import QueryDict

from controlplane.platform.http import form_fields
from controlplane.platform.http.form_fields import decode_part, fields_of

FORMS = [
    *(b"", b"a", b"a=", b"=a", b"&&a=1&", b"a=1&a=2&b=3", b"a=1=2", b"a+b=c+d%2B", b"a%26b=%3D", b"a;b=1"),
    *(b"a=%", b"a=%4", b"a=%zz%41%4", b"%=%%41%%", b"a=%00", b"a=%ED%A0%80", b"a=%C3%A4%C3", b"a=%c3%a4"),
    *("ä=ö&ü=%C3%A4ß".encode(), b"a=\xe4%C3%A4", b"a=\xff&b=%41"),
]


@pytest.mark.parametrize("slice_bytes", [3, 4, 5, 2**16])
@pytest.mark.parametrize("body", FORMS)
def test_a_form_has_the_fields_that_django_finds(
    body: bytes, slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(form_fields, "SLICE_BYTES", slice_bytes)
    assert fields_of(body) == QueryDict(body, encoding="utf-8")


@pytest.mark.parametrize("unit", [b"%", b"%4", b"%41", b"a", b"%%", b"%E4%BD%A0"])
def test_no_more_than_a_slice_is_decoded_at_once(unit: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def decode(text: bytes) -> bytes:
        sizes.append(len(text))
        return b""

    monkeypatch.setattr(form_fields, "unquote_to_bytes", decode)
    text = unit * (2**20 // len(unit))
    decode_part(text)
    assert sum(sizes) == len(text)
    assert max(sizes) <= form_fields.SLICE_BYTES


def test_the_number_of_fields_is_limited_before_they_are_split() -> None:
    assert len(fields_of(b"&".join(b"a%d=" % number for number in range(1000)))) == 1000
    with pytest.raises(TooManyFieldsSent, match="more than 1,000 fields"):
        fields_of(b"&" * 1000)


def test_a_parsed_form_can_not_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        fields_of(b"a=1")["a"] = "2"
