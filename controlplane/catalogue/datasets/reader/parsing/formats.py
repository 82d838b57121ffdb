"""Detection of a file's format from its content, since names and declared types can be wrong."""

import csv
import io
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from controlplane.catalogue.datasets.reader.parsing import jsonlist, jsonobject
from controlplane.catalogue.datasets.reader.parsing.jsonlist import value_end
from controlplane.catalogue.datasets.reader.parsing.unpacking import BOM, open_content
from controlplane.catalogue.datasets.reader.problems import FileProblem

JSONL, JSON, CSV, TSV, PARQUET = "jsonl", "json", "csv", "tsv", "parquet"
OBJECT, SERIES = "object", "series"
"""Layouts of JSON other than a list: one object that contains the rows, and objects that follow each other."""
HEAD_BYTES = 64 * 2**10
MAX_LINES = 50
NAMES = {JSONL: "JSON Lines", JSON: "a JSON list", CSV: "CSV", TSV: "TSV", PARQUET: "Parquet"}

_MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a sound, video or WebP file"),
    (b"%PDF", "a PDF document"),
    (b"PARE", "an encrypted Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"FEA1", "a Feather file"),
    (b"ORC", "an ORC file"),
    (b"Obj\x01", "an Avro file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"\x04\x22\x4d\x18", "compressed with lz4"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"SQLite format", "an SQLite database"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x7fELF", "a program"),
    (b"#!", "a script"),
    (b"<", "HTML or XML"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]|\((?:dp|lp)\d+\n|c[\w.]+\n[\w.]+\n")
_ZIP_MEMBERS = (
    (b"xl/", "an Excel workbook"),
    (b"word/", "a Word document"),
    (b"data.pkl", "a PyTorch file, which holds a Python pickle"),
    (b".npy", "a NumPy archive"),
)
_DELIMITERS = (b"\t", b",", b";", b"|")
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True)
class FileFormat:
    """Format of a file. `kind` is one of NAMES, `layout` one of JSON or "" for a list, and `note` a sentence for the
    page, or ""."""

    kind: str
    gzip: bool = False
    delimiter: str = ","
    bom: bool = False
    note: str = ""
    layout: str = ""
    is_bare: bool = False
    """True if the rows of JSON are lists or strings instead of objects."""


def detect(path: Path) -> FileFormat:
    """Detect the format of a file. Raises FileProblem if it isn't supported."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    gzip = head.startswith(b"\x1f\x8b")
    if gzip:
        with open_content(path, gzip=True) as file:
            head = file.read(HEAD_BYTES)
        if head.startswith(b"\x1f\x8b"):
            raise FileProblem("other_format", "The file is compressed with gzip twice.")
    if not head.removeprefix(BOM).strip():
        has_lines = bool(head.removeprefix(BOM))
        raise FileProblem("empty_file", "The file has only blank lines." if has_lines else "The file is empty.")
    if head.startswith(b"PAR1"):
        return FileFormat(PARQUET, gzip)
    _refuse_binary(head)
    bom = head.startswith(BOM)
    text, is_whole = head.removeprefix(BOM).lstrip(), len(head) < HEAD_BYTES
    note = "The file begins with a byte order mark, which was ignored." if bom else ""
    if text.startswith(b"{") and (layout := _layout(path, text, gzip=gzip)):
        return FileFormat(JSON, gzip, bom=bom, note=" ".join(filter(None, (note, layout[1]))), layout=layout[0])
    kind, delimiter = _detect_text_format(text, is_whole=is_whole)
    is_bare = kind in (JSON, JSONL) and _is_bare(text, kind, is_whole=is_whole)
    return FileFormat(kind, gzip, delimiter, bom, note, is_bare=is_bare)


def object_content(file: BinaryIO) -> bytes:
    """Read a file that is one object. Raises FileProblem if it is too large for that."""
    content = file.read(jsonobject.MAX_BYTES + 1).removeprefix(BOM)
    if len(content) > jsonobject.MAX_BYTES:
        raise FileProblem(
            "other_format",
            f"The file is one JSON object of more than {jsonobject.MAX_BYTES // 2**20} MiB.",
            "`jq -c '.data[]' file` writes the rows in a field “data” as JSON Lines, one object per line.",
        )
    return content


def _is_bare(text: bytes, kind: str, *, is_whole: bool) -> bool:
    """Return whether the first rows are all lists, or all strings."""
    if kind == JSONL:
        first_bytes = {line.lstrip()[:1] for line in _lines(text, is_whole=is_whole)}
    else:
        elements = islice(jsonlist.elements(io.BytesIO(text)), MAX_LINES)
        first_bytes = {element.raw[:1] for element in elements if not element.problem}
    return first_bytes in ({b"["}, {b'"'})


def _layout(path: Path, text: bytes, *, gzip: bool) -> tuple[str, str] | None:
    """Return the layout of a file that begins with an object, and a note, or None if it has one object per line."""
    line, _, rest = text.partition(b"\n")
    first_line, has_more = line.strip(), bool(rest.strip())
    end = value_end(first_line, 0)
    if end == len(first_line):
        is_series = False
    elif end > 0:
        is_series = first_line[end:].lstrip(b" \t,")[:1] in (b"", b"{")
    else:
        is_series = first_line.endswith((b"{", b"[", b",", b":"))
    has_rows_inside = b"[" in first_line or b"{" in first_line[1:]
    if not is_series and (has_more or not has_rows_inside):
        return None
    with open_content(path, gzip=gzip) as file:
        content = file.read(jsonobject.MAX_BYTES).removeprefix(BOM)
        start = content.index(b"{")
        end = value_end(content, start)
        if end < 0 and len(content) >= jsonobject.MAX_BYTES // 2:
            object_content(file)
    if end > 0 and not content[end:].strip() and (found := jsonobject.find(content, start)):
        return OBJECT, found.note
    return (SERIES, "The file has objects that follow each other.") if is_series else None


def _lines(text: bytes, *, is_whole: bool) -> list[bytes]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not is_whole and len(lines) > 1:
        lines.pop()
    return lines[:MAX_LINES]


def _refuse_binary(head: bytes) -> None:
    for magic, name in _MAGIC:
        if head.startswith(magic):
            raise _unsupported(name)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        raise _unsupported(next((name for part, name in _ZIP_MEMBERS if part in head), "a ZIP archive"))
    if head[257:262] == b"ustar":
        raise _unsupported("a tar archive")
    if _PICKLE.match(head):
        raise FileProblem(
            "other_format",
            "This is a Python pickle. Pickles can run code, so they are never opened here.",
            "If you trust it, load it elsewhere, and write its rows as JSON Lines or Parquet.",
        )
    start = head[:400]
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or start.count(b"\0") > len(start) // 4:
        raise FileProblem("other_encoding", "The text is encoded as UTF-16 or UTF-32, not as UTF-8.")
    if len(_NOT_TEXT.findall(head)) > len(head) // 20:
        raise _unsupported("a binary file of an unknown format")


def _unsupported(name: str) -> FileProblem:
    return FileProblem("other_format", f"This is {name}, not a dataset that can be read.")


def _detect_text_format(text: bytes, *, is_whole: bool) -> tuple[str, str]:
    """Return (kind, delimiter) of text without a byte order mark or leading white space."""
    lines = _lines(text, is_whole=is_whole)
    first_line = lines[0].strip()
    if text.startswith(b"["):
        list_lines = [line for line in lines if line.lstrip().startswith(b"[") and line.rstrip().endswith(b"]")]
        # One list per line is JSON Lines with the wrong rows; each line is reported.
        return (JSONL if len(lines) > 1 and len(list_lines) == len(lines) else JSON), ","
    object_count = sum(line.lstrip().startswith(b"{") for line in lines)
    if object_count * 2 >= len(lines) or first_line[:1] == b"{":
        return JSONL, ","
    delimiter = _delimiter(lines)
    if delimiter:
        return (TSV if delimiter == "\t" else CSV), delimiter
    if re.match(rb'"|-?\d|true|false|null', first_line):
        return JSONL, ","
    if len(lines) > 1 and len(first_line) <= 60 and re.fullmatch(rb'"?[A-Za-z_]\w*"?', first_line):
        return CSV, ","
    raise FileProblem("other_format", "This is text, but neither JSON nor a table with column names in its first line.")


def _delimiter(lines: list[bytes]) -> str:
    """Return the delimiter that splits the first line into the most column names, or "" if none does."""
    header = lines[0].decode("utf-8", "replace")
    best, columns = "", 1
    for delimiter in _DELIMITERS:
        try:
            names = next(csv.reader([header], delimiter=delimiter.decode()), [])
        except csv.Error:
            continue
        if len(names) > columns and all(len(name) < 100 for name in names):
            best, columns = delimiter.decode(), len(names)
    return best
