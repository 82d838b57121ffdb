"""Reading of a row's tests of code in the shapes that datasets have, as Python tests or input/output tests.

The result is the same for all of them: a list of strings, each one either Python code or a test of
workers.contract.run.code_tests. Values may be JSON in strings, also twice, or Python literals. Nothing is executed.
"""

import ast
import base64
import json
import pickletools
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.catalogue.datasets.reader.columns.fields import Row, RowProblem, kind
from controlplane.catalogue.datasets.reader.columns.paths import value_of
from workers.contract.run.code_tests import InputOutputTest, pack, unpack
from workers.sandbox.requirements.syntax import is_too_deep, parsed

MAX_TESTS = 2_000
MAX_CHARS = 8 * 2**20
"""Maximum length of a row's tests, which are as long as a row may be, also when they come compressed."""
MAX_PARSED_CHARS = 50_000
"""Maximum length of Python code and literals to parse."""
INPUTS = ("inputs", "input", "stdin", "args", "test_input")
OUTPUTS = ("outputs", "output", "stdout", "returns", "expected_output", "expected_outputs", "expected", "test_output")
FUNCTIONS = ("fn_name", "func_name", "call", "function_name", "entry_point", "method_name")
KINDS = ("type", "testtype", "test_type")
TEST_KEYS = ("test_cases", "tests", "input_output", "io")
_METADATA, _STARTER = "metadata", "starter_code"
_MAX_LEVELS = 4
"""Maximum number of encodings of a value: JSON in a string, twice, and compressed."""
_COMPRESSED = re.compile(r"eJ[A-Za-z0-9+/\s]{8,}={0,2}\s*")
_DEFINED_FUNCTION = re.compile(r"\bdef\s+([A-Za-z_]\w*)\s*\(")
_ASSERTION = re.compile(r"\s*assert\b.*(?:==|\bis\b|\()", re.DOTALL)
_TEXT_OPCODES = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"))
_PICKLED_TEXT = _TEXT_OPCODES | {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"}


class _Damaged(ValueError):
    """Problem of a value, as the end of a sentence about the column."""


def tests(row: Row, name: str, *, is_required: bool) -> list[str]:
    """Return the tests of a row. Raises RowProblem if they are damaged or too long, or if there is none where one is
    required."""
    value = value_of(row, name)
    try:
        value = _opened(value)
        found = _checked(list(_tests(value, row)))
    except _Damaged as problem:
        raise RowProblem("test_cases_type", f"“{name}” {problem}", name) from None
    if not found and is_required:
        raise RowProblem("missing_field", f"“{name}” has no test in this row.", name)
    return found


def is_tests(value: Any, *, is_named: bool, row: Row) -> bool:
    """Return whether a value has tests. `is_named`: whether the name of its column says so; otherwise only input/output
    tests with names and lists of assertions count."""
    try:
        content = _opened(value)
        found = list(_tests(content, row))
    except _Damaged:
        return False
    if is_named or not found:
        return bool(found)
    if isinstance(content, list) and all(isinstance(item, list) for item in content):
        return False  # pairs may be anything, such as earlier turns
    has_assertions = isinstance(content, list) and all(_ASSERTION.match(test) for test in found)
    return has_assertions or all(unpack(test) for test in found)


def _checked(found: list[str]) -> list[str]:
    if len(found) > MAX_TESTS:
        raise _Damaged(f"has {len(found):,} tests; at most {MAX_TESTS:,} are allowed. Remove some of them.")
    if (size := sum(map(len, found))) > MAX_CHARS:
        raise _Damaged(
            f"has tests with {size:,} characters; at most {MAX_CHARS:,} are allowed. Remove the longest ones."
        )
    return found


def _tests(value: Any, row: Row) -> Iterator[str]:
    if value in (None, "", [], {}):
        return
    if isinstance(value, str):
        yield from _python_tests(value)
    elif isinstance(value, list) and not any(_has_structure(item) for item in value):
        yield from _strings(value)
    elif isinstance(value, Mapping | list):
        for test in _input_output_tests(value, row):
            try:
                yield pack(test)
            except (ValueError, TypeError, RecursionError):
                raise _Damaged("has a test with a value that isn't JSON.") from None
    else:
        raise _Damaged(f"is {kind(value)}; tests must be a list of strings, or of inputs and outputs.")


def _strings(value: list[Any]) -> Iterator[str]:
    for number, case in enumerate(value, 1):
        if not isinstance(case, str):
            raise _Damaged(f"has test {number} as {kind(case)}, not as a string or an object.")
        if not case.strip():
            raise _Damaged(f"has an empty test {number}.")
        yield case


def _has_structure(item: Any) -> bool:
    if isinstance(item, str):
        return item.lstrip()[:1] == "{" and isinstance(_parsed(item), Mapping)
    return isinstance(item, Mapping | list)


def _opened(value: Any) -> Any:
    """Return the value behind JSON, Python literals and compression in a string. Raises _Damaged if it begins like
    one of them but can't be read."""
    for _ in range(_MAX_LEVELS):
        if not isinstance(value, str):
            return value
        start = value.lstrip()[:1]
        if start and start in '[{"':
            content = _parsed(value)
            if content is None:
                if start == '"' or _statements(value):
                    return value
                raise _Damaged("begins like JSON, but can't be read. Write it as JSON again, from the original data.")
            value = content
        elif _COMPRESSED.fullmatch(value):
            value = _decompressed(value)
        else:
            return value
    return value


def _parsed(text: str) -> Any:
    """Return the value of JSON or of a Python literal, or None if it is neither."""
    try:
        return json.loads(text)
    except RecursionError:
        return None
    except ValueError:
        if len(text) > MAX_PARSED_CHARS or is_too_deep(text):
            return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _decompressed(text: str) -> str:
    """Read LiveCodeBench's private tests: base64 of zlib of a pickled string, or of a plain one. The pickle is never
    loaded: only its text is taken, and one that holds anything else is refused."""
    advice = "Write the tests as JSON in its place, or use the column with the public tests."
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b64decode(text), MAX_CHARS + 1)
    except (ValueError, zlib.error):
        raise _Damaged(f"looks compressed, but can't be decompressed. {advice}") from None
    if len(content) > MAX_CHARS:
        raise _Damaged(f"has more than {MAX_CHARS:,} bytes when decompressed. {advice}")
    try:
        if content[:1] != b"\x80":
            return content.decode()
        opcodes = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(content)]
    except (ValueError, EOFError):
        raise _Damaged(f"has neither text nor a pickled text inside. {advice}") from None
    texts = [argument for opcode, argument in opcodes if opcode in _TEXT_OPCODES]
    if len(texts) != 1 or not all(opcode in _PICKLED_TEXT for opcode, _ in opcodes):
        raise _Damaged(f"has a pickled object inside, which is not read because it could run code. {advice}")
    return str(texts[0])


