"""Format rewards for structure: JSON with a schema, regular expressions and XML elements."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

from workers.rewards import pattern, schema
from workers.rewards.entries.tags import names, names_problem
from workers.rewards.extract import answer_at, first_answer
from workers.rewards.parameters import Params, param
from workers.rewards.pattern import MODES
from workers.rewards.reward import Example, Reward

SOURCES = ("code block", "answer tag", "whole text", "anywhere")
MAX_XML_DEPTH = 200
_WRAPPER = "wrapper"
_ANN = '{"name": "Ann", "age": 41}'
_PERSON = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["name", "age"]}'


@dataclass(frozen=True)
class JsonValidParams(Params):
    schema: str = param(
        "",
        "A JSON Schema that the value must fit. If empty, any JSON is accepted. Other documents to which it refers are "
        "never fetched.",
        longest=schema.MAX_SCHEMA_LENGTH,
        widget="json",
        rule=lambda text: text.strip() and schema.problem(text),
    )
    source: str = param(
        "anywhere",
        "Where to find the JSON. “Anywhere” tries the last code block, then the answer tag, then the whole text.",
        choices=SOURCES,
    )
    tag: str = param("answer", "Name of the tag if the source is the answer tag.")
    misfit_score: float = param(0.0, "Score of JSON that doesn't fit the schema.", min=0.0, max=1.0)


@dataclass(frozen=True)
class RegexMatchParams(Params):
    pattern: str = param(
        r"<answer>.+?</answer>",
        "A Python regular expression. One that backtracks catastrophically is refused.",
        longest=pattern.MAX_PATTERN_LENGTH,
        widget="pattern",
    )
    mode: str = param("anywhere", "Where the pattern must match.", choices=MODES)
    ignore_case: bool = param(False, "Treat A and a as equal.")
    dot_all: bool = param(True, "Let a dot also match a line break.")
    inverted: bool = param(False, "Score 1 if the pattern doesn't match and 0 if it does.")

    def problem(self) -> str | None:
        if not self.pattern:
            return "pattern: must not be empty"
        error = pattern.problem(self.pattern, self.mode, ignore_case=self.ignore_case, dot_all=self.dot_all)
        return f"pattern: {error}" if error else None


@dataclass(frozen=True)
class XmlStructureParams(Params):
    elements: str = param(
        "think, answer",
        "Comma-separated names of the required elements, in order. If empty, any elements are accepted.",
        rule=functools.partial(names_problem, allows_none=True),
    )
    one_root: bool = param(
        False, "Require a single XML document; otherwise several elements, and text between them, are accepted."
    )
    partial: bool = param(False, "Score well-formed XML by the share of required elements that it contains.")


def json_valid(completion: str, row: Mapping[str, Any], params: JsonValidParams) -> float:
    """Return 1 if the text is JSON that fits the schema, `misfit_score` if it doesn't fit, or 0 if it isn't JSON.
    Raises TimeoutError if checking a value against the schema takes too long."""
    if params.source == "anywhere":
        text = first_answer(completion, ("code block", "answer tag"), tag=params.tag)
    else:
        text = answer_at(completion, params.source, tag=params.tag) or ""
    value = schema.parsed(text)
    if not schema.is_json(value):
        return 0.0
    return 1.0 if not params.schema.strip() or schema.fits(value, params.schema) else params.misfit_score


def regex_match(completion: str, row: Mapping[str, Any], params: RegexMatchParams) -> float:
    """Return 1 if the pattern matches and 0 if it doesn't, or with `inverted` the opposite. Raises TimeoutError if
    matching takes too long."""
    is_match = pattern.matches(
        params.pattern, completion, params.mode, ignore_case=params.ignore_case, dot_all=params.dot_all
    )
    return float(is_match != params.inverted)


def xml_structure(completion: str, row: Mapping[str, Any], params: XmlStructureParams) -> float:
    """Return 1 for well-formed XML that contains the required elements once each, in order, and 0 otherwise (a bare <
    or & is enough); with `partial`, return the share of required elements. Entities and document types are refused, so
    nothing can expand."""
    top_names = _top_elements(completion, params.one_root)
    if top_names is None:
        return 0.0
    required_names = names(params.elements)
    if not required_names:
        return float(bool(top_names))
    found_names = [name for name in required_names if top_names.count(name) == 1]
    if params.partial:
        return len(found_names) / len(required_names)
    return float(
        found_names == required_names and [name for name in top_names if name in set(required_names)] == required_names
    )


def _top_elements(text: str, one_root: bool) -> list[str] | None:
    """Return the names of the top-level elements, or with `one_root` those of the root and its children; None if the
    XML is not well-formed."""
    parser = expat.ParserCreate()
    depth = -1 if not one_root else 0
    elements: list[str] = []

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth
        if depth > MAX_XML_DEPTH:
            raise ValueError("nested too deep")
        if depth == 0 or (one_root and depth == 1):
            elements.append(name)
        depth += 1

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    def refused(*_: object) -> None:
        raise ValueError("a document type")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = refused
    try:
        parser.Parse(text.strip() if one_root else f"<{_WRAPPER}>{text}</{_WRAPPER}>", True)
    except (expat.ExpatError, ValueError):  # ValueError: also unpaired surrogates, which XML can't contain
        return None
    return elements


REWARDS = (
    Reward(
        key="json_valid",
        title="Valid JSON",
        help="1 if the completion contains JSON that fits a schema.",
        function=json_valid,
        params=JsonValidParams,
        low="No JSON where it is expected, or it doesn't fit the schema.",
        high="JSON that fits the schema.",
        use="For answers that a program reads. With a schema, names, types and bounds are checked too.",
        examples=(
            Example(f"```json\n{_ANN}\n```", 1.0, params={"schema": _PERSON}, why="It has both properties."),
            Example('{"name": "Ann"}', 0.0, params={"schema": _PERSON}, why="`age` is missing."),
            Example("{'name': 'Ann'}", 0.0, why="JSON doesn't allow single quotes."),
        ),
    ),
    Reward(
        key="regex_match",
        title="Matches a pattern",
        help="1 if a regular expression matches.",
        function=regex_match,
        params=RegexMatchParams,
        low="The pattern doesn't match.",
        high="The pattern matches.",
        use="For a format that no other reward checks or, inverted, for words that must not appear.",
        examples=(
            Example("So: <answer>7</answer>", 1.0, why="The default pattern is an answer tag with something in it."),
            Example("As an AI, I", 0.0, params={"pattern": r"\bas an ai\b", "ignore_case": True, "inverted": True},
                    why="Inverted: the words match, so the score is 0."),
        ),
    ),
    Reward(
        key="xml_structure",
        title="XML structure",
        help="1 if the completion is well-formed XML with the required elements in order.",
        function=xml_structure,
        params=XmlStructureParams,
        low="Not well-formed (a bare < or & is enough), or an element is missing, duplicated or out of order.",
        high="Well-formed, with each element once and in order.",
        use="For output that a program parses as XML. For tags in prose, “Soft format” is more forgiving.",
        examples=(
            Example("<think>3 + 4</think> <answer>7</answer>", 1.0, why="Both elements are present, in order."),
            Example("<think>3 < 4</think><answer>7</answer>", 0.0, why="XML doesn't allow a bare <: it must be &lt;."),
        ),
    ),
)  # fmt: skip
