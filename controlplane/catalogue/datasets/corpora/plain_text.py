"""Conversion of a text file to documents, one per paragraph; in Markdown, the heading above is the title."""

import json
import re
from collections.abc import Iterator
from pathlib import PurePath

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.platform.confined.tasks import ConfinedTask
from controlplane.platform.http.request_body import FORM_OVERHEAD_BYTES, TEXT_LIMIT

MAX_BYTES = TEXT_LIMIT - FORM_OVERHEAD_BYTES
SUFFIXES = (".txt", ".md", ".markdown")
_HEADING = re.compile(r"#{1,6}[ \t]+(.*?)[ \t#]*")
_FENCE = re.compile(r"[ ]{0,3}(?:```|~~~)")


def parse(content: bytes, name: str) -> bytes:
    """Convert the content of a text file to JSON Lines with "title" and "text". Raises DatasetError if the file isn't
    UTF-8 text with paragraphs, or has the wrong kind of name."""
    suffix = PurePath(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise DatasetError(f"Choose a text file whose name ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")
    if len(content) > MAX_BYTES:
        limit = f"{MAX_BYTES // 2**20} MiB"
        raise DatasetError(
            f"The file is larger than {limit}. Upload it as a dataset, and create a corpus from its columns."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"The file is not UTF-8 text: byte {error.start:,} is not part of a character.") from None
    if "\0" in text:
        raise DatasetError("The file is not text: it contains NUL bytes.")
    documents = [
        json.dumps({"title": title, "text": paragraph}, ensure_ascii=False)
        for title, paragraph in _paragraphs(text, markdown=suffix != SUFFIXES[0])
    ]
    if not documents:
        raise DatasetError("The file has no paragraphs: it is empty or has only headings.")
    return "\n".join([*documents, ""]).encode()


lines = ConfinedTask(parse, "Reading this text", (DatasetError,))


def _paragraphs(text: str, *, markdown: bool) -> Iterator[tuple[str, str]]:
    title, in_fence, paragraph = "", False, list[str]()
    for line in re.split(r"\r\n|\r|\n", text):
        fence = markdown and _FENCE.match(line) is not None
        heading = _HEADING.fullmatch(line) if markdown and not in_fence else None
        if heading or (not line.strip() and not in_fence):
            if paragraph:
                yield title, "\n".join(paragraph)
            paragraph = []
            title = heading[1] if heading else title
        else:
            paragraph.append(line)
        in_fence = in_fence != fence
    if paragraph:
        yield title, "\n".join(paragraph)
