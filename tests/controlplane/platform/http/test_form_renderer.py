"""Form fields are written as Django's own templates write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django import forms
from django.forms.renderers import DjangoTemplates, get_default_renderer
from django.utils.safestring import mark_safe

from controlplane.platform.http.form_renderer import WRITERS, Renderer

NASTY = "<b a=\"1\" c='2'>&amp; ü {{ x }}"
ATTRIBUTES = {"id": "id_x", "required": True, "disabled": False, "placeholder": NASTY, "size": 3, "data-x": None}
CHOICES: list[Any] = [
    ("", "none"),
    (1, "one"),
    (NASTY, NASTY),
    ("safe", mark_safe("<i>safe</i>")),
    (NASTY, [("a", "in a group"), ("b", NASTY)]),
]
VALUES: list[Any] = [
    None,
    "",
    "1",
    1,
    0,
    1234567,
    0.25,
    True,
    False,
    NASTY,
    "\n two lines \n",
    mark_safe("<i>&amp;</i>"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        forms.TextInput,
        forms.NumberInput,
        forms.HiddenInput,
        forms.EmailInput,
        forms.URLInput,
        lambda attrs: forms.PasswordInput(attrs, render_value=True),
        forms.CheckboxInput,
        forms.Textarea,
        lambda attrs: forms.Select(attrs, choices=CHOICES),
        lambda attrs: forms.RadioSelect(attrs, choices=CHOICES[:2]),
    ],
)
def test_a_field_is_written_as_by_the_templates(make: Callable[[Any], forms.Widget], value: Any) -> None:
    widget = make(ATTRIBUTES)
    ours, theirs = (widget.render("a<name", value, renderer=renderer) for renderer in (Renderer(), DjangoTemplates()))
    assert ours == theirs
    assert type(ours) is type(theirs)


def test_pages_use_it_and_every_template_exists() -> None:
    assert isinstance(get_default_renderer(), Renderer)
    for name in WRITERS:
        DjangoTemplates().get_template(name)
