"""Reads documents whose parts are entries of a library (reward configs, environments) into the values of a form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.http import QueryDict

from controlplane.catalogue.versioned.editing import ItemEditor
from controlplane.catalogue.versioned.parameter_forms import PARAM, placed
from controlplane.platform import safe_yaml
from controlplane.platform.safe_yaml import short
from workers.rewards.parameters import Described

MOST_BYTES = 512 * 1024
"""Bytes of a document; code is longer than settings."""
KINDS = {"str": (str, "text"), "float": (int | float, "a number")}
EntryT = TypeVar("EntryT", bound=Described)


@dataclass
class DocumentReading:
    """A document's values, as the editor's form would send them, and its errors."""

    sent: QueryDict = field(default_factory=lambda: QueryDict(mutable=True))
    problems: list[str] = field(default_factory=list)
    """Errors of the document as a whole."""
    wrong: list[tuple[str, str, str]] = field(default_factory=list)
    """(the form's prefix, the field or "" for the whole form, the cause)"""

    def send(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            self.sent.setlist(name, ["on"] if value else [])
        else:
            self.sent[name] = value if isinstance(value, str) else short(value)

    def take(self, prefix: str, name: str, value: Any, kind: str, path: str) -> None:
        """Put a value into a form field, or record its error."""
        type_, words = KINDS[kind]
        self.send(f"{prefix}-{name}" if prefix else name, value)
        if isinstance(value, bool) or not isinstance(value, type_):
            hint = "; put it in quotes" if kind == "str" and not isinstance(value, list | dict) else ""
            self.wrong.append((prefix, name, f"{path}: expected {words}, got {short(value)}{hint}."))

    def parts(self, name: str, listed: Any, allowed: Sequence[str], most: int) -> Iterator[tuple[str, str, Any]]:
        """(form's prefix, path, part) of each part in the list `name` that has fields."""
        listed = listed or []
        if not isinstance(listed, list):
            self.problems.append(f"{name}: expected a list, got {short(listed)}.")
            listed = []
        if len(listed) > most:
            self.problems.append(f"{name}: {len(listed)}, but only the first {most} are used.")
        for place, part in enumerate(listed[:most]):
            path = f"{name}[{place}]"
            if isinstance(part, dict):
                yield f"c{place}", path, part
            else:
                self.problems.append(f"{path}: expected {', '.join(allowed)}, got {short(part)}.")

    def entry(
        self, prefix: str, path: str, part: dict[str, Any], library: Mapping[str, EntryT], what: str
    ) -> EntryT | None:
        """The part's entry, with a form row for it and its name; None if the library has no such entry, and the part is
        left out."""
        key = part.get("function")
        entry = library.get(key) if isinstance(key, str) else None
        if entry is None:
            self.problems.append(f"{path}.function: there is no {what} {short(key)} in the library; it is left out.")
            return None
        self.sent.appendlist("row", prefix)
        self.sent[f"{prefix}-function"] = entry.key
        self.take(prefix, "name", part.get("name", entry.key), "str", f"{path}.name")
        return entry

    def params(self, prefix: str, path: str, entry: Described, params: Any) -> None:
        if params is not None and not isinstance(params, dict):
            self.wrong.append((prefix, "", f"{path}.params: expected fields, got {short(params)}."))
        values = params if isinstance(params, dict) else {}
        for name, default in entry.defaults().items():
            self.send(f"{prefix}-{PARAM}{name}", values.get(name, default))
        for problem in entry.check({short(name): value for name, value in values.items()}):
            name, words = placed(entry, problem)
            where = f"{path}.params.{name}" if name else f"{path}.params"
            self.wrong.append((prefix, PARAM + name if name else "", f"{where}: {words}."))

    def unknown(self, prefix: str, path: str, part: dict[str, Any], allowed: Sequence[str]) -> None:
        self.wrong += [(prefix, "", no_field(f"{path}.{name}", allowed)) for name in part if name not in allowed]

    def add_errors(self, editor: ItemEditor[Any]) -> None:
        """Add the document's errors to a validated editor and its forms."""
        by_prefix = {str(form.prefix or ""): form for form in (*editor.item_forms(), *editor.rows)}
        for prefix, name, cause in self.wrong:
            form = by_prefix[prefix]
            known = name if name in form.fields else None
            form.errors.pop(name, None)  # about the text that was entered for the document's value
            form.add_error(known, cause)
        editor.problem = " ".join([*self.problems, editor.problem]).strip()


def document_of(content: bytes, *, top: Sequence[str], what: str) -> tuple[dict[Any, Any], DocumentReading]:
    """Parse a document. Raises YamlRefused if it is not `what` at all."""
    document = safe_yaml.load(content, MOST_BYTES)
    if not isinstance(document, dict) or not set(document) & set(top):
        raise safe_yaml.YamlRefused(f"This is not {what}, which has {', '.join(top)}.")
    return document, DocumentReading(problems=[no_field(str(key), top) for key in document if key not in top])


def no_field(path: str, allowed: Sequence[str]) -> str:
    return f"{short(path)}: unknown field. Known fields: {', '.join(allowed)}."
