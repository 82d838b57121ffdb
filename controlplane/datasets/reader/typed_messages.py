"""A column of chat messages, decoded so that each message's type is its role."""

from __future__ import annotations

import string
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import attrgetter, or_
from typing import Annotated, Any

import msgspec

from controlplane.datasets.reader.conversations import messages
from controlplane.datasets.reader.fields import RowProblem, listed

Row = Mapping[str, Any]
Values = list[Any]
Suspicious = Iterable[int]
"""Places in a block's rows."""

ROLES = ("system", "developer", "user", "human", "assistant", "gpt", "model")
ANSWERERS = ("assistant", "gpt", "model")
LONGEST_SEQUENCE = 16
MOST_SEQUENCES = 10_000
"""Of roles that are remembered."""
NO_ANSWER = string.punctuation + "".join(chr(point) for point in range(0x3001) if chr(point).isspace())
"""An answer of nothing else is empty once it is normalised."""


class NotTyped(Exception):
    """Rows of this schema have no fast way."""


class Messages:
    """A column of chat messages: each role is a type of its own, so that a row's roles are its messages' types."""

    def __init__(self, name: str, sample: Sequence[Row], *, answered: bool, whole: bool) -> None:
        """`answered`: another column has the answer. `whole`: if not, it is the last message as it stands."""
        values = [row.get(name) for row in sample]
        each = [one for value in values if isinstance(value, list) for one in value if isinstance(one, dict)]
        if not each:
            raise NotTyped
        self._role, self._content = ("from", "value") if "from" in each[0] else ("role", "content")
        if not all(one.keys() == {self._role, self._content} for one in each):
            raise NotTyped
        self._classes = {role: self._class(role) for role in ROLES}
        self._name_of = {made: role for role, made in self._classes.items()}
        self._answering = {self._classes[role] for role in ANSWERERS}
        self._answered, self._whole = answered, whole
        self._known: dict[tuple[type, ...], bool] = {}
        self._ends_with_answer = True
        self._fixed = self._sequence(values)
        """The classes of every row's messages, where that is always the same: then decoding sees to it."""
        self._get = attrgetter("content")

    @property
    def decoded(self) -> Any:
        """The type of a value."""
        if self._fixed:
            return tuple.__class_getitem__(self._fixed)
        return list[reduce(or_, self._classes.values())]  # type: ignore[misc]

    def loosen(self, value: Any) -> bool:
        """Take a good row's messages for what others may be like; whether the type is another one now."""
        if not self._fixed or self._sequence([value]) == self._fixed:
            return False
        self._fixed = ()
        return True

    def _sequence(self, values: Values) -> tuple[type, ...]:
        if not all(isinstance(value, list) and all(isinstance(one, dict) for one in value) for value in values):
            return ()
        roles = {tuple(one.get(self._role) for one in value) for value in values}
        if len(roles) != 1 or not (only := roles.pop()) or len(only) > LONGEST_SEQUENCE:
            return ()
        made = tuple(self._classes[role] for role in only if role in self._classes)
        return made if len(made) == len(only) and self._in_turn(made) else ()

    def _class(self, role: str) -> type:
        needed = Annotated[str, msgspec.Meta(min_length=1)] if role not in ANSWERERS else str
        return msgspec.defstruct(
            role.title(),
            [("content", needed)],
            rename={"content": self._content},
            tag=role,
            tag_field=self._role,
            frozen=True,
            forbid_unknown_fields=True,
            gc=False,
        )

    def suspicious(self, values: Values) -> Suspicious:
        if not all(values):  # null where one row had none, or empty
            values = [value if type(value) in (list, tuple) else () for value in values]
        if self._fixed and all(values):
            sequences, distinct = [], {self._fixed}
        else:
            sequences = [tuple(map(type, value)) for value in values]
            distinct = set(sequences)
        bad = {sequence for sequence in distinct if not self._in_turn(sequence)}
        found = [place for place, sequence in enumerate(sequences) if sequence in bad] if bad else []
        if any(map(str.isspace, map(self._get, chain.from_iterable(values)))):
            blank = [i for i, value in enumerate(values) if any(map(str.isspace, map(self._get, value)))]
            found.extend(blank)
        self._ends_with_answer = any(sequence[-1] in self._answering for sequence in distinct - bad)
        if self._ends_with_answer and not self._answered:
            found.extend(i for i, value in enumerate(values) if value and not self._has_answer(value[-1]))
        return found

    def _has_answer(self, last: Any) -> bool:
        """Or needs none."""
        return type(last) not in self._answering or (self._whole and bool(last.content.strip(NO_ANSWER)))

    def keys(self, values: Values) -> list[Hashable]:
        """Of the prompts alone; the values are those that were looked at last."""
        if not self._ends_with_answer:
            return list(map(tuple, values))
        return [tuple(value[:-1] if type(value[-1]) in self._answering else value) for value in values]

    def key(self, value: Any) -> Hashable:
        value = listed(value) if isinstance(value, str) else value
        made = [self._classes[one.get("role", one.get("from"))](one.get("content", one.get("value"))) for one in value]
        return tuple(made[:-1] if type(made[-1]) in self._answering else made)

    def _in_turn(self, sequence: tuple[type, ...]) -> bool:
        known = self._known.get(sequence)
        if known is None:
            roles = [self._name_of[made] for made in sequence]
            try:
                messages({"": [{"role": role, "content": "x"} for role in roles]}, "")
                known = True
            except RowProblem:
                known = False
            if len(self._known) < MOST_SEQUENCES:
                self._known[sequence] = known
        return known
