"""The documentation as pages: the project's Markdown files, with their links among each other."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from django.templatetags.static import static
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent.parent
STATIC = "frontend/static/"


@dataclass(frozen=True)
class Document:
    slug: str
    title: str
    path: str
    """Relative to the project's folder."""


DOCUMENTS = (
    Document("", "Overview", "README.md"),
    Document("commands", "Commands", "controlplane/setup/management/README.md"),
    Document("environments", "Tools, environments and turns", "controlplane/catalogue/environments/README.md"),
    Document("agents", "Train the agent you have", "runs/engine/gateway/README.md"),
    Document("api", "The API", "runs/api/README.md"),
    Document("grpoctl", "grpoctl and MCP", "controlplane/ctl/README.md"),
    Document("gpu-host", "A GPU host", "workers/host/README.md"),
    Document("team", "A team’s installation", "docker/README.md"),
    Document("control-plane", "Control plane", "controlplane/README.md"),
    Document("runs", "Runs", "runs/README.md"),
    Document("queue", "The queue, leases and resumes", "runs/engine/scheduling/README.md"),
    Document("machines", "Machines on demand", "runs/engine/machines/README.md"),
    Document("warm-servers", "Warm servers", "runs/engine/warm/README.md"),
    Document("reports-of-hosts", "What hosts report", "runs/intake/host_api/README.md"),
    Document("completions", "Completions and scores", "runs/insight/completions/README.md"),
    Document("secrets", "Secrets and keys", "runs/pages/secrets/README.md"),
    Document("deleting", "Deleting, renaming and archives", "runs/pages/trash/README.md"),
    Document("websocket", "The websocket", "runs/pages/live/README.md"),
    Document("chats", "Chats with a model", "runs/pages/served/README.md"),
    Document("hosts", "Hosts and processes", "workers/README.md"),
    Document("supervisor", "The supervisor", "workers/supervisor/README.md"),
    Document("attempt-folder", "Files of an attempt", "workers/supervisor/attempt-folder.md"),
    Document("stopping", "Steps, stops and receipts", "workers/supervisor/stopping.md"),
    Document("trainer", "The trainer", "workers/trainer/README.md"),
    Document("speed", "How fast", "workers/trainer/speed.md"),
    Document("sandbox", "The sandbox", "workers/sandbox/README.md"),
    Document("packages", "Packages of others", "workers/packages/README.md"),
    Document("sinks", "Figures for other programs", "workers/sinks/README.md"),
    Document("threats", "Threat model", "workers/threats.md"),
    Document("pages", "Pages and components", "frontend/README.md"),
    Document("gpu-proofs", "Proved on GPUs", "tests/gpu/README.md"),
    Document("benchmarks", "Benchmarks", "tests/benchmarks/README.md"),
    Document("changes", "Changes", "CHANGELOG.md"),
)


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str


@dataclass(frozen=True)
class Rendered:
    html: SafeString
    sections: list[Section]


def present() -> list[Document]:
    """Those that are installed: an image has no tests."""
    return [document for document in DOCUMENTS if (ROOT / document.path).is_file()]


def listed() -> list[tuple[Document, str]]:
    """The documents and their addresses, for the list at the side."""
    return [(each, address(each)) for each in present()]


def find(slug: str) -> Document | None:
    return next((document for document in present() if document.slug == slug), None)


@cache
def render(document: Document) -> Rendered:
    """Our own text, so its HTML is safe; tags written in it are shown, not used."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse((ROOT / document.path).read_text())
    sections = []
    for token, text in pairwise(tokens):
        if token.type == "heading_open":
            anchor = _anchor(text.content)
            token.attrSet("id", anchor)
            if token.tag == "h2":
                sections.append(Section(anchor, text.content.replace("`", "")))
            # The page has its own h1, the document's title.
            token.hidden = text.hidden = token.tag == "h1"
        for part in text.children or ():
            _lead(part, document)
    # Without the title, which the page shows as its heading.
    shown = tokens[3:] if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1" else tokens
    html = parser.renderer.render(shown, parser.options, {})
    return Rendered(mark_safe(html), sections)  # noqa: S308  our own documents


def address(document: Document) -> str:
    return reverse("document", args=[document.slug]) if document.slug else reverse("documents")


def _lead(part: Token, document: Document) -> None:
    """A link to another document, or a picture of ours, gets the address that this installation has for it."""
    name = {"link_open": "href", "image": "src"}.get(part.type)
    target = str(part.attrGet(name) or "") if name else ""
    if not name or not target or "://" in target or target.startswith("#"):
        return
    path, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(document.path), path))
    other = next((each for each in present() if each.path == path), None)
    if other is not None:
        part.attrSet(name, address(other) + (f"#{anchor}" if anchor else ""))
    elif path.startswith(STATIC):
        part.attrSet(name, static(path.removeprefix(STATIC)))
    else:  # a file that isn't served: its name alone
        part.attrs.pop(name)


def _anchor(heading: str) -> str:
    """As GitHub makes them, so that links within the documents hold."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
