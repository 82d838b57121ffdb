"""A run's notes: Markdown that several people edit without overwriting each other unseen."""

from functools import cache, lru_cache
from hashlib import sha256

from django.db import transaction
from django.utils.html import Urlizer
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.timeline import add_event

LONGEST = 10_000
NOTED = "noted"
LINE_BREAKS = {"softbreak": "\n", "hardbreak": "\n"}

REL = "nofollow noopener noreferrer"


class _Linker(Urlizer):
    url_template = f'<a href="{{href}}" rel="{REL}">{{url}}</a>'


_linked = _Linker()


class Overtaken(Exception):
    """The notes were changed by another user in the meantime."""


def edition(text: str) -> str:
    """Hash a text; forms send the short hash to name the text that was edited."""
    return sha256(text.encode()).hexdigest()[:16]


@transaction.atomic
def write(run: Run, text: str, based_on: str | None, user: User) -> bool:
    """Save a run's notes; False if unchanged.

    Raises Overtaken unless the stored notes have the edition `based_on`; None skips the check.
    """
    # Writers of events lock the attempt's row; that also serializes two users' notes.
    attempt = Attempt.objects.select_for_update().filter(run=run).latest("number")
    text = clean(text)
    stored = Run.objects.values_list("notes", flat=True).get(pk=run.pk)
    if text == stored:
        return False
    if based_on not in (None, edition(stored)):
        raise Overtaken
    Run.objects.filter(pk=run.pk).update(notes=text)
    add_event(attempt, NOTED, user.get_username(), empty=not text)
    return True


def clean(text: str) -> str:
    """Convert line breaks to line feeds (browsers send carriage returns) and drop zero bytes (PostgreSQL rejects
    them)."""
    return text.replace("\r\n", "\n").replace("\0", "").strip()[:LONGEST]


@lru_cache(maxsize=256)
def as_html(text: str) -> SafeString:
    """Render the notes as HTML. Bare addresses are links. Tags are shown as text, and pictures are links: a page loads
    nothing from elsewhere. Headings begin below the h2 that the page gives the notes."""
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        within = 0
        for part in token.children or ():
            within += {"link_open": 1, "link_close": -1}.get(part.type, 0)
            if part.type == "link_open":
                part.attrSet("rel", REL)
            elif part.type == "text" and not within:
                part.type, part.content = "html_inline", _linked(part.content, autoescape=True)
    html: str = parser.renderer.render(tokens, parser.options, {})
    return mark_safe(html)  # noqa: S308  the parser escapes tags


def beginning(text: str) -> str:
    """Take the first line of the notes, without its Markdown."""
    parts = next((token.children for token in _parser().parse(text) if token.type == "inline"), None) or ()
    return "".join(LINE_BREAKS.get(part.type, part.content) for part in parts).partition("\n")[0]


@cache
def _parser() -> MarkdownIt:
    # Line breaks stay, as in plain text.
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable("image")


def last(run: Run) -> RunEvent | None:
    """Find the last change, with its author and time."""
    return run.events.filter(kind=NOTED).order_by("-pk").first() if run.notes else None
