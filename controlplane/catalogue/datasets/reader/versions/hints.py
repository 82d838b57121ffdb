"""Gives hints about a dataset before training on it, with the figures behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

FEW_ROWS = 100
MUCH = 0.05
"""Minimum share of the rows for a hint."""


@dataclass(frozen=True)
class Hint:
    level: str
    """`note`, or `watch`: training is likely to suffer."""
    title: str
    text: str


def hints(statistics: Mapping[str, Any], *, token_limit: int | None = None) -> list[dict[str, str]]:
    """`statistics`: from Statistics.as_dict. The most important hints come first."""
    if not statistics["rows"]:
        return []
    all_hints = [*_prompt_hints(statistics), *_answer_hints(statistics), *_difficulty_hints(statistics)]
    all_hints += _length_hints(statistics, token_limit)
    return [asdict(hint) for hint in sorted(all_hints, key=lambda hint: hint.level != "watch")]


def _prompt_hints(figures: Mapping[str, Any]) -> Iterator[Hint]:
    rows = figures["rows"]
    if rows < FEW_ROWS:
        yield Hint(
            "note", "Few rows", f"{rows:,} rows: each prompt is repeated often, and the policy may memorize them."
        )
    if figures["repeated"] > MUCH * rows:
        text = (
            f"{figures['repeated']:,} of {rows:,} rows repeat an earlier prompt: "
            "these prompts weigh more than the others."
        )
        yield Hint("note", "Repeated prompts", text)
    if figures["ambiguous"]:
        text = (
            f"{figures['ambiguous']:,} rows repeat an earlier prompt with another answer. A reward that compares with "
            "the answer contradicts itself there: keep one row of each, or make the prompts differ."
        )
        yield Hint("watch", "Ambiguous prompts", text)
    if figures["short_prompts"]:
        text = (
            f"{figures['short_prompts']:,} prompts have fewer than three words. Complete them, or add the missing "
            "context to the prompt template."
        )
        yield Hint("watch" if figures["short_prompts"] > MUCH * rows else "note", "Very short prompts", text)


def _answer_hints(figures: Mapping[str, Any]) -> Iterator[Hint]:
    rows, code, tests = figures["rows"], figures["code"], figures["with_tests"]
    if not figures["with_answer"] and not tests:
        yield Hint(
            "note", "No answers", "No row has an answer or tests: only rewards for format and length can be used."
        )
    elif (without := rows - max(figures["with_answer"], tests)) > 0:
        text = f"{without:,} of {rows:,} rows have none: rewards that compare with an answer skip them."
        yield Hint("note", "Rows without an answer", text)
    if code > rows / 2 and tests < code:
        text = (
            f"{code - tests:,} rows of code have an answer but no test_cases. If answers are programs that print, "
            "“Prints what the reference prints” compares completions with them; other code can only be rewarded for "
            "parsing and running."
        )
        yield Hint("note", "Code without tests", text)


def _difficulty_hints(figures: Mapping[str, Any]) -> Iterator[Hint]:
    counts = figures["difficulty"]["counts"]
    if not counts:
        text = "No column has a difficulty. After a first run, its difficulty map can be used instead."
        yield Hint("note", "No difficulty", text)
        return
    rated = figures["with_difficulty"]
    if figures["difficulty"]["different"] == 1 and figures["rows"] > 1:
        text = f"All rows with a difficulty are “{counts[0]['name']}”. Groups need both right and wrong answers."
        yield Hint("note", "One difficulty", text)
    elif counts[0]["count"] > 0.9 * rated:
        text = f"{100 * counts[0]['count'] / rated:.0f} % of the rows are “{counts[0]['name']}”; few differ."
        yield Hint("note", "Hardly varied difficulty", text)
    if rated < figures["rows"]:
        yield Hint(
            "note",
            "Rows without a difficulty",
            f"{figures['rows'] - rated:,} rows have none; they form a group of their own.",
        )


def _length_hints(figures: Mapping[str, Any], token_limit: int | None) -> Iterator[Hint]:
    tokens = figures["lengths"].get("prompt_tokens")
    if tokens and token_limit and tokens["longest"] > token_limit:
        text = (
            f"The longest prompt has {tokens['longest']:,} tokens, the limit is {token_limit:,}; 95 % have at most "
            f"{tokens['p95']:,}. Runs don't truncate prompts, and fail if one exceeds vLLM's context. Under Rows, "
            "you can derive a version without long prompts."
        )
        yield Hint("watch", "Prompts over the token limit", text)
    chars = figures["lengths"].get("prompt_chars")
    if chars and chars["longest"] > 20 * max(1, chars["median"]):
        text = (
            f"The longest prompt has {chars['longest']:,} characters, the median is {chars['median']:,}: a few long "
            "prompts determine the memory of a whole batch."
        )
        yield Hint("note", "A few very long prompts", text)
