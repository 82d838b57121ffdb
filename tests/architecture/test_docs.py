"""The documents keep up with the commands, and their links lead somewhere."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest

from controlplane.platform.guide import documents
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from runs.pages.run_page.views import TABS

COMMANDS = sorted(
    path.stem
    for path in (ROOT / "controlplane" / "setup" / "management" / "commands").glob("*.py")
    if path.stem != "__init__"
)
COMMANDS_PAGE = ROOT / "controlplane/setup/management/README.md"
NO_ROOMS = ("migrations", "templatetags", "__pycache__")
PAGES = ("controlplane", "runs", "workers", "frontend", "docker", "tests")


def test_the_page_of_commands_names_every_command(subtests: pytest.Subtests) -> None:
    for command in COMMANDS:
        with subtests.test(command=command):
            assert f"manage.py {command}`" in re.sub(r"(manage\.py \w+)[^`]*`", r"\1`", COMMANDS_PAGE.read_text())


@pytest.mark.parametrize("page", [ROOT / "README.md", COMMANDS_PAGE], ids=["README", "commands"])
def test_no_command_is_named_that_does_not_exist(page: Path) -> None:
    django = {"changepassword", "createsuperuser", "makemigrations", "migrate", "shell"}
    named = set(re.findall(r"manage\.py ([a-z]+)", page.read_text()))
    assert named <= {*COMMANDS, *django}


def test_help_serves_every_page_of_the_product() -> None:
    written = {str(page.relative_to(ROOT)) for folder in PAGES[:-1] for page in _pages(folder)}
    assert written <= {document.path for document in documents.DOCUMENTS}


def test_the_readme_calls_the_tabs_of_a_runs_page_as_the_page_does() -> None:
    opened = (ROOT / "README.md").read_text().partition("The run page opens")[2].partition("In the list")[0]
    named = re.findall(r"\*\*(\w+)\*\*", opened)
    assert named
    assert set(named) <= set(TABS.values())


def test_every_relative_link_of_the_documents_leads_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(page for folder in PAGES for page in _pages(folder))]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_every_link_to_a_section_of_another_document_names_one_that_it_has() -> None:
    by_path = {document.path: document for document in documents.DOCUMENTS}
    broken = []
    for document in documents.DOCUMENTS:
        for target, anchor in re.findall(r"\]\((?!https?:|#)([^)#]+)#([^)]+)\)", (ROOT / document.path).read_text()):
            other = by_path[posixpath.normpath(posixpath.join(posixpath.dirname(document.path), target))]
            if f'id="{anchor}"' not in documents.render_document(other).html:
                broken.append(f"{document.path}: {target}#{anchor}")
    assert broken == []


def test_every_file_of_ours_that_the_documents_name_exists() -> None:
    """Documents name files by their last folders; `convert_hf_to_gguf.py` is llama.cpp's."""
    files = [f"/{path.relative_to(ROOT)}" for folder in PAGES for path in (ROOT / folder).rglob("*.*")]
    files += [f"/{path.name}" for path in ROOT.iterdir()]
    missing = []
    for page in [ROOT / "README.md", *(page for folder in PAGES for page in _pages(folder))]:
        for name in re.findall(r"`([\w./-]+\.(?:py|js|css|html))`", page.read_text()):
            if name != "convert_hf_to_gguf.py" and not any(path.endswith(f"/{name}") for path in files):
                missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert missing == []


@pytest.mark.parametrize(("package", "depth"), [("runs", 2), ("controlplane", 2), ("workers", 1)])
def test_the_table_of_a_package_names_each_room_and_nothing_else(package: str, depth: int) -> None:
    table = (ROOT / package / "README.md").read_text().rpartition("| contents |")[2].partition("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    named = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell) if " " not in name}
    folders = {path.parent.relative_to(ROOT / package) for path in (ROOT / package).rglob("*.py")}
    rooms = {f"{folder}/" for folder in folders if len(folder.parts) == depth and folder.name not in NO_ROOMS}
    assert rooms - named == set()
    assert [name for name in named if not _exists(ROOT / package / name)] == []


def _exists(path: Path) -> bool:
    return path.exists() or path.with_suffix(".py").exists()


def _pages(folder: str) -> list[Path]:
    return [page for page in (ROOT / folder).rglob("*.md") if "node_modules" not in page.parts]
