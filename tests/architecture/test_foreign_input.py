"""Foreign input: parsers are called where a table says, and none takes time that grows with the square of a text."""

from __future__ import annotations

import ast
import gc
import io
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.corpora import plain_text
from controlplane.catalogue.datasets.reader.parsing.tables import DelimitedTable
from controlplane.catalogue.datasets.reader.prompts.chat_templates import Template
from controlplane.catalogue.datasets.reader.versions import row_numbers
from controlplane.catalogue.exchange import documents
from controlplane.platform import json_with_comments, safe_yaml
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from runs.insight.completions import transcripts
from runs.pages.run_page import notes
from workers.rewards import schema
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Cost
from workers.rewards.scoring import score

CHILD, OURS, WRITES, SHORT = "in a child", "files of the product", "writes only", "a short name or pattern"
PARSERS = {
    *("yaml.load", "yaml.safe_load", "tomllib.load", "tomllib.loads", "ast.parse", "ast.literal_eval", "parsed"),
    *("compile", "eval", "exec", "shlex.split", "csv.reader", "csv.DictReader", "unified_diff", "SequenceMatcher"),
    *("difflib.get_close_matches", "zipfile.ZipFile", "ZipFile", "tarfile.open", "MarkdownIt", "jinja2.Environment"),
    *("score", "_Loader", "signature.describe", "schema.problem", "schema.fits", "pattern.problem", "pattern.matches"),
}
CALLS = {
    ("controlplane/catalogue/datasets/fetching/hub.py", "yaml.safe_load"): CHILD,
    ("controlplane/catalogue/datasets/reader/checking/code.py", "compile"): CHILD,
    ("controlplane/catalogue/datasets/reader/columns/code_tests.py", "ast.literal_eval"): CHILD,
    ("controlplane/catalogue/datasets/reader/columns/code_tests.py", "parsed"): CHILD,
    ("controlplane/catalogue/datasets/reader/columns/row_function.py", "parsed"): CHILD,
    ("controlplane/catalogue/datasets/reader/parsing/formats.py", "csv.reader"): CHILD,
    ("controlplane/catalogue/datasets/reader/parsing/tables.py", "csv.reader"): CHILD,
    ("controlplane/catalogue/exchange/commands.py", "shlex.split"): CHILD,
    ("controlplane/catalogue/exchange/documents.py", "zipfile.ZipFile"): CHILD,
    ("controlplane/catalogue/exchange/documents.py", "tomllib.loads"): CHILD,
    ("controlplane/catalogue/exchange/keys.py", "tomllib.loads"): OURS,
    ("controlplane/catalogue/exchange/reading_python.py", "ast.literal_eval"): CHILD,
    ("controlplane/catalogue/exchange/reading_python.py", "parsed"): CHILD,
    ("controlplane/catalogue/exchange/reward_functions.py", "parsed"): CHILD,
    ("controlplane/catalogue/exchange/shell.py", "ast.parse"): CHILD,
    ("controlplane/catalogue/exchange/tools.py", "tomllib.loads"): OURS,
    ("controlplane/catalogue/hardware/shipped.py", "tomllib.loads"): OURS,
    ("controlplane/catalogue/references/judging.py", "score"): "in the background worker",
    ("controlplane/catalogue/rewards/scored.py", "score"): "in a child, or waits for a server",
    ("controlplane/catalogue/versioned/line_diff.py", "unified_diff"): CHILD,
    ("controlplane/platform/guide/documents.py", "MarkdownIt"): OURS,
    ("controlplane/platform/guide/glossary.py", "tomllib.loads"): OURS,
    ("controlplane/platform/safe_yaml.py", "_Loader"): CHILD,
    ("controlplane/platform/templatetags/lucide.py", "ZipFile"): OURS,
    ("runs/engine/machines/aws.py", "csv.DictReader"): OURS,
    ("runs/launch/new_run/dry_run.py", "zipfile.ZipFile"): WRITES,
    ("runs/launch/new_run/fields/table.py", "tomllib.loads"): OURS,
    ("runs/launch/preflight/checks/limits.py", "difflib.get_close_matches"): SHORT,
    ("runs/launch/preflight/checks/training.py", "difflib.get_close_matches"): SHORT,
    ("runs/pages/playground/rescoring.py", "score"): "through controlplane.catalogue.rewards.scored",
    ("runs/pages/reports/markdown.py", "zipfile.ZipFile"): WRITES,
    ("runs/pages/run_page/notes.py", "MarkdownIt"): "at most 10,000 characters, in linear time",
}
"""Where the control plane parses, and why that can't stop the web process."""

