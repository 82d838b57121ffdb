"""Reading of any config from bytes: the kind of document, recognised by its content, and its values."""

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import IO, Any

from controlplane.catalogue.exchange import accelerate, axolotl, commands, deepspeed_json, own, reading_python, trl
from controlplane.catalogue.exchange.keys import Format, TableReader, put
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading, UnreadableDocument
from controlplane.platform import json_with_comments, safe_yaml
from controlplane.platform.templatetags.figures import size_in_words

MAX_BYTES = 2**20
ZIP = b"PK\x03\x04"
OWN = re.compile(r"^#! ([a-z_0-9]+(?:\.[A-Za-z_0-9]+)*): (.*)$", re.MULTILINE)
"""A line of an export with a value for which its format has no key."""
HEAD = "# Lines with #! hold what this format has no key for; an import here reads them back."
EXPECTED = (
    "Expected an Axolotl or TRL YAML, a command line, a script with GRPOConfig(…), a DeepSpeed JSON, an accelerate "
    "YAML, a run's spec.json or dry-run .zip, or a hardware profile's YAML."
)


def read(content: bytes, fields: Mapping[str, str]) -> Reading:
    """Read a document. `fields`: GRPOConfig's arguments and types. Raises UnreadableDocument with a reason."""
    text = _text(content)
    if not text.strip():
        raise UnreadableDocument("The document is empty.")
    own_lines, rest = OWN.findall(text), OWN.sub("", text)
    if rest.lstrip().startswith("{"):
        reading = _json(rest, fields)
    elif reading_python.is_python(rest):
        reading = _options(trl.SCRIPT, rest, reading_python.options(rest), fields)
    elif commands.is_command(rest):
        reading = _options(trl.OPTIONS, rest, commands.options(rest), fields)
    else:
        reading = _yaml(rest, fields)
    if HEAD in text:
        restore(reading, own_lines)
    return reading


def restore(reading: Reading, lines: list[tuple[str, str]]) -> None:
    """Restore the values that an export from here keeps in comments; null removes a value."""
    tree: dict[str, Any] = {}
    for path, text in lines:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            reading.note(KeyVerdict.WRONG, path, "Its #! line is not JSON.")
            continue
        if value is None:
            reading.pop(path)
        elif path == "lora":
            reading.put(path, bool(value), "#!")
        else:
            put(tree, path, value)
    for path, value in own.read_spec(tree).values.items():
        if path != "lora":
            reading.put(path, value, "#!")
    reading.complete = True
    # Only these mean that the export was edited.
    of_edits = (KeyVerdict.WRONG, KeyVerdict.CONTRADICTION, KeyVerdict.UNKNOWN)
    reading.notes = [note for note in reading.notes if note.verdict in of_edits and not _restored(reading, note.key)]


def _restored(reading: Reading, key: str) -> bool:
    return reading.sources.get(f"grpo.{key.rpartition('.')[2]}") == "#!"


def content_of(file: IO[bytes]) -> bytes:
    """Read an uploaded document, at most one byte beyond the limit; of a dry run's .zip, its spec.json."""
    start = file.read(len(ZIP))
    if start != ZIP:
        return start + file.read(MAX_BYTES + 1 - len(start))
    try:
        with zipfile.ZipFile(file) as archive:
            entry = next((entry for entry in archive.infolist() if entry.filename.endswith("spec.json")), None)
            if entry is None:
                raise UnreadableDocument("The archive has no spec.json: it is no dry run of a run.")
            with archive.open(entry) as member:
                return member.read(MAX_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, OSError) as error:
        raise UnreadableDocument("The .zip can't be read.") from error


def _text(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise UnreadableDocument(f"It is larger than {size_in_words(MAX_BYTES)}, the most that is read here.")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        content = content.decode("utf-16", "replace").encode()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableDocument(f"Line {line}: it is not valid UTF-8.") from error


def _json(text: str, fields: Mapping[str, str]) -> Reading:
    try:
        tree = json_with_comments.load(text)
    except json_with_comments.JsonRefused as error:
        raise UnreadableDocument(f"This isn’t valid JSON. {error}") from error
    return _tree(tree, text, fields)


def _yaml(text: str, fields: Mapping[str, str]) -> Reading:
    try:
        tree = safe_yaml.load(text.encode())
    except safe_yaml.YamlRefused as error:
        tabs = " YAML indents by spaces, not tabs." if re.search(r"^ *\t", text, re.MULTILINE) else ""
        raise UnreadableDocument(f"{error}{tabs}") from error
    if not isinstance(tree, dict):
        raise UnreadableDocument(f"It has no keys. {EXPECTED}")
    return _tree(tree, text, fields)


def _options(
    form: Format, text: str, options: tuple[dict[str, Any], list[tuple[str, str]]], fields: Mapping[str, str]
) -> Reading:
    """Read a command line or a script: its options, and notes on its other parts."""
    tree, rest = options
    if not tree:
        raise UnreadableDocument(f"The {form.kind} has no settings to take. {EXPECTED}")
    reading = TableReader(form, fields, line_finder(text)).read(tree)
    for key, reason in rest:
        reading.note(KeyVerdict.LEFT_OUT, key, reason)
    return reading


def _tree(tree: dict[str, Any], text: str, fields: Mapping[str, str]) -> Reading:
    kind = kind_of(tree, fields)
    if kind == DocumentKind.SPEC:
        return own.read_spec(tree)
    if kind == DocumentKind.PROFILE:
        return own.read_profile(tree)
    return TableReader(FORMATS[kind], fields, line_finder(text)).read(tree)


FORMATS: dict[DocumentKind, Format] = {
    form.kind: form for form in (axolotl.FORMAT, accelerate.FORMAT, deepspeed_json.FORMAT, trl.YAML)
}


def kind_of(tree: Mapping[str, Any], fields: Mapping[str, str]) -> DocumentKind:
    """Recognise the kind by the keys: signs first, then the format with most of them. Raises UnreadableDocument."""
    keys = set(tree)
    inner = tree.get("run", tree)
    if isinstance(inner, dict) and {"grpo", "model", "hardware"} <= set(inner):
        return DocumentKind.SPEC
    if "hardware" in keys:
        return DocumentKind.PROFILE
    scores = {
        kind: 100 * len(keys & form.signs) + sum(key in form.table or key in form.sections for key in keys)
        for kind, form in FORMATS.items()
    }
    scores[DocumentKind.DEEPSPEED] += 100 * any(isinstance(tree.get(name), dict) for name in ("fp16", "bf16"))
    scores[DocumentKind.TRL] += sum(key in fields for key in keys)
    best = max(scores, key=lambda kind: scores[kind])
    if not scores[best]:
        raise UnreadableDocument(f"None of its keys is known. {EXPECTED}")
    return best


def line_finder(text: str) -> Callable[[str], int | None]:
    """Find the line of a dotted key by searching its sections one after the other."""

    def find(key: str) -> int | None:
        at = 0
        for name in key.split("."):
            word = re.escape(name).replace("_", "[-_]")
            match = re.compile(rf"""(?:^|[\s{{,"'\-])({word})["']?(?:\s*[:=]|\s|$)""", re.MULTILINE).search(text, at)
            if match is None:
                return None
            at = match.start(1)
        return text.count("\n", 0, at) + 1

    return find
