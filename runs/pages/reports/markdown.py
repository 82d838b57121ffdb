"""Markdown and the archive around it."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$])")


def plain(text: object) -> str:
    """Text on one line in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0) -> str:
    """Cells are Markdown already; the last `numbers` columns are aligned to the right. "" without rows."""
    lines = [_row(row) for row in rows]
    left = len(head) - numbers
    return "\n".join([_row(head), _row([":--"] * left + ["--:"] * numbers), *lines]) if lines else ""


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- **{name}:** {value}" for name, value in pairs if value)


def quoted(text: str) -> str:
    """Quote a text that a person wrote, keeping its Markdown apart from the rest."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def image(title: str, path: str) -> str:
    return f"![{plain(title)}]({path})"


def sections(title: str, parts: Iterable[tuple[str, str]]) -> str:
    """A document: its title, and a heading for each part that has something to say; "" has none."""
    body = [f"## {head}\n\n{text}" if head else text for head, text in parts if text]
    return "\n\n".join([f"# {title}", *body]) + "\n"


def archive(folder: str, files: Mapping[str, str], at: datetime) -> bytes:
    """A zip with these texts in one folder."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in files.items():
            entry = zipfile.ZipInfo(f"{folder}/{name}", at.timetuple()[:6])
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            packed.writestr(entry, text)
    return target.getvalue()


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
