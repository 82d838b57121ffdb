"""Attributes and texts that a page shows only where there is a value."""

import pytest
from django.template import Context, Template

from controlplane.platform.templatetags.optional import count


@pytest.mark.parametrize(
    ("source", "values", "shown"),
    [
        ("{{ x|into:'by <b>{}</b>' }}", {"x": "<i>"}, "by <b>&lt;i&gt;</b>"),
        ("{{ x|into:'by {}' }}", {"x": None}, ""),
        ("{{ x|sig|into:'of {}' }}", {"x": 0}, "of 0"),
        ("{{ x|nonzero|sig|into:'of {}' }}", {"x": 0}, ""),
        ("{{ x|into:'by {}'|default:'nobody' }}", {"x": ""}, "nobody"),
        ("{{ x|sig|dash }}", {"x": None}, '<span class="muted">–</span>'),
        ("<a{% attr 'title' x %}>", {"x": 'a "b"'}, '<a title="a &quot;b&quot;">'),
        ("<a{% attr 'title' x %}>", {"x": ""}, "<a>"),
        ("<p{% flag 'hidden' unless=x %}>", {"x": []}, "<p hidden>"),
        ("<p{% flag 'checked' x equals=2 %}>", {"x": 2}, "<p checked>"),
        ("<p{% flag 'checked' 2 among=x %}>", {"x": [1]}, "<p>"),
        ("<b{% aria 'pressed' x equals='a' %}>", {"x": "a"}, '<b aria-pressed="true">'),
        ("<b{% aria 'pressed' x %}>", {"x": ""}, '<b aria-pressed="false">'),
        ("<a{% current x 'rows' %}>", {"x": "rows"}, '<a aria-current="page">'),
        ("{% for y in x %}{{ y }}{{ forloop|separator:', ' }}{% endfor %}", {"x": "abc"}, "a, b, c"),
        ("{% link x 'Here' %}", {"x": "/a"}, '<a href="/a">Here</a>'),
        ("{% link x 'Here' %}", {"x": ""}, "Here"),
        ("{% last_time x %}", {"x": None}, "never"),
    ],
)
def test_nothing_is_shown_around_a_missing_value(source, values, shown):
    assert Template("{% load figures %}" + source).render(Context(values)) == shown


@pytest.mark.parametrize(("number", "words"), [(0, ""), (None, ""), (1, "1 row"), (1200, "1,200 rows")])
def test_a_count_has_its_noun(number, words):
    assert count(number, "row,rows") == words
