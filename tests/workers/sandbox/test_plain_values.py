"""Values on their way: what arrives is equal and exactly plain, and what is more than plain doesn't leave."""

from __future__ import annotations

import itertools
import math
from collections import Counter, OrderedDict, deque, namedtuple
from datetime import date, timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest

from workers.sandbox import marshalling, plain_values
from workers.sandbox.messages import Malformed, MessageBuffer, pack, unpack

Point = namedtuple("Point", "x y")
Colour = IntEnum("Colour", "RED GREEN")


class Always(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __neg__(self) -> int:
        return 7

    def __pos__(self) -> int:
        return 7

    __hash__ = int.__hash__


class Empty(list[int]):
    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


def crossed(value: Any, *, wide: bool = False) -> Any:
    packed = pack(value, marshalling.write if wide else None)
    return unpack(packed[4:], marshalling.READERS if wide else None)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -1, 2**80, [10**5000, -(10**5000)], 1.5, -0.0, 1e300, math.inf, "", "ä\0\ud800", b"\x00\xff"),
        *([], [1, [2.0, (3, {4})]], [True, 1, 1.0], [10**4500, 1], (), {}, {"a": [1]}, {1: "b", (1, 2): None, "m": 1}),
        *(frozenset({1}), {1, "a"}, 1 + 2j, [[[]]], {"t": [1], "i": "0x1"}),
    ],
)
def test_plain_values_arrive_equal_and_of_the_same_type(value: Any) -> None:
    found = crossed(value)
    assert found == value
    assert type(found) is type(value)


def test_numbers_keep_their_types_and_signs_inside_a_list() -> None:
    assert repr(crossed([True, 1, 1.0, -0.0, False])) == "[True, 1, 1.0, -0.0, False]"


def test_what_is_not_a_number_arrives_as_that() -> None:
    assert math.isnan(crossed(math.nan))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Always(3), 3),
        ([Always(3)], [3]),
        (Empty([1, 2]), [1, 2]),
        (Point(1, 2), (1, 2)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (Colour.GREEN, 2),
        (bytearray(b"a"), b"a"),
    ],
)
def test_of_a_subclass_its_plain_value_arrives(value: Any, expected: Any) -> None:
    found = crossed(value)
    assert type(found) is type(expected)
    assert found == expected
    assert repr(found) == repr(expected)


def test_what_is_more_than_plain_does_not_leave(subtests: pytest.Subtests) -> None:
    for value in [object(), lambda: 1, Point, iter([]), range(3), {}.keys(), Decimal(1), [object()]]:
        with subtests.test(value=value), pytest.raises(plain_values.NotPlain):
            pack(value)


def test_an_own_class_is_named() -> None:
    with pytest.raises(plain_values.NotPlain, match="an Error"):
        pack(type("Error", (), {})())


def test_a_value_without_end_does_not_leave() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(plain_values.NotPlain, match="deeper than 100"):
        pack(endless)


def test_what_shares_its_memory_does_not_grow_without_end() -> None:
    shared: list[Any] = []
    for _ in range(60):
        shared = [shared, shared]
    with pytest.raises(plain_values.NotPlain, match="more than 500,000"):
        pack(shared)


@pytest.mark.parametrize(
    "value",
    [
        *(
            range(3),
            range(10**30),
            deque([1, 2]),
            Decimal("1.10"),
            Fraction(1, 3),
            date(2020, 2, 29),
            timedelta(1, 2, 3),
        ),
        *(int, len, {"a": 1}.keys(), {1: 2}.items(), [deque([(1,)])], {"m": Decimal(1)}),
    ],
)
def test_other_values_arrive_equal_and_of_the_same_type(value: Any) -> None:
    found = crossed(value, wide=True)
    assert found == value
    assert type(found) is type(value)


def test_iterators_arrive_as_iterators() -> None:
    assert list(crossed((one for one in "ab"), wide=True)) == ["a", "b"]
    assert list(crossed(map(str, [1, 2]), wide=True)) == ["1", "2"]
    assert list(crossed({"a": 1}.values(), wide=True)) == [1]


def test_an_endless_iterator_has_a_beginning_and_no_end() -> None:
    found = crossed(itertools.count(), wide=True)
    assert next(found) == 0
    with pytest.raises(marshalling.IteratorTruncated):
        list(found)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"nonsense", b"[1]x", b"\xff", b'{"t": 5}', b'{"t": [], "s": []}', b"{}", b'{"?": 1}'),
        *(b'{"s": [[]]}', b'{"d": [[{"m": {}}, 1]]}', b'{"d": [1]}', b'{"i": 5}', b'{"i": "x"}', b'{"b": "\\u1234"}'),
        *(
            b'{"name": "os"}',
            b'{"array": ["<f8", ["nan"]]}',
            b'{"builtin": "eval"}',
            b'{"array": ["O", [1]]}',
            b'{"c": 1}',
            b'{"m": []}',
        ),
        *(b"[" * 100_000, b'{"t":[' * 300 + b"]}" * 300, b"1" * 5000),
    ],
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        unpack(body, marshalling.READERS)


def test_the_deepest_value_that_leaves_arrives() -> None:
    deep: Any = 1
    for _ in range(plain_values.MAX_DEPTH):
        deep = (deep,)
    assert crossed({"value": deep}) == {"value": deep}


def test_a_buffer_gives_messages_however_they_are_cut() -> None:
    data = pack([1]) + pack("two") + pack({})
    buffer, found = MessageBuffer(100), []
    for place in range(len(data)):
        buffer.feed(data[place : place + 1])
        while (body := buffer.next()) is not None:
            found.append(unpack(body))
    assert found == [[1], "two", {}]


def test_a_buffer_refuses_what_is_announced_too_long_before_it_comes() -> None:
    buffer = MessageBuffer(100)
    buffer.feed(b"\x00\x00\x01\x00")
    with pytest.raises(Malformed, match="256 bytes"):
        buffer.next()


def test_numpy_is_plain_where_it_is_there() -> None:
    numpy = pytest.importorskip("numpy")
    assert crossed(numpy.float64(1.5)) == 1.5
    assert type(crossed(numpy.int32(3))) is int
    assert type(crossed(numpy.bool_(True))) is bool
    assert crossed(numpy.array([[1, 2]])) == [[1, 2]]
    for array in (numpy.array([1.5, 2]), numpy.array([], dtype="int32"), numpy.array([[True], [False]])):
        found = crossed(array, wide=True)
        assert (found.dtype, found.shape, found.tolist()) == (array.dtype, array.shape, array.tolist())
