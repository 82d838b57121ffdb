from __future__ import annotations

import pytest
from django.template import Context, Template
from lucide.templatetags.lucide import lucide as of_the_package


def test_an_icon_is_the_packages_in_its_size() -> None:
    drawn = Template("{% load lucide %}{% lucide icon size=16 %}").render(Context({"icon": "database"}))
    assert "".join(drawn.split()) == "".join(of_the_package("database", size=16).split())


def test_a_name_without_an_icon_is_an_error() -> None:
    with pytest.raises(KeyError, match="no-such-icon"):
        Template('{% load lucide %}{% lucide "no-such-icon" %}').render(Context())
