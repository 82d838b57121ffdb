"""Detection of a file's format from its content, since names and declared types can be wrong."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from controlplane.catalogue.datasets.reader.parsing.unpacking import open_content
from controlplane.catalogue.datasets.reader.problems import FileProblem

JSONL, JSON, CSV, TSV, PARQUET = "jsonl", "json", "csv", "tsv", "parquet"
BOM = b"\xef\xbb\xbf"
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
    """Format of a file. `kind` is one of NAMES, and `note` a sentence for the page, or ""."""

    kind: str
    gzip: bool = False
    delimiter: str = ","
    bom: bool = False
    note: str = ""


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
    kind, delimiter = _detect_text_format(head.removeprefix(BOM).lstrip(), is_whole=len(head) < HEAD_BYTES)
    note = "The file begins with a byte order mark, which was ignored." if bom else ""
    return FileFormat(kind, gzip, delimiter, bom, note)


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
    lines = [line for line in text.splitlines() if line.strip()]
    if not is_whole and len(lines) > 1:
        lines.pop()
    lines = lines[:MAX_LINES]
    first_line = lines[0].strip()
    if text.startswith(b"["):
        list_lines = [line for line in lines if line.lstrip().startswith(b"[") and line.rstrip().endswith(b"]")]
        # One list per line is JSON Lines with the wrong rows; each line is reported.
        return (JSONL if len(lines) > 1 and len(list_lines) == len(lines) else JSON), ","
    if first_line == b"{" and len(lines) > 1 and not lines[1].lstrip().startswith(b"{"):
        raise FileProblem(
            "other_format",
            "The first object spans several lines. JSON Lines has one object per line.",
            "`jq -c . file` writes one object per line, and `jq -c '.data[]' file` does so for rows in a field “data”.",
        )
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
