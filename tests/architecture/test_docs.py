"""The README keeps up with the commands."""

from __future__ import annotations

import re

import pytest

from controlplane.setup.serving.embedded import BASE_DIR as ROOT
from runs.pages.run_page.views import TABS

COMMANDS = sorted(
    path.stem for path in (ROOT / "controlplane" / "management" / "commands").glob("*.py") if path.stem != "__init__"
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_readme_names_every_command(command: str) -> None:
    assert f"manage.py {command}" in (ROOT / "README.md").read_text()


def test_the_readme_names_no_command_that_does_not_exist() -> None:
    django = {"changepassword", "createsuperuser", "makemigrations", "migrate", "shell"}
    named = set(re.findall(r"manage\.py ([a-z]+)", (ROOT / "README.md").read_text()))
    assert named <= {*COMMANDS, *django}


def test_the_readme_calls_the_tabs_of_a_runs_page_as_the_page_does() -> None:
    opened = (ROOT / "README.md").read_text().partition("The run page opens")[2].partition("On the list")[0]
    named = re.findall(r"\*\*(\w+)\*\*", opened)
    assert named
    assert set(named) <= set(TABS.values())


def test_every_relative_link_of_the_documents_leads_somewhere() -> None:
    broken = []
    for document in [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *ROOT.glob("*/README.md"),
        *ROOT.glob("tests/*/README.md"),
    ]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            if not (document.parent / target).exists():
                broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert broken == []
