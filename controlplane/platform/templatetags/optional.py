"""Tags and filters for attributes, links and text that are shown only if there is a value. Every template has them."""

from collections.abc import Container
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import NO_VALUE, ago, sig

register = template.Library()

DASH = SafeString(f'<span class="muted">{NO_VALUE}</span>')


@register.filter
def into(value: Any, pattern: str) -> str | SafeString:
    """Insert a value into a pattern, which may contain markup; return "" if there is no value or it is a dash."""
    return "" if value in (None, "", NO_VALUE) or not value else format_html(pattern, value)


@register.filter
def dash(value: Any) -> Any:
    """Return the value, or a grey dash if there is none."""
    return DASH if value in (None, "", NO_VALUE) else value


@register.filter
def nonzero(value: Any) -> Any:
    """Return the value, or None if it is zero or empty, so that number formats show a dash."""
    return value or None


@register.filter
def count(number: int | None, nouns: str) -> str:
    """Return a number with its noun, given as "row,rows", or "" for zero or None."""
    singular, _, plural = nouns.partition(",")
    return f"{sig(number, 12)} {singular if number == 1 else plural or singular}" if number else ""


@register.filter
def separator(forloop: dict[str, Any], text: str) -> str:
    """Return the text that separates the items of a loop, or "" after the last item."""
    return "" if forloop["last"] else text


@register.simple_tag
def attr(name: str, value: Any) -> str | SafeString:
    """Write an HTML attribute if it has a value."""
    return format_html(' {}="{}"', name, value) if value else ""


_UNSET_VALUE = object()


@register.simple_tag
def flag(
    name: str, value: Any = True, *, unless: Any = None, equals: Any = _UNSET_VALUE, among: Any = _UNSET_VALUE
) -> SafeString | str:
    """Write a boolean HTML attribute if `value` is true, equals `equals` or is in `among`, unless `unless` is true."""
    if equals is not _UNSET_VALUE:
        value = value == equals
    if among is not _UNSET_VALUE:
        value = isinstance(among, Container) and value in among
    return format_html(" {}", name) if value and not unless else ""


@register.simple_tag
def aria(name: str, value: Any = True, *, equals: Any = _UNSET_VALUE) -> SafeString:
    """Write an ARIA state with the value "true" or "false"."""
    is_on = value == equals if equals is not _UNSET_VALUE else bool(value)
    return format_html(' aria-{}="{}"', name, "true" if is_on else "false")


@register.simple_tag
def current(page: Any, linked: Any, kind: str = "page") -> SafeString | str:
    """Write `aria-current` for a link that leads to the current page."""
    return format_html(' aria-current="{}"', kind) if page == linked else ""


@register.simple_tag
def link(address: str | None, text: Any, css: str = "") -> SafeString | str:
    """Write text, as a link if there is an address."""
    return format_html('<a{} href="{}">{}</a>', attr("class", css), address, text) if address else text


@register.simple_tag
def last_time(moment: Any, never: str = "never") -> str:
    """Write how long ago something last happened, or `never`."""
    return format_html("{} ago", ago(moment)) if moment else never
