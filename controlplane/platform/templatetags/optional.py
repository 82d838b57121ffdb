"""Attributes, links and texts around a value that are shown only where there is one. Loaded in every template."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import NOTHING, ago, sig

register = template.Library()

DASH = SafeString(f'<span class="muted">{NOTHING}</span>')


@register.filter
def into(value: Any, text: str) -> str | SafeString:
    """`text` (a literal of the template, maybe with markup) around a value; "" without a value or for a dash."""
    return "" if value in (None, "", NOTHING) or not value else format_html(text, value)


@register.filter
def dash(value: Any) -> Any:
    """A value, or a grey dash for none."""
    return DASH if value in (None, "", NOTHING) else value


@register.filter
def nonzero(value: Any) -> Any:
    """None for zero and for an empty value, which number formats show as a dash."""
    return value or None


@register.filter
def count(number: int | None, nouns: str) -> str:
    """A number with its noun, "row,rows"; "" for none."""
    one, _, many = nouns.partition(",")
    return f"{sig(number, 12)} {one if number == 1 else many or one}" if number else ""


@register.filter
def separator(forloop: dict[str, Any], text: str) -> str:
    """What separates the items of a loop: "" after the last."""
    return "" if forloop["last"] else text


@register.simple_tag
def attr(name: str, value: Any) -> str | SafeString:
    """An attribute with its value, if it has one."""
    return format_html(' {}="{}"', name, value) if value else ""


_ANY = object()


@register.simple_tag
def flag(
    name: str, value: Any = True, *, unless: Any = None, equals: Any = _ANY, among: Any = _ANY
) -> SafeString | str:
    """An attribute without a value, set by a true value, by an equal one or by one of several."""
    if equals is not _ANY:
        value = value == equals
    if among is not _ANY:
        value = isinstance(among, Container) and value in among
    return format_html(" {}", name) if value and not unless else ""


@register.simple_tag
def aria(name: str, value: Any = True, *, equals: Any = _ANY) -> SafeString:
    """An ARIA state, "true" or "false"."""
    on = value == equals if equals is not _ANY else bool(value)
    return format_html(' aria-{}="{}"', name, "true" if on else "false")


@register.simple_tag
def current(here: Any, this: Any, kind: str = "page") -> SafeString | str:
    """`aria-current` on the link to where the reader is."""
    return format_html(' aria-current="{}"', kind) if here == this else ""


@register.simple_tag
def link(address: str | None, text: Any, css: str = "") -> SafeString | str:
    """A text, as a link if there is an address."""
    return format_html('<a{} href="{}">{}</a>', attr("class", css), address, text) if address else text


@register.simple_tag
def last_time(moment: Any, never: str = "never") -> str:
    """How long ago something last happened, or that it never did."""
    return format_html("{} ago", ago(moment)) if moment else never
