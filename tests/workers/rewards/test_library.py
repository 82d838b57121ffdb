"""The library as a whole: what every entry tells of itself, which parameters it refuses, what importing it takes."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.workers.rewards.scoring import PURE, one
from workers import rewards
from workers.rewards.library import LIBRARY, SECTIONS
from workers.rewards.parameters import Params
from workers.rewards.reward import Completion, Reward
from workers.rewards.scoring import score

FREE = {"model", "endpoint"}
"""Parameters that have no default that fits anybody."""
EXAMPLES = [(key, number) for key in PURE for number in range(len(LIBRARY[key].examples))]


def test_no_two_rewards_have_one_key() -> None:
    keys = [reward.key for modules in SECTIONS.values() for module in modules for reward in module.REWARDS]
    assert sorted(keys) == sorted(set(keys))


def test_a_reward_describes_itself_for_a_form(subtests: pytest.Subtests) -> None:
    for key in LIBRARY:
        with subtests.test(key=key):
            reward = LIBRARY[key]
            assert reward.key == key
            for entry in json.loads(json.dumps(reward.schema())):
                assert set(entry) == {"name", "type", "default", "help", "choices", "min", "max", "longest", "widget"}
                assert entry["type"] in {"bool", "int", "float", "str"}
                assert entry["help"].endswith(".")
            assert {problem.split(":")[0] for problem in reward.check(reward.defaults())} <= FREE


def test_a_reward_says_what_its_scores_mean_and_when_to_use_it(subtests: pytest.Subtests) -> None:
    for key in LIBRARY:
        with subtests.test(key=key):
            reward = LIBRARY[key]
            for words in (reward.help, reward.low, reward.high, reward.use):
                assert words[-1:] in {".", "”"}, words
            assert reward.title
            assert reward.examples
            assert (reward.typical is None) == (reward.range[1] is not None)
            assert [reward.function, reward.whole, reward.batch, reward.compare].count(None) == 3


def test_a_function_says_the_same_to_who_reads_the_code(subtests: pytest.Subtests) -> None:
    """Its range comes first, then what the ends mean, and when to use it."""
    for key in LIBRARY:
        with subtests.test(key=key):
            reward = LIBRARY[key]
            words = inspect.getdoc(reward.function or reward.whole or reward.batch or reward.compare) or ""
            first, *rest = re.split(r"(?<=[.:,;])\s", words, maxsplit=1)
            assert re.search(r"\d|number|function returns", first)
            assert len(" ".join(rest)) > 60
            assert "0" in words
            assert words.endswith(".")


def test_no_two_rewards_share_a_docstring() -> None:
    functions = [one.function or one.whole or one.batch or one.compare for one in LIBRARY.values()]
    assert len({inspect.getdoc(function) for function in functions}) == len(LIBRARY)


def test_a_worked_example_scores_as_it_says(subtests: pytest.Subtests) -> None:
    for key, number in EXAMPLES:
        with subtests.test(key=key):
            reward, example = LIBRARY[key], LIBRARY[key].examples[number]
            completion = Completion(example.completion, example.turns, example.tokens)
            assert reward.check(example.params) == []
            given = score(reward, [completion], [example.row], example.params)
            assert given.failures == []
            assert given.values == [pytest.approx(example.score)]
            low, high = reward.expected(example.params)
            assert given.values[0] is not None
            assert low <= given.values[0] <= (float("inf") if high is None else high)
            assert example.why.endswith(".")


def test_worked_examples_show_more_than_one_score(subtests: pytest.Subtests) -> None:
    for key in PURE:
        with subtests.test(key=key):
            scores = [example.score for example in LIBRARY[key].examples]
            assert len(set(scores)) > 1 or key == "unique_chars_normalised"


def test_a_batch_pairs_each_completion_with_its_row() -> None:
    rows = [{"answer": "1"}, {"answer": "2"}, {"answer": None}]
    assert score(LIBRARY["numeric_match"], ["1", "1", "1"], rows, {}).values == [1.0, 0.0, None]
    with pytest.raises(ValueError):
        score(LIBRARY["numeric_match"], ["1"], rows, {})


def test_a_range_follows_the_parameters() -> None:
    assert LIBRARY["overlong"].expected({"punishment": -3.0}) == (-3.0, 0.0)
    assert LIBRARY["repetition_penalty"].expected({"penalty": -0.5}) == (-0.5, 0.0)
    assert LIBRARY["length"].expected({}) == (0.0, 1.0)


def test_tokens_that_nobody_counted_are_unavailable_not_zero() -> None:
    given = score(LIBRARY["overlong"], ["a text"], [{}], {})
    assert given.values == [None]
    assert [(failure.kind, "characters" in failure.message) for failure in given.failures] == [("unavailable", True)]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("length", {"goal": 3}, "goal: Length has no such parameter; its parameters are unit, target, maximum, minimum"),
    ("length", {"target": "3"}, "target: must be a number, not '3'"),
    ("length", {"target": 1.5}, "target: must be a whole number, not 1.5"),
    ("length", {"target": True}, "target: must be a number, not True"),
    ("length", {"target": -1}, "target: must be at least 0"),
    ("length", {"target": 10**9}, "target: must be at most 1000000"),
    ("length", {"target": float("nan")}, "target: must be a finite number"),
    ("length", {"target": 10**400}, "target: must be a finite number"),
    ("length", {"unit": "miles"}, "unit: must be one of characters, words"),
    ("length", {"target": 400, "maximum": 400}, "maximum: must be above target"),
    ("length", {"minimum": 300}, "minimum: must not be above target"),
    ("think_tags", {"partial": 1}, "partial: must be true or false, not 1"),
    ("think_tags", {"tag": "a>b"}, "tag: must be a name of letters, digits, - and _"),
    ("think_tags", {"tag": 3}, "tag: must be a string, not 3"),
    ("exact_match", {"marker": "#" * 201}, "marker: must be at most 200 characters"),
    ("think_present", {"tag": ""}, "tag: must be a name of letters, digits, - and _"),
    ("soft_format", {"tags": " , "}, "tags: must name a tag"),
    ("soft_format", {"tags": "a, a"}, "tags: must not name a tag twice"),
    ("soft_format", {"tags": "a, b c"}, "tags: must be comma-separated names of letters, digits, - and _"),
    ("soft_format", {"tags": ",".join("abcdefghijklm")}, "tags: must contain at most 12 names"),
    ("xml_structure", {"elements": "<a>"}, "elements: must be comma-separated names of letters, digits, - and _"),
    ("overlong", {"maximum": 100, "buffer": 101}, "buffer: must not be above maximum"),
    ("overlong", {"punishment": 1.0}, "punishment: must be at most 0.0"),
    ("turn_count", {"target": 8}, "maximum: must be above target"),
    ("turn_count", {"minimum": 5}, "minimum: must not be above target"),
    ("regex_match", {"pattern": ""}, "pattern: must not be empty"),
    ("regex_match", {"pattern": "("}, "pattern: is not a valid regular expression: missing ) at position 1"),
    ("json_valid", {"schema": "[1]"}, "schema: is not a valid JSON Schema: it must be an object"),
    ("tool_call_valid", {"tools": '{"name": "a"}'}, 'tools: must be a list of {"name", "parameters"}'),
    ("tool_call_valid", {"tools": "[]"}, "tools: must name a tool"),
    ("language", {"language": "Klingon"}, "language: must be one of "),
]


def test_a_wrong_parameter_is_named(subtests: pytest.Subtests) -> None:
    for key, params, complaint in REFUSED:
        with subtests.test(key=key):
            [said] = LIBRARY[key].check(params)
            assert said.startswith(complaint) if complaint.endswith(" ") else said == complaint


def test_a_whole_float_is_taken_for_a_whole_number() -> None:
    assert one("length", "abcd", None, {"target": 3.0, "maximum": 5}) == 0.5


def test_the_library_is_imported_with_nothing_but_the_standard_library() -> None:
    for path in Path(rewards.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [f"{node.module}.{a.name}" for a in node.names] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names or name.startswith(
                    ("workers.outbound", "workers.packages", "workers.rewards", "workers.sandbox")
                ), path


def test_importing_it_loads_nothing_that_only_some_rewards_need() -> None:
    asked = "import sys, workers.rewards; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"regex", "jsonschema", "pycld2", "math_verify", "sympy", "httpx", "torch"} & set(done.stdout.split())


def test_a_reward_that_misbehaves_is_told_of_by_kind() -> None:
    def late(completion: str, row: Any, params: Any) -> float:
        raise TimeoutError("for ever")

    def odd(completion: str, row: Any, params: Any) -> Any:
        return {"nan": float("nan"), "text": "1", "right": True, "huge": 10**5000}[completion]

    made = {"title": "", "help": "", "params": Params, "range": (0.0, 1.0)}
    assert [f.kind for f in score(Reward("late", function=late, **made), ["a"], [{}], {}).failures] == ["timeout"]
    given = score(Reward("odd", function=odd, **made), ["nan", "text", "right", "missing", "huge"], [{}] * 5, {})
    assert given.values == [None, None, 1.0, None, None]
    kinds = [(0, "not_a_number"), (1, "not_a_number"), (4, "not_a_number"), (3, "error")]
    assert sorted((f.index, f.kind) for f in given.failures) == sorted(kinds)
