"""An input/output test of code, as one of a row's `test_cases`: a line of JSON with what is given and what is expected.

A program reads standard input and prints: {"stdin": "1 2\\n", "stdout": "3\\n"}. A function is called and returns a
value: {"call": "add", "args": [1, 2], "returns": 3}, with an object as `args` for arguments by name. Other test cases
are Python code.
"""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InputOutputTest:
    expected: Any
    """Text that the program must print, or the value that the call must return."""
    stdin: str = ""
    call: str = ""
    """Function to call, which may be a method of the class Solution; "" for a program."""
    args: Any = ()
    """Arguments of the call: a list, or an object with their names."""


def pack(test: InputOutputTest) -> str:
    """Return a test as a line of JSON. Raises ValueError for a value that isn't JSON."""
    if test.call:
        fields = {"call": test.call, "args": test.args, "returns": test.expected}
    else:
        fields = {"stdin": test.stdin, "stdout": test.expected}
    return json.dumps(fields, ensure_ascii=False)


def is_input_output(text: str) -> bool:
    """Return whether a test begins like an input/output test, and not like Python."""
    return text.startswith(('{"stdin":', '{"call":'))


def unpack(text: str) -> InputOutputTest | None:
    """Return the test in a line of JSON, or None if it isn't one, such as Python code."""
    if not is_input_output(text):
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    match fields:
        case {"stdin": str(stdin), "stdout": str(stdout)}:
            return InputOutputTest(stdout, stdin)
        case {"call": str(call), "args": list() | dict() as args, "returns": expected} if call.isidentifier():
            return InputOutputTest(expected, call=call, args=args)
    return None
