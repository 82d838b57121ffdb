"""Hints about a dataset before training on it, with the numbers behind them."""

from collections.abc import Iterator, Mapping
from typing import Any

MIN_ROWS = 100
NOTABLE_SHARE = 0.05
"""Minimum share of the rows for a hint, or for its higher level."""
NOTE, WATCH = "note", "watch"
"""Levels of a hint; at `watch`, training is likely to suffer."""
Hint = tuple[str, str, str]
"""Hint as (level, title, text)."""


def hints(statistics: Mapping[str, Any], *, token_limit: int | None = None) -> list[dict[str, str]]:
    """List the hints that `statistics` (from Statistics.as_dict) give, most important first."""
    if not statistics["rows"]:
        return []
    all_hints = [*_prompt_hints(statistics), *_answer_hints(statistics), *_difficulty_hints(statistics)]
    all_hints += _length_hints(statistics, token_limit)
    all_hints.sort(key=lambda hint: hint[0] != WATCH)
    return [{"level": level, "title": title, "text": text} for level, title, text in all_hints]


def _prompt_hints(statistics: Mapping[str, Any]) -> Iterator[Hint]:
    rows, repeated, short = statistics["rows"], statistics["repeated"], statistics["short_prompts"]
    if rows < MIN_ROWS:
        text = f"With only {rows:,} rows, each prompt is repeated often, and the policy may memorize the answers."
        yield NOTE, "Few rows", text
    if repeated > NOTABLE_SHARE * rows:
        text = f"{repeated:,} of {rows:,} rows repeat an earlier prompt, so these prompts have more weight than others."
        yield NOTE, "Repeated prompts", text
    if statistics["ambiguous"]:
        text = (
            f"{statistics['ambiguous']:,} rows repeat an earlier prompt with another answer. A reward that compares "
            "with the answer contradicts itself there. Keep one row of each prompt, or make the prompts differ."
        )
        yield WATCH, "Ambiguous prompts", text
    if short:
        text = f"Prompts with fewer than three words: {short:,}. Complete them in the file, or by the prompt template."
        yield WATCH if short > NOTABLE_SHARE * rows else NOTE, "Very short prompts", text


def _answer_hints(statistics: Mapping[str, Any]) -> Iterator[Hint]:
    rows, code, tests = statistics["rows"], statistics["code"], statistics["with_tests"]
    if not statistics["with_answer"] and not tests:
        yield NOTE, "No answers", "No row has an answer or tests, so only rewards for format and length can be used."
    elif (unanswered_rows := rows - max(statistics["with_answer"], tests)) > 0:
        text = f"{unanswered_rows:,} of {rows:,} rows have no answer; rewards that compare with an answer skip them."
        yield NOTE, "Rows without an answer", text
    if code > rows / 2 and tests < code:
        text = (
            f"{code - tests:,} rows with code have an answer but no test_cases. If answers are programs that print, "
            "“Prints what the reference prints” compares completions with them; for functions, “Returns what the "
            "reference returns” does."
        )
        yield NOTE, "Code without tests", text


def _difficulty_hints(statistics: Mapping[str, Any]) -> Iterator[Hint]:
    rows, rated_rows, counts = statistics["rows"], statistics["with_difficulty"], statistics["difficulty"]["counts"]
    if not counts:
        text = "No column has a difficulty. After a first run, you can use its difficulty map instead."
        yield NOTE, "No difficulty", text
        return
    name, count = counts[0]["name"], counts[0]["count"]
    if statistics["difficulty"]["different"] == 1 and rows > 1:
        text = f"All rows with a difficulty are “{name}”. Training needs prompts that are only sometimes solved."
        yield NOTE, "One difficulty", text
    elif count > 0.9 * rated_rows:
        yield NOTE, "Little variety in difficulty", f"{100 * count / rated_rows:.0f} % of the rated rows are “{name}”."
    if rated_rows < rows:
        text = f"{rows - rated_rows:,} rows have no difficulty; they form a separate group."
        yield NOTE, "Rows without a difficulty", text


def _length_hints(statistics: Mapping[str, Any], token_limit: int | None) -> Iterator[Hint]:
    tokens, chars = statistics["lengths"].get("prompt_tokens"), statistics["lengths"].get("prompt_chars")
    if tokens and token_limit and tokens["longest"] > token_limit:
        text = (
            f"The longest prompt has {tokens['longest']:,} tokens, and the limit is {token_limit:,}; 95 % have at most "
            f"{tokens['p95']:,}. Runs don't truncate prompts, and fail if one exceeds vLLM's context. Under Rows, "
            "you can derive a version without long prompts."
        )
        yield WATCH, "Prompts over the token limit", text
    if chars and chars["longest"] > 20 * max(1, chars["median"]):
        text = (
            f"The longest prompt has {chars['longest']:,} characters, the median is {chars['median']:,}: a few long "
            "prompts determine how much memory a batch needs."
        )
        yield NOTE, "A few very long prompts", text
