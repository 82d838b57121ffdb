"""The "?" beside a word: `{% term "kl" %}`, `{% term_of_metric "kl" %}`, `{% term_of_chart chart %}`; and the help of
form fields, which New run has so many of that templates would take too long."""

from __future__ import annotations

from typing import Any

from django import template
from django.forms import BoundField
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from controlplane.platform.guide.glossary import Term, by_field, by_metric, terms

register = template.Library()
WHY = "components/why.html"


@register.inclusion_tag(WHY)
def term(slug: str) -> dict[str, Any]:
    return _shown(terms()[slug])


@register.inclusion_tag(WHY)
def term_of_metric(metric: str) -> dict[str, Any]:
    """Nothing for a metric that the glossary doesn't name."""
    return _shown(by_metric().get(metric))


@register.inclusion_tag(WHY)
def term_of_chart(chart: Any) -> dict[str, Any]:
    """Of the first of its metrics that the glossary names."""
    found = (by_metric().get(line.metric) for line in getattr(chart, "lines", ()))
    return _shown(next(filter(None, found), None))


@register.simple_tag
def tip_of(field: BoundField) -> str | SafeString:
    """The "?" that shows a field's help, if its form has `tips`. Tab passes it by where the help describes the field
    itself, and F1 there shows it; a fieldset has no such description."""
    if not field.help_text or not getattr(field.form, "tips", False):
        return ""
    found = by_field().get(field.name)
    more = format_html(' data-more="{}"', _address(found)) if found else ""
    passed_by = "" if field.use_fieldset else mark_safe(' tabindex="-1"')
    return format_html(
        '<button class="why" type="button" data-why-from="{}_helptext"{}{}><span aria-hidden="true">?</span>'
        '<span class="visually-hidden">About {}</span></button>',
        field.auto_id,
        more,
        passed_by,
        field.label,
    )


@register.simple_tag
def notes_of(field: BoundField) -> str | SafeString:
    """A field's help and its errors."""
    tip = " tip" if getattr(field.form, "tips", False) else ""
    id_, errors = field.auto_id, field.errors
    text = field.help_text
    notes = format_html('<p class="help{}" id="{}_helptext">{}</p>', tip, id_, text) if text else ""
    if not errors:
        return notes
    lines = format_html_join("", "<li>{}</li>", ((error,) for error in errors))
    return format_html('{}<ul class="errorlist" id="{}_error" role="alert">{}</ul>', notes, id_, lines)


def _shown(found: Term | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {"label": found.title, "text": found.text, "address": _address(found)}


def _address(found: Term) -> str:
    return f"{reverse('glossary')}#{found.slug}"
