"""Reading of documents whose parts are entries of a library (reward configs, environments) into a form's values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.http import QueryDict

from controlplane.catalogue.versioned import checking
from controlplane.catalogue.versioned.editing import MAX_PARTS, ItemEditor
from controlplane.catalogue.versioned.kind import ItemKind
from controlplane.catalogue.versioned.parameter_forms import PARAM, split_problem
from controlplane.platform import safe_yaml
from controlplane.platform.confined.limits import NotFinished
from controlplane.platform.safe_yaml import short_value
from workers.rewards.parameters import Described

MAX_BYTES = 512 * 1024
"""Maximum size of a document; documents with code are longer than those with settings."""
TYPES = {"str": (str, "a string"), "float": (int | float, "a number")}
EditorT = TypeVar("EditorT", bound=ItemEditor[Any])


@dataclass
class DocumentReading:
    """Values of a document in the format that the editor's form sends, and the document's errors."""

    sent: QueryDict = field(default_factory=lambda: QueryDict(mutable=True))
    problems: list[str] = field(default_factory=list)
    """Errors of the document as a whole."""
    wrong: list[tuple[str, str, str]] = field(default_factory=list)
    """Errors as (prefix of the form, field or "" for the whole form, message)."""

    def send(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            self.sent.setlist(name, ["on"] if value else [])
        else:
            self.sent[name] = value if isinstance(value, str) else short_value(value)

    def read_field(self, prefix: str, name: str, value: Any, kind: str, path: str) -> None:
        """Put a value into a form field, and record an error if it has the wrong type."""
        type_, type_name = TYPES[kind]
        self.send(f"{prefix}-{name}" if prefix else name, value)
        if isinstance(value, bool) or not isinstance(value, type_):
            hint = "; put it in quotes" if kind == "str" and not isinstance(value, list | dict) else ""
            self.wrong.append((prefix, name, f"{path}: expected {type_name}, got {short_value(value)}{hint}."))

    def parts(
        self, kind: ItemKind, entries: Any, allowed_keys: Sequence[str]
    ) -> Iterator[tuple[str, str, dict[str, Any], Any]]:
        """Read the parts into form rows, and yield each row's prefix, the part's path, the part and its entry. Parts
        that the library doesn't have are omitted."""
        entries = entries or []
        if not isinstance(entries, list):
            self.problems.append(f"{kind.parts}: expected a list, got {short_value(entries)}.")
            entries = []
        if len(entries) > MAX_PARTS:
            self.problems.append(f"{kind.parts}: only the first {MAX_PARTS} of {len(entries)} are used.")
        for index, part in enumerate(entries[:MAX_PARTS]):
            path, prefix = f"{kind.parts}[{index}]", f"c{index}"
            if not isinstance(part, dict):
                self.problems.append(f"{path}: expected {', '.join(allowed_keys)}, got {short_value(part)}.")
                continue
            key = part.get("function")
            entry = kind.library.get(key) if isinstance(key, str) else None
            if entry is None:
                message = f"there is no {kind.entry} {short_value(key)} in the library, so it is omitted."
                self.problems.append(f"{path}.function: {message}")
                continue
            self.sent.appendlist("row", prefix)
            self.sent[f"{prefix}-function"] = entry.key
            self.read_field(prefix, "name", part.get("name", entry.key), "str", f"{path}.name")
            self._params(prefix, path, entry, part.get("params"))
            self.wrong += [
                (prefix, "", no_field(f"{path}.{name}", allowed_keys)) for name in part if name not in allowed_keys
            ]
            yield prefix, path, part, entry

    def _params(self, prefix: str, path: str, entry: Described, params: Any) -> None:
        if params is not None and not isinstance(params, dict):
            self.wrong.append((prefix, "", f"{path}.params: expected a mapping, got {short_value(params)}."))
        values = params if isinstance(params, dict) else {}
        for name, default in entry.defaults().items():
            self.send(f"{prefix}-{PARAM}{name}", values.get(name, default))
        try:
            problems = checking.problems(entry, {short_value(name): value for name, value in values.items()})
        except NotFinished as error:
            self.wrong.append((prefix, "", f"{path}.params: {error}"))
            return
        for problem in problems:
            name, message = split_problem(entry, problem)
            where = f"{path}.params.{name}" if name else f"{path}.params"
            self.wrong.append((prefix, PARAM + name if name else "", f"{where}: {message}."))

    def validate(self, editor: EditorT) -> EditorT:
        """Validate an editor, and add the document's errors to it and its forms."""
        editor.is_valid()
        by_prefix = {str(form.prefix or ""): form for form in (*editor.item_forms(), *editor.rows)}
        for prefix, name, cause in self.wrong:
            form = by_prefix[prefix]
            form.errors.pop(name, None)  # about the shortened value, not the document's
            form.add_error(name if name in form.fields else None, cause)
        editor.problem = " ".join([*self.problems, editor.problem]).strip()
        return editor


def document_of(
    content: bytes, *, title: str, top: Sequence[str], texts: Sequence[str]
) -> tuple[dict[Any, Any], DocumentReading]:
    """Parse a document with the top-level keys `top`, and read the strings under those in `texts`. Raises YamlRefused
    if it isn't what `title` names, such as "a reward config"."""
    document = safe_yaml.load(content, MAX_BYTES)
    if not isinstance(document, dict) or not set(document) & set(top):
        raise safe_yaml.YamlRefused(f"This is not {title}, whose keys are {', '.join(top)}.")
    result = DocumentReading(problems=[no_field(str(key), top) for key in document if key not in top])
    for name in texts:
        if document.get(name) is not None:
            result.read_field("", name, document[name], "str", name)
    return document, result


def no_field(path: str, allowed: Sequence[str]) -> str:
    return f"{short_value(path)}: unknown field. Known fields: {', '.join(allowed)}."
