"""Pages with the documentation and the glossary, and the record that a person has seen the tour."""

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_POST, require_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from controlplane.platform.accounts.roles import person
from controlplane.platform.guide.glossary import terms

ROOT = Path(__file__).resolve().parents[3]
STATIC = "frontend/static/"


@dataclass(frozen=True)
class GuideDocument:
    slug: str
    title: str
    path: str


DOCUMENTS = (
    GuideDocument("", "Overview", "README.md"),
    GuideDocument("commands", "Commands", "controlplane/setup/management/README.md"),
    GuideDocument("environments", "Tools, environments and turns", "controlplane/catalogue/environments/README.md"),
    GuideDocument("agents", "Train the agent you have", "runs/engine/gateway/README.md"),
    GuideDocument("api", "The API", "runs/api/README.md"),
    GuideDocument("grpoctl", "grpoctl and MCP", "controlplane/ctl/README.md"),
    GuideDocument("gpu-host", "A GPU host", "workers/host/README.md"),
    GuideDocument("team", "A team’s installation", "docker/README.md"),
    GuideDocument("without-containers", "Without containers", "docker/without-containers.md"),
    GuideDocument("store", "A store for checkpoints", "docker/store.md"),
    GuideDocument("sources", "Slurm and SkyPilot", "docker/machines.md"),
    GuideDocument("monitoring", "Health checks and monitoring", "docker/monitoring.md"),
    GuideDocument("sandboxes", "Sandboxes in containers", "docker/sandbox.md"),
    GuideDocument("image-proofs", "What is proved about the images", "docker/proofs.md"),
    GuideDocument("settings", "Settings", "controlplane/settings.md"),
    GuideDocument("database", "Database and backup", "controlplane/platform/database.md"),
    GuideDocument("accounts", "Secrets and sign-in", "controlplane/platform/accounts/README.md"),
    GuideDocument("alerts", "Alerts", "runs/engine/alerts/README.md"),
    GuideDocument("exchange", "Import and export", "controlplane/catalogue/exchange/README.md"),
    GuideDocument("control-plane", "Control plane", "controlplane/README.md"),
    GuideDocument("runs", "Runs", "runs/README.md"),
    GuideDocument("queue", "The queue, leases and resumes", "runs/engine/scheduling/README.md"),
    GuideDocument("machines", "Machines on demand", "runs/engine/machines/README.md"),
    GuideDocument("warm-servers", "Warm servers", "runs/engine/warm/README.md"),
    GuideDocument("reports-of-hosts", "What hosts report", "runs/intake/host_api/README.md"),
    GuideDocument("completions", "Completions and scores", "runs/insight/completions/README.md"),
    GuideDocument("secrets", "Secrets and keys", "runs/pages/secrets/README.md"),
    GuideDocument("deleting", "Deleting, renaming and archives", "runs/pages/trash/README.md"),
    GuideDocument("websocket", "The websocket", "runs/pages/live/README.md"),
    GuideDocument("chats", "Chats with a model", "runs/pages/served/README.md"),
    GuideDocument("hosts", "Hosts and processes", "workers/README.md"),
    GuideDocument("supervisor", "The supervisor", "workers/supervisor/README.md"),
    GuideDocument("attempt-folder", "Files of an attempt", "workers/supervisor/attempt-folder.md"),
    GuideDocument("stopping", "Steps, stops and receipts", "workers/supervisor/stopping.md"),
    GuideDocument("trainer", "The trainer", "workers/trainer/README.md"),
    GuideDocument("speed", "How fast", "workers/trainer/speed.md"),
    GuideDocument("sandbox", "The sandbox", "workers/sandbox/README.md"),
    GuideDocument("packages", "Third-party packages", "workers/packages/README.md"),
    GuideDocument("sinks", "Sinks", "workers/sinks/README.md"),
    GuideDocument("threats", "Threat model", "workers/threats.md"),
    GuideDocument("pages", "Pages and components", "frontend/README.md"),
    GuideDocument("gpu-proofs", "Proved on GPUs", "tests/gpu/README.md"),
    GuideDocument("benchmarks", "Benchmarks", "tests/benchmarks/README.md"),
    GuideDocument("changes", "Changes", "CHANGELOG.md"),
)


@dataclass(frozen=True)
class GuideSection:
    anchor: str
    title: str


@dataclass(frozen=True)
class Rendered:
    html: SafeString
    sections: list[GuideSection]


@require_safe
def glossary(request: HttpRequest) -> HttpResponse:
    return render(request, "platform/guide/glossary.html", {"terms": terms().values(), "others": links()})


@require_safe
def document(request: HttpRequest, document: str = "") -> HttpResponse:
    guide_document = find(document)
    if guide_document is None:
        raise Http404("There is no such document here.")
    context = {"document": guide_document, "others": links(), "rendered": render_document(guide_document)}
    return render(request, "platform/guide/document.html", context)


@require_POST
def tour_seen(request: HttpRequest) -> HttpResponse:
    """Record that the user has seen the tour, so that it is shown again only on request."""
    user = person(request)
    user.toured_at = timezone.now()
    user.save(update_fields=["toured_at"])
    return HttpResponse(status=204)


def installed_documents() -> list[GuideDocument]:
    """Return the documents that are installed: images leave out those in tests/."""
    return [document for document in DOCUMENTS if (ROOT / document.path).is_file()]


def links() -> list[tuple[GuideDocument, str]]:
    """Return the documents with their addresses, for the list in the sidebar."""
    return [(document, address(document)) for document in installed_documents()]


def find(slug: str) -> GuideDocument | None:
    return next((document for document in installed_documents() if document.slug == slug), None)


@cache
def render_document(document: GuideDocument) -> Rendered:
    """Render a document as HTML. The documents are our own, so the HTML is safe; tags in them are shown as text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse((ROOT / document.path).read_text())
    sections = []
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            # As GitHub does, so that links within the documents work.
            anchor = re.sub(r"[^\w\- ]", "", content.content.lower()).strip().replace(" ", "-")
            token.attrSet("id", anchor)
            if token.tag == "h2":
                sections.append(GuideSection(anchor, content.content.replace("`", "")))
            # The page has its own h1, the document's title.
            token.hidden = content.hidden = token.tag == "h1"
        for part in content.children or ():
            _set_address(part, document)
    # Without the title, which the page shows as its heading.
    body_tokens = tokens[3:] if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1" else tokens
    html = parser.renderer.render(body_tokens, parser.options, {})
    return Rendered(mark_safe(html), sections)  # noqa: S308  our own documents


def address(document: GuideDocument) -> str:
    return reverse("document", args=[document.slug]) if document.slug else reverse("documents")


def _set_address(part: Token, document: GuideDocument) -> None:
    name = {"link_open": "href", "image": "src"}.get(part.type)
    target = str(part.attrGet(name) or "") if name else ""
    if not name or not target or "://" in target or target.startswith("#"):
        return
    path, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(document.path), path))
    linked_document = next((row for row in installed_documents() if row.path == path), None)
    if linked_document is not None:
        part.attrSet(name, address(linked_document) + (f"#{anchor}" if anchor else ""))
    elif path.startswith(STATIC):
        part.attrSet(name, static(path.removeprefix(STATIC)))
    else:  # a file that isn't served: its name alone
        part.attrs.pop(name)
