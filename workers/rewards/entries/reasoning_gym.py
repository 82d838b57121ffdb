"""A reward that uses reasoning-gym's own checkers, for rows that reasoning-gym generated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.packages import reasoning
from workers.rewards.entries.answer import SOURCES
from workers.rewards.extract import answer_at
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Completion, Cost, Example, Failure, Reward, Row, Scores
from workers.rewards.sandboxed import ending, failure
from workers.rewards.tools import Tools
from workers.sandbox.outcomes import Outcome

COLUMN = reasoning.COLUMN
MAX_ANSWER_CHARS = 20_000


@dataclass(frozen=True)
class ReasoningGymParams(Params):
    source: str = param("answer tag", "Where to find the completion's answer.", choices=SOURCES)
    tag: str = param("answer", "Name of the tag if the source is the answer tag.")
    marker: str = param("####", "The text before the answer if the source is a marker.")
    partial: bool = param(True, "Give partial credit to nearly right answers; otherwise they score 0.")


def reasoning_gym(
    completions: Sequence[Completion], rows: Sequence[Row], params: ReasoningGymParams, tools: Tools
) -> Scores:
    """Return 0 to 1, the score that the task family's own checker gives the answer: 1 if it is right, 0 if it is wrong
    or missing, and, with `partial`, partial credit in some families. Return None for rows that reasoning-gym didn't
    generate."""
    values: list[float | None] = [None] * len(completions)
    failures: list[Failure] = []
    checked_answers: dict[int, tuple[Mapping[str, object], str]] = {}
    for index, (completion, row) in enumerate(zip(completions, rows, strict=True)):
        column = row.get(COLUMN)
        if not isinstance(column, Mapping):
            continue
        answer = answer_at(completion.text, params.source, tag=params.tag, marker=params.marker)
        values[index] = 0.0
        if answer is not None and answer.strip() and len(answer) <= MAX_ANSWER_CHARS:
            checked_answers[index] = column, answer.strip()
    if not checked_answers:
        return Scores(values, failures)
    notes = [""] * len(completions)
    results = reasoning.score(list(checked_answers.values()), tools.package(reasoning.MODULE))
    for index, result in zip(checked_answers, results, strict=True):
        if not isinstance(result, Outcome):
            values[index] = result if params.partial else float(result >= 1.0)
        elif result.trouble:  # the sandbox itself failed, which says nothing about the answer
            values[index] = None
            failures.append(failure(index, result))
        else:  # an answer on which the checker crashes or hangs is wrong: otherwise it would avoid its 0
            notes[index] = ending(result)
    return Scores(values, failures, notes)


REWARDS = (
    Reward(
        key="reasoning_gym",
        title="reasoning-gym",
        help="The score of the task family's own checker, for datasets that reasoning-gym generated.",
        params=ReasoningGymParams,
        batch=reasoning_gym,
        needs=(COLUMN,),
        cost=Cost.SANDBOX,
        package="reasoning-gym",
        low="A wrong answer, or no answer where it is expected.",
        high="A right answer.",
        use="For datasets created with reasoning-gym on the page “New dataset”. Many tasks have several right answers, "
        "and only this checker knows them all. Say in the prompt where the answer should be.",
        examples=(
            Example("<answer>4</answer>", None, {"prompt": "2 + 2 =", "answer": "4"},
                    why="reasoning-gym didn't generate this row."),
        ),
    ),
)  # fmt: skip
