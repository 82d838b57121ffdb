"""A job: a module is executed, and a function of it gives a plain value or says why not."""

from __future__ import annotations

import pytest

from tests.workers.sandbox.forks import judged, ran
from workers.sandbox.outcomes import Limits


def test_a_job_gives_its_value() -> None:
    answer = ran("def double(items, by):\n    return [one * by for one in items]", "double", [1, 2.5, "a"], 2)
    assert answer == {"kind": "ok", "value": [2, 5.0, "aa"], "message": "", "traceback": ""}


def test_a_job_without_a_call_is_executed() -> None:
    assert ran("if __name__ == '__main__':\n    x = 1 / 1\n")["kind"] == "ok"
    failed = ran("if __name__ == '__main__':\n    x = 1 / 0\n")
    assert (failed["kind"], failed["message"]) == ("error", "ZeroDivisionError: division by zero")
    assert "line 2" in failed["traceback"]


def test_a_module_of_data_classes_is_executed() -> None:
    source = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
    assert ran(source + "def f():\n    return P(3).x\n", "f")["value"] == 3
    assert judged(source + "def f():\n    return P(3).x\n", "assert f() == 3").passed == [True]


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        ("def f():\n    return object()", "error", "It returned an object, which is not a plain value."),
        ("def f():\n    return 'x' * 5_000_000", "error", "bytes; 1,048,576 are allowed"),
        ("def f():\n    raise MemoryError", "memory", "MemoryError"),
        ("import sys\nsys.exit(3)", "error", "It ended early by calling exit(3)."),
        ("x = (", "error", "SyntaxError"),
        ("x = 1\0", "error", "null bytes"),
        ("x = '\ud800'", "error", "surrogates not allowed"),
        ("def g(): pass", "error", "name 'f' is not defined"),
        ("class E(Exception):\n    def __str__(self):\n        raise self\nraise E", "error", "without readable text"),
        ("def f():\n    return f()", "error", "RecursionError"),
    ],
)
def test_a_job_that_fails_says_why(source: str, kind: str, said: str) -> None:
    answer = ran(source, "f")
    assert (answer["kind"], answer["value"]) == (kind, None)
    assert said in answer["message"]


def test_a_value_may_be_as_large_as_it_is_allowed() -> None:
    assert (
        len(ran("def f():\n    return 'x' * 5_000_000", "f", limits=Limits(value_bytes=6_000_000))["value"])
        == 5_000_000
    )
