"""Markdown of reports, and the zip archive that contains it."""

import io
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$])")


def plain(text: object) -> str:
    """Return a string on one line, with its Markdown escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0) -> str:
    """Return a table of Markdown cells, with the last `numbers` columns right-aligned, or "" without rows."""
    alignments = [":--"] * (len(head) - numbers) + ["--:"] * numbers
    lines = [f"| {' | '.join(cells)} |" for cells in (head, alignments, *rows)]
    return "\n".join(lines) if len(lines) > 2 else ""


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- **{name}:** {value}" for name, value in pairs if value)


def quote(text: str) -> str:
    """Return a user's text as a block quotation, which keeps its Markdown separate from the rest."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def image(title: str, path: str) -> str:
    return f"![{plain(title)}]({path})"


def sections(title: str, parts: Iterable[tuple[str, str]]) -> str:
    body = [f"## {head}\n\n{text}" if head else text for head, text in parts if text]
    return "\n\n".join([f"# {title}", *body]) + "\n"


def archive(folder: str, files: Mapping[str, str], at: datetime) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for name, text in files.items():
            entry = zipfile.ZipInfo(f"{folder}/{name}", at.timetuple()[:6])
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            zip_file.writestr(entry, text)
    return target.getvalue()
