"""Reader of configs of all kinds, which are recognised by their content."""

import io
import json
import re
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import IO, Any

from controlplane.catalogue.exchange import (
    accelerate,
    axolotl,
    commands,
    deepspeed_json,
    own,
    reading_python,
    reward_functions,
    scripts,
    tools,
    trl,
)
from controlplane.catalogue.exchange.keys import Format, TableReader, put
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading, UnreadableDocument
from controlplane.platform import json_with_comments, safe_yaml
from controlplane.platform.confined.tasks import ConfinedTask
from controlplane.platform.templatetags.figures import size_in_words

MAX_BYTES = 2**20
ZIP = b"PK\x03\x04"
EXTRA_LINE = re.compile(r"^#! ([a-z_0-9]+(?:\.[A-Za-z_0-9]+)*): (.*)$", re.MULTILINE)
"""Pattern of an export's lines for values that its format has no key for."""
HEAD = "# Lines with #! hold what this format has no key for; an import here reads them back."
TOML_LINE = re.compile(r"^[A-Za-z_][\w.-]*[ \t]*=[ \t]*\S", re.MULTILINE)
EXPECTED_FORMATS = (
    "Expected an Axolotl, TRL, verl, NeMo RL or LLaMA-Factory YAML, a prime-rl TOML, a command line, a script with "
    "GRPOConfig(…), a DeepSpeed JSON, an accelerate YAML, a run's spec.json or dry-run .zip, or a hardware profile's "
    "YAML."
)


def parse(content: bytes, fields: Mapping[str, str]) -> Reading:
    """Parse a document. `fields` are the types of GRPOConfig's arguments. Raises UnreadableDocument with a reason."""
    text = _text(content)
    if not text.strip():
        raise UnreadableDocument("The document is empty.")
    own_lines, rest = EXTRA_LINE.findall(text), EXTRA_LINE.sub("", text)
    if rest.lstrip().startswith("{"):
        reading = _json(rest, fields)
    elif reading_python.is_python(rest):
        reading = _script(*reading_python.without_commands([rest]), fields)
    elif commands.is_command(rest):
        reading = _options(tools.of_command(rest), rest, commands.options(rest), fields)
    elif TOML_LINE.search(rest):
        reading = _toml(rest, fields)
    else:
        reading = _yaml(rest, fields)
    if HEAD in text:
        restore(reading, own_lines)
    return reading


def unpack(archive: bytes) -> bytes:
    """Return the spec.json in a dry run's .zip, at most one byte beyond the limit. Raises UnreadableDocument if the
    archive can't be read or has no spec.json."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            entry = next((entry for entry in opened.infolist() if entry.filename.endswith("spec.json")), None)
            if entry is None:
                raise UnreadableDocument("The archive contains no spec.json, so it is not a dry run.")
            with opened.open(entry) as member:
                return member.read(MAX_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, OSError) as error:
        raise UnreadableDocument("The .zip can't be read.") from error


read = ConfinedTask(parse, "Reading this document", (UnreadableDocument,))
_unpacked = ConfinedTask(unpack, "Unpacking this .zip", (UnreadableDocument,))


def restore(reading: Reading, lines: list[tuple[str, str]]) -> None:
    """Restore the values that our own exports keep in comments; null removes a value."""
    tree: dict[str, Any] = {}
    for path, text in lines:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            reading.note(KeyVerdict.WRONG, path, "The value in its #! line is not valid JSON.")
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
    kept = (KeyVerdict.WRONG, KeyVerdict.CONTRADICTION, KeyVerdict.UNKNOWN)
    reading.notes = [note for note in reading.notes if note.verdict in kept and not _is_restored(reading, note.key)]


def _is_restored(reading: Reading, key: str) -> bool:
    return reading.sources.get(f"grpo.{key.rpartition('.')[2]}") == "#!"


def content_of(file: IO[bytes]) -> bytes:
    """Return an uploaded document, or the spec.json in a dry run's .zip; at most one byte beyond the limit. Raises
    UnreadableDocument if the .zip can't be unpacked."""
    start = file.read(len(ZIP))
    if start != ZIP:
        return start + file.read(MAX_BYTES + 1 - len(start))
    return _unpacked(start + file.read())


