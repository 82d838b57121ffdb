"""Dynamic sampling and prompts by difficulty: obstacles, and costs."""

from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from workers.contract.run import prompts

OFF = {"extra_rounds": "0", "by_difficulty": ""}
MOST_SHARE = 4
"""Fewest training prompts for each prompt of a batch: with fewer there is little to choose from."""


def check(draft: Draft) -> Iterator[Finding]:
    chosen = draft.prompts
    rewards = draft.rewards or ()
    per_turn = any(reward.per_turn for reward in rewards)
    components = [reward.name for reward in rewards]
    unusable = list(prompts.problems(chosen, components, draft.episodes, per_turn=per_turn))
    for problem in unusable:
        if problem.field == "spread_in":
            if draft.rewards is not None:
                yield stop(problem.field, problem.sentence, problem.fix, Fix("Use the total", {"spread_in": ""}))
        elif problem.field in OFF:
            yield stop(problem.field, problem.sentence, problem.fix, Fix("Turn both off", OFF))
    if unusable or not chosen.on:
        return
    if chosen.extra_rounds:
        yield _cost(draft)
    if draft.data is not None and draft.train_rows < MOST_SHARE * draft.batch.prompts:
        sentence = (
            f"A batch takes {draft.batch.prompts:,} of the {draft.train_rows:,} training prompts: there is "
            "little to choose from."
        )
        yield warn("extra_rounds", sentence, "Take more prompts, or smaller batches.")
    if not draft.eval_rows:
        sentence = "The training reward is that of chosen prompts, so it can't be compared with runs without."
        yield note("eval_rows", sentence, "Evaluate validation rows: evaluations choose nothing.")


def _cost(draft: Draft) -> Finding:
    completions, rounds = draft.batch.completions, draft.prompts.extra_rounds
    limit = completions * (1 + rounds)
    sentence = (
        f"Each generation makes {completions:,} completions, and up to {limit:,} where groups have no spread: about "
        "twice as many if half of the groups have none, three times if two thirds."
    )
    fix = "The charts under Choice of prompts show the extra tokens. Fewer extra rounds bound them."
    by_difficulty = Fix("Draw prompts by difficulty, too", {"by_difficulty": "on"})
    return note("extra_rounds", sentence, fix, *(() if draft.prompts.by_difficulty else (by_difficulty,)))
