"""Hints about a dataset before training on it, with the figures behind them."""

from collections.abc import Iterator, Mapping
from typing import Any

FEW_ROWS = 100
MUCH = 0.05
"""Minimum share of the rows for a hint."""
NOTE, WATCH = "note", "watch"
"""Levels; at `watch`, training is likely to suffer."""
Hint = tuple[str, str, str]
"""(level, title, text)"""


def hints(statistics: Mapping[str, Any], *, token_limit: int | None = None) -> list[dict[str, str]]:
    """List the hints on `statistics` (from Statistics.as_dict), the most important ones first."""
    if not statistics["rows"]:
        return []
    all_hints = [*_prompt_hints(statistics), *_answer_hints(statistics), *_difficulty_hints(statistics)]
    all_hints += _length_hints(statistics, token_limit)
    all_hints.sort(key=lambda hint: hint[0] != WATCH)
    return [{"level": level, "title": title, "text": text} for level, title, text in all_hints]


def _prompt_hints(figures: Mapping[str, Any]) -> Iterator[Hint]:
    rows, repeated, short = figures["rows"], figures["repeated"], figures["short_prompts"]
    if rows < FEW_ROWS:
        text = f"{rows:,} rows: each prompt is repeated often, and the policy may memorize them."
        yield NOTE, "Few rows", text
    if repeated > MUCH * rows:
        text = f"{repeated:,} of {rows:,} rows repeat an earlier prompt: these prompts weigh more than the others."
        yield NOTE, "Repeated prompts", text
    if figures["ambiguous"]:
        text = (
            f"{figures['ambiguous']:,} rows repeat an earlier prompt with another answer. A reward that compares with "
            "the answer contradicts itself there: keep one row of each, or make the prompts differ."
        )
        yield WATCH, "Ambiguous prompts", text
    if short:
        text = (
            f"{short:,} prompts have fewer than three words. Complete them, or add the missing "
            "context to the prompt template."
        )
        yield WATCH if short > MUCH * rows else NOTE, "Very short prompts", text


def _answer_hints(figures: Mapping[str, Any]) -> Iterator[Hint]:
    rows, code, tests = figures["rows"], figures["code"], figures["with_tests"]
    if not figures["with_answer"] and not tests:
        yield NOTE, "No answers", "No row has an answer or tests: only rewards for format and length can be used."
    elif (without := rows - max(figures["with_answer"], tests)) > 0:
        text = f"{without:,} of {rows:,} rows have none: rewards that compare with an answer skip them."
        yield NOTE, "Rows without an answer", text
    if code > rows / 2 and tests < code:
        text = (
            f"{code - tests:,} rows of code have an answer but no test_cases. If answers are programs that print, "
            "“Prints what the reference prints” compares completions with them; other code can only be rewarded for "
            "parsing and running."
        )
        yield NOTE, "Code without tests", text


def _difficulty_hints(figures: Mapping[str, Any]) -> Iterator[Hint]:
    rows, rated, counts = figures["rows"], figures["with_difficulty"], figures["difficulty"]["counts"]
    if not counts:
        text = "No column has a difficulty. After a first run, its difficulty map can be used instead."
        yield NOTE, "No difficulty", text
        return
    name, count = counts[0]["name"], counts[0]["count"]
    if figures["difficulty"]["different"] == 1 and rows > 1:
        text = f"All rows with a difficulty are “{name}”. Groups need both right and wrong answers."
        yield NOTE, "One difficulty", text
    elif count > 0.9 * rated:
        yield NOTE, "Hardly varied difficulty", f"{100 * count / rated:.0f} % of the rows are “{name}”; few differ."
    if rated < rows:
        text = f"{rows - rated:,} rows have none; they form a group of their own."
        yield NOTE, "Rows without a difficulty", text


def _length_hints(figures: Mapping[str, Any], token_limit: int | None) -> Iterator[Hint]:
    tokens, chars = figures["lengths"].get("prompt_tokens"), figures["lengths"].get("prompt_chars")
    if tokens and token_limit and tokens["longest"] > token_limit:
        text = (
            f"The longest prompt has {tokens['longest']:,} tokens, the limit is {token_limit:,}; 95 % have at most "
            f"{tokens['p95']:,}. Runs don't truncate prompts, and fail if one exceeds vLLM's context. Under Rows, "
            "you can derive a version without long prompts."
        )
        yield WATCH, "Prompts over the token limit", text
    if chars and chars["longest"] > 20 * max(1, chars["median"]):
        text = (
            f"The longest prompt has {chars['longest']:,} characters, the median is {chars['median']:,}: a few long "
            "prompts determine the memory of a whole batch."
        )
        yield NOTE, "A few very long prompts", text
