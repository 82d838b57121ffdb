"""Facts about a ready dataset version, as (label, value) rows."""

from collections.abc import Mapping
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.catalogue.datasets.models import DatasetVersion, StoredFolder, Tokenizer
from controlplane.platform.templatetags.figures import ago, sig, size

Text = str | SafeString


def facts(version: DatasetVersion, context: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """List the facts from the template context of the version's page
    (controlplane.catalogue.datasets.pages.showing)."""
    parents, tokenizer = context["lineage"].parents, context["tokenizer"]
    author = version.created_by or version.dataset.owner
    rows: list[tuple[str, Text | None]] = [
        ("From", _source(context["source"])),
        ("Derived from", _parent(parents[0]) if parents else None),
        ("By", format_html("{}, {} ago", author.username if author else "–", ago(version.created_at))),
        ("File", _file(version.bytes, context["report"].get("format") or {}) if version.bytes else None),
        ("SHA-256 of the file", _hash(version.source_sha256) if version.source_sha256 else None),
        ("SHA-256 of the rows", _hash(version.sha256)),
        ("In the store", _stored(context["stored"]) if context["stored"] else None),
        ("Split", _split(version)),
        ("Tokens counted with", _tokenizer(tokenizer, version.token_limit) if tokenizer else None),
    ]
    return [(label, value) for label, value in rows if value]


def _source(source: Mapping[str, str]) -> SafeString:
    reason, revision = source.get("why"), source.get("revision")
    suffix = f", {reason}" if reason else format_html(" <code>{}</code>", revision) if revision else ""
    return format_html("{}: {}{}", source["kind"], source["text"], suffix)


def _parent(parent: DatasetVersion) -> SafeString:
    return format_html('<a href="{}">{} v{}</a>', parent.get_absolute_url(), parent.dataset.name, parent.number)


def _file(byte_count: int, file_format: Mapping[str, Any]) -> SafeString:
    kind = f", {file_format['kind']}{' in gzip' if file_format.get('gzip') else ''}" if file_format.get("kind") else ""
    return format_html("{}{}", size(byte_count), kind)


def _hash(digest: str) -> SafeString:
    return format_html('<code class="hash" title="{}">{}…</code>', digest, digest[:16])


def _stored(stored_folder: StoredFolder) -> Text:
    if stored_folder.problem:
        return format_html('<span class="error">{} Retried automatically.</span>', stored_folder.problem)
    return format_html("since {} ago", ago(stored_folder.stored_at)) if stored_folder.stored_at else "being uploaded"


def _split(version: DatasetVersion) -> str:
    if not version.validation_rows:
        return "no validation split"
    seed = (version.split or {}).get("seed")
    seed_text = "" if seed is None else f", seed {seed}"
    return f"{sig(version.validation_rows, 12)} of {sig(version.rows, 12)} rows for validation{seed_text}"


def _tokenizer(tokenizer: Tokenizer, limit: int | None) -> str:
    return f"{tokenizer.model}, limit {sig(limit, 12)}" if limit else tokenizer.model