QUICK_S = 0.03
LONGEST = 12_000
"""Characters of the longest text that is tried, after a quarter of it."""
HARMLESS_S = QUICK_S / 20
"""A time that stays below QUICK_S for a text of four times the length even if it grows with the square."""
SQUARE = 9
"""Between 4, the ratio of a linear parser, and 16, that of a quadratic one."""
UNITS = [
    *("[", "{", "(", "'", '"', "\\", "`", "*", "_", ">", "<", "|", "&", "#", "-", "\n", " ", "\t", "9", "a", "é", "ﷺ"),
    *("[],", "{},", "1,", "a: ", "- ", "a\n", '{"a":', "a: b\n", "&a [*a], ", "/*", "//\n", "x=1\n", "a=1,", "-"),
    *("lambda:", "not ", "f'{a}' ", "'a' ", "\\\n", "--a 1 ", "<think>", "<tool_call>[</tool_call>", "<|im_start|>a\n"),
    *(
        "\\frac{1}{",
        "\\boxed{",
        "$",
        "1,111",
        "9/",
        "[a](",
        "[a]: b\n",
        "> - ",
        "|a|\n|-|\n",
        "http://a ",
        "a@b.",
        "*a*",
    ),
    *("{{ a }}", "{% if a %}", '"a",', '"\n', "a,b\n", "\r\n", "1e9", ".0", "~", "```\n", "a\n===\n", "\ud800"),
]
ANSWER_UNITS = ["\\frac{1}{", "\\boxed{", "$", "1,111", "9/", "9", "ﷺ", "\n", "<think>", "a "]
"""What answers are made of. tests/workers/rewards/test_hostile_texts.py has more."""


def _file(text: str) -> io.BytesIO:
    return io.BytesIO(b"a,b\n" + text.encode("utf-8", "surrogatepass"))


def _content(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


PARSES: dict[str, Callable[[str], Any]] = {
    "a config": lambda text: documents.parse(_content(text), {}),
    "a config in JSON": lambda text: documents.parse(_content('{"a":' + text), {}),
    "a script": lambda text: documents.parse(_content("GRPOConfig(a=" + text), {}),
    "a command": lambda text: documents.parse(_content("trl grpo --a " + text), {}),
    "an export's comments": lambda text: documents.parse(_content("#! a: " + text), {}),
    "YAML": lambda text: safe_yaml.parse(_content("a: " + text), 2**20),
    "YAML in lists": lambda text: safe_yaml.parse(_content("a: [" + text), 2**20),
    "JSON": json_with_comments.parse,
    "row numbers": row_numbers.parse,
    "Markdown": notes.as_html.__wrapped__,
    "paragraphs": lambda text: plain_text.parse(_content(text), "text.md"),
    "a transcript": lambda text: transcripts.turns(text, None, "assistant"),
    "a schema": lambda text: schema.problem.__wrapped__(text),
    "a value for a schema": lambda text: schema.fits(schema.parsed(text), '{"type": "array", "uniqueItems": true}'),
    "a table": lambda text: list(DelimitedTable(_file(text), ",")),
    "a chat template": lambda text: Template(text, {}).texts([[{"role": "user", "content": text}]]),
}


def test_parsers_are_called_where_the_table_says() -> None:
    assert set(_calls()) == set(CALLS)


def test_no_parser_is_slow_on_a_long_text(subtests: pytest.Subtests) -> None:
    rewards = {reward.title: _scorer(key) for key, reward in LIBRARY.items() if reward.cost is Cost.PURE}
    for name, parse in (PARSES | rewards).items():
        units = ANSWER_UNITS if name in rewards else UNITS
        with subtests.test(name):
            # Measured again, since the machine may have been busy.
            assert [unit for unit in units if all(_growth(parse, unit) > SQUARE for _ in range(4))] == []


def test_a_slow_parser_is_noticed() -> None:
    def quadratic(text: str) -> None:
        for start in range(len(text)):
            text[start:].count("b"), text[start:].count("c"), text[start:].count("d"), text[start:].count("e")

    assert _growth(quadratic, "a") > SQUARE


def _calls() -> Iterator[tuple[str, str]]:
    for root in ("controlplane", "runs"):
        for path in sorted((ROOT / root).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if "/migrations/" in name or name.startswith(("controlplane/ctl/", "controlplane/setup/")):
                continue
            for node in ast.walk(ast.parse(Path(path).read_text())):
                if isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in PARSERS:
                    yield name, called


def _scorer(key: str) -> Callable[[str], Any]:
    reward = LIBRARY[key]
    row = {"row": 0, "prompt": "p", "answer": "A", "test_cases": []}
    return lambda text: score(reward, [Completion(text)], [row | {"answer": text[:2000]}], {})


def _growth(parse: Callable[[str], Any], unit: str) -> float:
    """Compare a text's time with that of a quarter of it: 4 if linear, 16 if quadratic; 0 if none takes long."""
    length = LONGEST // 4
    long = _seconds(parse, unit, length)
    if HARMLESS_S <= long < QUICK_S:
        length = LONGEST
        long = _seconds(parse, unit, length)
    if long < QUICK_S:
        return 0.0
    return long / max(min(_seconds(parse, unit, length // 4) for _ in range(3)), 1e-6)


def _seconds(parse: Callable[[str], Any], unit: str, length: int) -> float:
    text = unit * max(1, length // len(unit))
    gc.disable()  # a collection would look through everything that earlier tests have left
    try:
        began = time.process_time()
        with suppress(Exception):  # whatever the parser says of it
            parse(text)
        return time.process_time() - began
    finally:
        gc.enable()
