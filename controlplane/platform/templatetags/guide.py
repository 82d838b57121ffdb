"""The "?" next to a word (`{% term "kl" %}`, `{% term_of_metric "kl" %}`, `{% term_of_chart chart %}`), and the help of
form fields, which is written in Python because templates are too slow for the many fields of New run."""

from typing import Any

from django import template
from django.forms import BoundField
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from controlplane.platform.guide.glossary import Term, by_field, by_metric, terms

register = template.Library()
WHY_TEMPLATE = "components/why.html"


@register.inclusion_tag(WHY_TEMPLATE)
def term(slug: str) -> dict[str, Any]:
    return _term_context(terms()[slug])


@register.inclusion_tag(WHY_TEMPLATE)
def term_of_metric(metric: str) -> dict[str, Any]:
    """Show the "?" of a metric, or nothing if the glossary has no term for it."""
    return _term_context(by_metric().get(metric))


@register.inclusion_tag(WHY_TEMPLATE)
def term_of_chart(chart: Any) -> dict[str, Any]:
    """Show the "?" of the first of a chart's metrics that the glossary has a term for."""
    entries = (by_metric().get(line.metric) for line in getattr(chart, "lines", ()))
    return _term_context(next(filter(None, entries), None))


@register.simple_tag
def tip_of(field: BoundField) -> str | SafeString:
    """Show the "?" that opens a field's help, if the form has `tips`.

    Tab skips it where the help is the field's accessible description, which F1 shows; a fieldset has none.
    """
    if not field.help_text or not getattr(field.form, "tips", False):
        return ""
    entry = by_field().get(field.name)
    glossary = format_html(' data-more="{}"', _address(entry)) if entry else ""
    tab_index = "" if field.use_fieldset else mark_safe(' tabindex="-1"')
    return format_html(
        '<button class="why" type="button" data-why-from="{}_helptext"{}{}><span aria-hidden="true">?</span>'
        '<span class="visually-hidden">About {}</span></button>',
        field.auto_id,
        glossary,
        tab_index,
        field.label,
    )


@register.simple_tag
def notes_of(field: BoundField) -> str | SafeString:
    tip = " tip" if getattr(field.form, "tips", False) else ""
    id_, errors = field.auto_id, field.errors
    help_text = field.help_text
    notes = format_html('<p class="help{}" id="{}_helptext">{}</p>', tip, id_, help_text) if help_text else ""
    if not errors:
        return notes
    lines = format_html_join("", "<li>{}</li>", ((error,) for error in errors))
    return format_html('{}<ul class="errorlist" id="{}_error" role="alert">{}</ul>', notes, id_, lines)


def _term_context(entry: Term | None) -> dict[str, Any]:
    if entry is None:
        return {}
    return {"label": entry.title, "text": entry.text, "address": _address(entry)}


def _address(entry: Term) -> str:
    return f"{reverse('glossary')}#{entry.slug}"