def _text(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise UnreadableDocument(f"The document is larger than {size_in_words(MAX_BYTES)}, the limit.")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        content = content.decode("utf-16", "replace").encode()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableDocument(f"Line {line} is not valid UTF-8.") from error


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
        tabs = " YAML is indented with spaces, not tabs." if re.search(r"^ *\t", text, re.MULTILINE) else ""
        raise UnreadableDocument(f"{error}{tabs}") from error
    if not isinstance(tree, dict):
        raise UnreadableDocument(f"The document has no keys. {EXPECTED_FORMATS}")
    return _tree(tree, text, fields)


def _toml(text: str, fields: Mapping[str, str]) -> Reading:
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableDocument(f"This isn’t valid TOML. {str(error)[:200]}.") from error
    return _tree(tree, text, fields)


def _options(
    form: Format, text: str, options: tuple[dict[str, Any], list[tuple[str, str]]], fields: Mapping[str, str]
) -> Reading:
    tree, skipped = options
    if not tree:
        raise UnreadableDocument(f"The {form.kind} contains no settings to import. {EXPECTED_FORMATS}")
    reading = _reader(form, text, fields).read(tree)
    for key, reason in skipped:
        is_unread = reason == commands.UNREAD_WORD
        reading.note(KeyVerdict.UNKNOWN if is_unread else KeyVerdict.LEFT_OUT, key, reason)
    return reading


def _script(script: str, commands_of_notebook: list[str], fields: Mapping[str, str]) -> Reading:
    reading = _options(scripts.form_of(script), script, reading_python.options(script), fields)
    for line in commands_of_notebook:
        reading.note(KeyVerdict.LEFT_OUT, line, "Commands of a notebook aren't run here.")
    reading.code = reward_functions.cut_out(script, reading.leads.get("rewards", ()))
    return reading


def _tree(tree: dict[str, Any], text: str, fields: Mapping[str, str]) -> Reading:
    if isinstance(tree.get("cells"), list):
        return _script(*reading_python.without_commands(reading_python.cells_of(tree["cells"])), fields)
    kind = kind_of(tree, fields)
    if kind == DocumentKind.SPEC:
        return own.read_spec(tree)
    if kind == DocumentKind.PROFILE:
        return own.read_profile(tree)
    return _reader(FORMATS[kind], text, fields).read(tree)


def _reader(form: Format, text: str, fields: Mapping[str, str]) -> TableReader:
    """Return the reader of a document; our own exports state what differs from our defaults, not from the tool's."""
    return TableReader(replace(form, defaults={}) if HEAD in text else form, fields, line_finder(text))


FORMATS: dict[DocumentKind, Format] = {
    form.kind: form for form in (axolotl.FORMAT, accelerate.FORMAT, deepspeed_json.FORMAT, trl.YAML)
} | tools.FORMATS


def kind_of(tree: Mapping[str, Any], fields: Mapping[str, str]) -> DocumentKind:
    """Recognise the kind of a document: first by keys that only one format has, then by the number of known keys.
    Raises UnreadableDocument if no key is known."""
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
        raise UnreadableDocument(f"None of the document's keys are known. {EXPECTED_FORMATS}")
    return best


def line_finder(text: str) -> Callable[[str], int | None]:
    """Return a function that finds a dotted key's line by searching for its sections in turn."""

    def find(key: str) -> int | None:
        offset = 0
        for name in key.split("."):
            word = re.escape(name).replace("_", "[-_.]")
            match = re.compile(rf"""(?:^|[\s{{,"'\-])({word})["']?(?:\s*[:=]|\s|$)""", re.MULTILINE).search(
                text, offset
            )
            if match is None:
                return None
            offset = match.start(1)
        return text.count("\n", 0, offset) + 1

    return find
