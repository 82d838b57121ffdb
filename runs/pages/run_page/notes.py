"""A run's notes: Markdown that several people can edit without unknowingly overwriting each other's changes."""

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

MAX_CHARS = 10_000
NOTED_EVENT = "noted"
LINE_BREAKS = {"softbreak": "\n", "hardbreak": "\n"}

REL = "nofollow noopener noreferrer"


class _Linker(Urlizer):
    url_template = f'<a href="{{href}}" rel="{REL}">{{url}}</a>'


_linked = _Linker()


class NotesConflict(Exception):
    """A conflict with changes that another user has made to the notes since they were loaded."""


def edition(text: str) -> str:
    """Return a short hash of the notes, which forms send back to identify the edited version."""
    return sha256(text.encode()).hexdigest()[:16]


@transaction.atomic
def write(run: Run, text: str, based_on: str | None, user: User) -> bool:
    """Save a run's notes, and return False if they are unchanged. Raises NotesConflict if the stored notes are no
    longer the edition `based_on`; None skips this check."""
    # Writers of events lock the attempt's row, which also serializes the changes of two users.
    attempt = Attempt.objects.select_for_update().filter(run=run).latest("number")
    text = clean(text)
    stored_notes = Run.objects.values_list("notes", flat=True).get(pk=run.pk)
    if text == stored_notes:
        return False
    if based_on not in (None, edition(stored_notes)):
        raise NotesConflict
    Run.objects.filter(pk=run.pk).update(notes=text)
    add_event(attempt, NOTED_EVENT, user.get_username(), empty=not text)
    return True


def clean(text: str) -> str:
    """Return the text, stripped and truncated, with line feeds only (browsers send carriage returns) and without zero
    bytes (PostgreSQL rejects them)."""
    return text.replace("\r\n", "\n").replace("\0", "").strip()[:MAX_CHARS]


@lru_cache(maxsize=256)
def as_html(text: str) -> SafeString:
    """Render the notes as HTML. Bare addresses become links, tags are shown as text, and images become links, so that
    the page loads nothing from other sites. Headings are lowered by two levels, below the h2 above the notes."""
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        depth = 0
        for part in token.children or ():
            depth += {"link_open": 1, "link_close": -1}.get(part.type, 0)
            if part.type == "link_open":
                part.attrSet("rel", REL)
            elif part.type == "text" and not depth:
                part.type, part.content = "html_inline", _linked(part.content, autoescape=True)
    html: str = parser.renderer.render(tokens, parser.options, {})
    return mark_safe(html)  # noqa: S308  the parser escapes tags


def beginning(text: str) -> str:
    parts = next((token.children for token in _parser().parse(text) if token.type == "inline"), None) or ()
    return "".join(LINE_BREAKS.get(part.type, part.content) for part in parts).partition("\n")[0]


@cache
def _parser() -> MarkdownIt:
    # Line breaks are kept, as in plain text.
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable("image")


def last_change(run: Run) -> RunEvent | None:
    """Return the event of the last change, with its author and time, or None if there are no notes."""
    return run.events.filter(kind=NOTED_EVENT).order_by("-pk").first() if run.notes else None
