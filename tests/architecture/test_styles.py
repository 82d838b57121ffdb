"""Where a component may be restyled."""

from __future__ import annotations

import re
from collections import Counter

from controlplane.setup.serving.processes import BASE_DIR as ROOT

STYLES = ROOT / "frontend/static/css"

COMPONENTS = {
    "button",
    "chip",
    "table",
    "card",
    "banner",
    "verdict",
    "tabs",
    "segments",
    "popup",
    "menu",
    "tag",
    "field",
    "empty",
    "prose",
    "bar",
    "drawer",
}
OWNERS = {"base.css", "components.css"}
RESTYLED = {
    "run_list.css": 3,  # tags that share a line with a cut name
    "completions.css": 6,  # the table of answers scrolls sideways under a fixed first column
    "run_page.css": 10,  # the head's lines have one height, whatever they say
    "hosts.css": 6,  # the queue and the matrix have their own layout on a phone
    "datasets.css": 1,  # rows of a file: fixed columns
    "new_run.css": 1,  # labels of fields that stand below each other
    "first_steps.css": 2,  # the act of a step is at its foot
    "pages.css": 1,  # the cards of a spec are in columns
    "metrics.css": 3,  # a chart's menu is at its edge; at the foot of a page it opens upwards
    "playground.css": 1,  # tabs at the top edge of a card
    "health.css": 1,  # only the chip and the marks of an unhealthy run are red
    "guide.css": 1,  # text takes the width of a phone
}
"""Rules outside the components' own file whose subject is a component, by file: fewer are welcome, more are not."""


def selectors(text: str) -> list[str]:
    rules = re.findall(r"([^{};]+)\{", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    return [rule.strip() for rule in rules if not rule.strip().startswith("@")]


def subjects(rule: str) -> set[str]:
    """Classes of the elements that a rule styles: those of the last compound of each of its selectors."""
    while (flat := re.sub(r"\([^()]*\)", "", rule)) != rule:
        rule = flat
    last = [re.split(r"[\s>+~]+", selector.strip())[-1] for selector in rule.split(",")]
    return {name for compound in last for name in re.findall(r"\.([\w-]+)", compound)}


def test_components_are_styled_in_their_own_file() -> None:
    restyled = Counter(
        path.name
        for path in STYLES.rglob("*.css")
        if path.name not in OWNERS
        for rule in selectors(path.read_text())
        if subjects(rule) & COMPONENTS
    )
    assert {name: count for name, count in restyled.items() if count > RESTYLED.get(name, 0)} == {}


def test_the_subject_of_a_rule_is_its_last_compound() -> None:
    assert subjects(".page:has(.button) > .table.runs, a .chip::before") == {"table", "runs", "chip"}
    assert selectors("@media print { .a { b: c; } }") == [".a"]