def _python_tests(text: str) -> Iterator[str]:
    """Split one text of Python tests: by test function or, without any, by assertion at its top level."""
    statements = _statements(text)
    if not statements:
        yield text  # reported as a test that doesn't parse
        return
    tests = [node for node in statements if _is_test(node)]
    if not tests:
        tests = [node for node in statements if isinstance(node, ast.Assert)]
    if not tests and "assert" not in text:
        raise _Damaged("is one string without any assertion or test function.")
    if len(tests) < 2:
        yield text
        return
    lines = text.split("\n")
    for test in tests:
        kept = [node for node in statements if node is test or node not in tests]
        if isinstance(test, ast.Assert):
            kept = kept[: kept.index(test) + 1]  # later statements may depend on it
        yield "\n".join("\n".join(lines[_first_line(node) - 1 : node.end_lineno]) for node in kept) + "\n"


def _statements(text: str) -> list[ast.stmt]:
    """Return the statements of Python code, or [] if it can't be parsed. Code with several statements on one line can't
    be split by lines and counts as one assertion."""
    if len(text) > MAX_PARSED_CHARS or is_too_deep(text):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = parsed(text)
    if isinstance(tree, str):
        return []
    ends = [0, *(node.end_lineno or 0 for node in tree.body)]
    is_split = all(_first_line(node) > end for node, end in zip(tree.body, ends, strict=False))
    return tree.body if is_split else [ast.Assert(ast.Constant(value=True), lineno=1, end_lineno=text.count("\n") + 1)]


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _is_test(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(isinstance(part, ast.FunctionDef) and part.name.startswith("test") for part in node.body)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def _input_output_tests(value: Any, row: Row, function: str = "") -> Iterator[InputOutputTest]:
    if isinstance(value, list):
        for number, item in enumerate(value, 1):
            item = _parsed(item) if isinstance(item, str) else item
            if isinstance(item, list) and len(item) == 2:
                item = {"input": item[0], "output": item[1]}
            if not isinstance(item, Mapping):
                raise _Damaged(f"has test {number} as {kind(item)}, not as an object with an input and an output.")
            yield _test(item, row, function, f"test {number}")
        return
    function = _named(value, FUNCTIONS) or function
    inside = next((value[key] for key in TEST_KEYS if value.get(key)), None)
    if inside is not None and not any(key in value for key in OUTPUTS):
        inside = _opened(inside)
        if not isinstance(inside, Mapping | list):
            raise _Damaged("has tests in an unknown shape: a list of inputs and outputs is expected.")
        yield from _input_output_tests(inside, row, function)
        return
    given, expected = _part(value, INPUTS), _part(value, OUTPUTS)
    if not (isinstance(given, list) and isinstance(expected, list)) or _named(value, KINDS):
        yield _test(value, row, function, "the test")
    elif len(given) != len(expected):
        raise _Damaged(f"has {len(given):,} inputs, but {len(expected):,} outputs. Each test needs one of both.")
    else:
        for number, pair in enumerate(zip(given, expected, strict=True), 1):
            yield _test({"input": pair[0], "output": pair[1]}, row, function, f"test {number}")


def _test(item: Mapping[str, Any], row: Row, function: str, name: str) -> InputOutputTest:
    given, expected = _part(item, INPUTS, name), _part(item, OUTPUTS, name)
    test_kind = (_named(item, KINDS)).lower()
    function = _named(item, FUNCTIONS) or function
    if test_kind:
        is_call = "func" in test_kind or "call" in test_kind
    else:
        is_call = bool(function) or not isinstance(given, str | int | float | list) or _is_arguments(given, row)
    if not is_call:
        return InputOutputTest(_text(expected, f"the output of {name}"), _text(given, f"the input of {name}"))
    function = (function or _function_of(row)).rpartition(".")[2]
    if not function.isidentifier():
        raise _Damaged(f"has {name} for a function, but no fn_name says which. Add fn_name to the tests.")
    if not isinstance(given, str):
        return InputOutputTest(expected, call=function, args=given if isinstance(given, list | dict) else [given])
    arguments = [_json(line, f"the input of {name}") for line in given.split("\n") if line.strip()]
    if isinstance(expected, str):
        try:
            expected = json.loads(expected)
        except (ValueError, RecursionError):
            pass  # the string itself
    return InputOutputTest(expected, call=function, args=arguments)


def _is_arguments(given: Any, row: Row) -> bool:
    """Return whether a list is a function's arguments and not the lines of a program's input."""
    return isinstance(given, list) and not all(isinstance(line, str) for line in given) and bool(_function_of(row))


def _json(line: str, name: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise _Damaged(f"has {name} with a line that isn't JSON: {line[:60]!r}.") from None


def _text(value: Any, name: str) -> str:
    if isinstance(value, list):
        return "\n".join(_text(line, name) for line in value)
    if value is None or isinstance(value, Mapping):
        raise _Damaged(f"has {name} as {kind(value)}, not as text.")
    return value if isinstance(value, str) else json.dumps(value)


def _part(item: Mapping[str, Any], keys: tuple[str, ...], name: str = "") -> Any:
    key = next((key for key in keys if key in item), None)
    if key is None:
        what = "inputs" if keys is INPUTS else "outputs"
        where = f"{name} without" if name else "an object without"
        raise _Damaged(f"has {where} {what}; expected one of {', '.join(keys)}.")
    return item[key]


def _named(item: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((text for key in keys if isinstance(text := item.get(key), str) and text.strip()), "")


def _function_of(row: Row) -> str:
    """Return the function that the row's other columns ask for, or "" if they name none."""
    metadata = row.get(_METADATA)
    metadata = _parsed(metadata) if isinstance(metadata, str) else metadata
    starter = row.get(_STARTER)
    in_code = _DEFINED_FUNCTION.findall(starter) if isinstance(starter, str) else []
    named = _named(row, FUNCTIONS) or (_named(metadata, FUNCTIONS) if isinstance(metadata, Mapping) else "")
    return named or next((name for name in reversed(in_code) if name != "__init__"), "")
