"""What every template keeps to, so that screen readers can tell what is there. axe finds the rest (tests/browser)."""

from __future__ import annotations

import re

import pytest

from controlplane.setup.serving.processes import BASE_DIR

TEMPLATES = sorted((BASE_DIR / "frontend" / "templates").rglob("*.html"))
RULES = {
    "a column has a name": r"<th[^>]*></th>",
    "what can't be followed still has a role": r"<a\b(?:(?!role=)[^>]|%>)*?{% else %}aria-disabled",
    "only tabs are selected": r"<button\b[^>]*aria-selected",
}


@pytest.mark.parametrize("rule", RULES)
def test_every_template_keeps_to(rule: str) -> None:
    broken = [path.name for path in TEMPLATES if re.search(RULES[rule], path.read_text())]
    assert broken == []
