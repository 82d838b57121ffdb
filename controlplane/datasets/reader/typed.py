"""The fast way through JSON Lines: rows decoded straight into the types that the file's first rows have.

What decodes is right as far as types go, and what is left to check is looked at a block of rows at a time. Whatever
fails here is only suspicious: it is looked at again, slowly, by what knows all problems (checks.Checker). So nothing
may pass here that fails there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter, methodcaller
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from controlplane.datasets.reader import contents
from controlplane.datasets.reader.fields import RowProblem
from controlplane.datasets.reader.mapping import ColumnMapping
from controlplane.datasets.reader.schema import LIST, NULL, NUMBER, OBJECT, TEXT, TRUTH, Counts, Schema
from controlplane.datasets.reader.transforms import COLUMNS, INSTRUCTION, TRANSFORMS, WITH_TESTS
from controlplane.datasets.reader.typed_messages import NO_ANSWER, Messages, NotTyped, Row, Suspicious, Values
from workers.rewards.answer import normalised

__all__ = ["FAILURES", "NotTyped", "Typed"]

FAILURES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_INT = Annotated[int, msgspec.Meta(ge=-contents.LARGEST_INT, le=contents.LARGEST_INT - 1)]
_NULL = type(None)
_TYPES: Mapping[str, Any] = {
    TEXT: str,
    NUMBER: _INT | float,
    TRUTH: bool,
    LIST: list[Any],
    OBJECT: dict[str, Any],
    NULL: _NULL,
}
_WORDS: Mapping[type, str] = {
    str: TEXT,
    int: NUMBER,
    float: NUMBER,
    bool: TRUTH,
    list: LIST,
    tuple: LIST,
    dict: OBJECT,
    type(None): NULL,
}


class Typed:
    """Raises NotTyped."""

    def __init__(self, schema: Schema, mapping: ColumnMapping, sample: Sequence[Row]) -> None:
        self._mapping = mapping
        self._transform = TRANSFORMS[mapping.transform]
        self._columns = list(schema.main)
        self._main = schema.main
        self._usual = schema.usual
        self._loose = {
            name
            for name in self._columns
            if schema.counts[name].total() < schema.rows or schema.counts[name][NULL] or schema.main[name] == NULL
        }
        self._texts = {
            name for name in self._columns if schema.main[name] == LIST and all(_texts(row.get(name)) for row in sample)
        }
        answered = mapping.answer not in ("", mapping.prompt)
        self._messages = None
        if mapping.messages:
            self._messages = Messages(mapping.prompt, sample, answered=answered, whole=self._whole)
        self._getters: dict[str, Callable[[Any], Any]] = {
            name: attrgetter(f"c{place}") for place, name in enumerate(self._columns)
        }
        if not self._columns or (mapping.prompt and mapping.prompt not in self._columns):
            raise NotTyped
        self.decode: Callable[[bytes], Any] = lambda raw: None
        self._strict_rows = 0
        self._compile()

    def loosen(self, row: Row) -> None:
        """Take a good row for what others may be like: with no value here, with other things in a list there."""
        changed = False
        for name in self._columns:
            value = row.get(name)
            if value is None and name not in self._loose:
                self._loose.add(name)
                changed = True
            elif value is not None and self._main[name] == NULL:
                self._main[name] = _WORDS[type(value)]
                changed = True
            elif name in self._texts and not _texts(value):
                self._texts.discard(name)
                changed = True
        if self._messages is not None and self._messages.loosen(row.get(self._mapping.prompt)):
            changed = True
        if changed:
            self._compile()

    def look(self, rows: list[Any], counts: Counts) -> tuple[set[int], list[Hashable]]:
        """(places of suspicious rows, the keys of all) of decoded rows; the others are counted."""
        found: set[int] = set()
        for check in self._checks:
            found.update(check(rows))
        if found:
            rows = [row for place, row in enumerate(rows) if place not in found]
        self._count(rows, counts)
        return found, self._keys(rows) if self._mapping.prompt else []

    def key(self, row: Row) -> Hashable:
        """The key of a good row that went the slow way."""
        if self._messages is not None:
            return self._messages.key(row[self._mapping.prompt])
        prompt: str = row[self._mapping.prompt]
        more = [row.get(name) for name in self._further]
        return (prompt, *(one or None for one in more)) if more else prompt

    @property
    def _further(self) -> list[str]:
        return [name for name in (self._mapping.input, self._mapping.follow_up) if name and name in self._columns]

    def _compile(self) -> None:
        fields: list[Any] = []
        for place, name in enumerate(self._columns):
            kind = self._type(name)
            field = f"c{place}"
            or_null = kind if kind is _NULL else kind | None
            if name not in self._loose:
                fields.append((field, kind))
            elif name in self._usual:  # it may be null; a row without it is told of
                fields.append((field, or_null))
            else:
                fields.append((field, or_null | UnsetType, UNSET))
        fields.sort(key=len)
        names = {f"c{place}": name for place, name in enumerate(self._columns)}
        try:
            made = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False)
            self.decode = msgspec.json.Decoder(made).decode
        except ValueError as error:  # a name with a quote or a backslash in it
            raise NotTyped from error
        self._checks = list(self._made_checks())

    def _type(self, name: str) -> Any:
        if self._messages is not None and name == self._mapping.prompt:
            return self._messages.decoded
        if name in self._texts:
            return list[str]
        return _TYPES[self._main[name]]

    def _made_checks(self) -> Iterable[Callable[[list[Any]], Suspicious]]:
        mapping = self._mapping
        nested = [n for n in self._columns if self._main[n] in (LIST, OBJECT) and n not in self._texts]
        if self._messages is not None:
            nested.remove(mapping.prompt)
        if not self._usual:
            getters = list(self._getters.values())
            # An object without any field is what is left where none is required.
            yield lambda rows: [i for i, row in enumerate(rows) if all(get(row) is UNSET for get in getters)]
        for name in nested:
            yield self._each(name, lambda value: value is None or value is UNSET or contents.of_value(value) is None)
        if not mapping.prompt:
            return
        if self._messages is not None:
            yield self._of_all(mapping.prompt, self._messages.suspicious)
        else:
            yield self._stripped(mapping.prompt, None)
        if mapping.answer and mapping.answer != mapping.prompt:
            yield self._answer(mapping.answer)
        yield from self._optional(mapping)

    def _optional(self, mapping: ColumnMapping) -> Iterable[Callable[[list[Any]], Suspicious]]:
        if mapping.input and self._main.get(mapping.input, TEXT) != TEXT:
            yield self._present(mapping.input)
        if mapping.test_cases in self._columns:
            yield self._tests(mapping.test_cases)
        if mapping.difficulty and self._main.get(mapping.difficulty) not in (None, TEXT, NUMBER):
            yield self._present(mapping.difficulty)
        if mapping.tags in self._columns and mapping.tags not in self._texts:
            if self._main[mapping.tags] == TEXT:
                yield self._each(mapping.tags, lambda value: not (isinstance(value, str) and "[" in value))
            else:
                yield self._present(mapping.tags)
        if mapping.follow_up in self._columns:
            yield self._present(mapping.follow_up)

    def _stripped(self, name: str, nothing: str | None) -> Callable[[list[Any]], Suspicious]:
        """Texts that are more than `nothing` (None: white space) at their ends."""
        if self._main[name] != TEXT or name in self._loose:
            return self._each(name, lambda value: isinstance(value, str) and bool(value.strip(nothing)))
        get, strip = self._getters[name], methodcaller("strip", nothing)

        def check(rows: list[Any]) -> Suspicious:
            if all(map(strip, map(get, rows))):
                return ()
            return [place for place, row in enumerate(rows) if not strip(get(row))]

        return check

    def _answer(self, name: str) -> Callable[[list[Any]], Suspicious]:
        if name not in self._columns:
            return lambda rows: range(len(rows))
        if self._main[name] == NUMBER and self._whole:
            return self._each(name, lambda value: isinstance(value, int | float))
        if self._main[name] != TEXT:
            return lambda rows: range(len(rows))
        if self._whole:
            return self._stripped(name, NO_ANSWER)
        extract, marker = self._transform.extract, self._mapping.answer_after

        def good(value: Any) -> bool:
            try:
                answer = extract(value, name, marker).answer
            except (RowProblem, AttributeError):
                return False
            return bool(normalised(answer, ignore_case=False, ignore_punctuation=True))

        return self._each(name, good)

    @property
    def _whole(self) -> bool:
        """The answer is the column's text as it stands."""
        transform = self._mapping.transform
        return transform in (INSTRUCTION, WITH_TESTS) or (transform == COLUMNS and not self._mapping.answer_after)

    def _tests(self, name: str) -> Callable[[list[Any]], Suspicious]:
        if name not in self._texts:
            return self._present(name)
        needed = "test_cases" in self._transform.needs

        def good(value: Any) -> bool:
            if not value or value is UNSET:
                return not needed
            return all(value) and not any(map(str.isspace, value))

        return self._each(name, good)

    def _present(self, name: str) -> Callable[[list[Any]], Suspicious]:
        """Any value is one to look at again."""
        if name not in self._getters:
            return lambda rows: ()
        return self._each(name, lambda value: value is None or value is UNSET or value == "")

    def _each(self, name: str, good: Callable[[Any], bool]) -> Callable[[list[Any]], Suspicious]:
        get = self._getters[name]

        def check(rows: list[Any]) -> Suspicious:
            verdicts = list(map(good, map(get, rows)))
            return () if all(verdicts) else [place for place, verdict in enumerate(verdicts) if not verdict]

        return check

    def _of_all(self, name: str, look: Callable[[Values], Suspicious]) -> Callable[[list[Any]], Suspicious]:
        get = self._getters[name]
        return lambda rows: look(list(map(get, rows)))

    def _count(self, rows: list[Any], counts: Counts) -> None:
        for name in self._columns:
            if name not in self._loose:
                counts[name][self._main[name]] += len(rows)
                continue
            for kind, many in Counter(map(type, map(self._getters[name], rows))).items():
                if kind is not UnsetType:
                    counts[name][_WORDS[kind]] += many

    def _keys(self, rows: list[Any]) -> list[Hashable]:
        prompts: list[Any] = list(map(self._getters[self._mapping.prompt], rows))
        if self._messages is not None:
            return self._messages.keys(prompts)
        if not self._further:
            return prompts
        more = [[_or_none(value) for value in map(self._getters[name], rows)] for name in self._further]
        return list(zip(prompts, *more, strict=True))


def _texts(value: Any) -> bool:
    """Whether it is a list of texts, or none."""
    return value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value))


def _or_none(value: Any) -> Any:
    return None if value is UNSET else value or None
