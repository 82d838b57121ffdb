"""Checks of the dataset version and its validation rows, and of dynamic sampling and prompts by difficulty."""

from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from workers.contract.run import mixing, prompts

CHOICE_OFF = {"extra_rounds": "0", "by_difficulty": ""}
MIN_POOL_FACTOR = 4
"""Minimum number of training prompts per prompt of a batch; with fewer, there is little to choose from."""


def check(draft: Draft) -> Iterator[Finding]:
    data = draft.data
    if data is None:
        yield stop("dataset_version", "No dataset is chosen.", "Choose one, or upload one under Datasets.")
    elif not data.ready:
        yield stop("dataset_version", f"{data.name} isn't ready.", "Finish its column mapping, or choose another.")
    elif data.rows == 0:
        yield stop("dataset_version", f"{data.name} has no rows.", "Choose another dataset.")


def check_mix(draft: Draft) -> Iterator[Finding]:
    needed_rows = mixing.most_in_batch([settings.weight for _, settings in draft.mix], draft.batch.prompts)
    for (data, settings), needed in zip(draft.mix, needed_rows, strict=True):
        rows = data.train_rows(settings.max_rows)
        if rows < needed:
            problem = mixing.shortage(data.name, rows, needed)
            yield stop(problem.field, problem.sentence, problem.fix)
        if settings.system_prompt and not data.chat:
            sentence = f"{data.name} has plain-text prompts, which can't have a system prompt."
            yield stop("sources", sentence, "Leave its system prompt empty, or map its rows as a conversation.")
    texts = [data.name for data, _ in draft.mix if not data.chat]
    if 0 < len(texts) < len(draft.mix):
        sentence = f"Conversations can't be mixed with plain-text prompts ({', '.join(texts)})."
        yield stop("sources", sentence, "Map all datasets of the mix the same way.")


def check_evaluation(draft: Draft) -> Iterator[Finding]:
    data = draft.data if draft.data and draft.data.ready else None
    if data is not None and draft.eval_rows > data.validation_rows:
        validation, rows = data.validation_rows, "row" if data.validation_rows == 1 else "rows"
        yield stop(
            "eval_rows",
            f"{draft.eval_rows:,} evaluation rows are requested, but {data.name} has "
            f"{f'only {validation:,} validation {rows}' if validation else 'no validation rows'}.",
            "Evaluate fewer rows, or import the dataset with a larger validation share.",
            *([Fix(f"Evaluate {validation:,}", {"eval_rows": str(validation)})] if validation else []),
            Fix("Don't evaluate", {"eval_rows": "0"}),
        )
    interval, max_steps = draft.value("eval_steps"), draft.value("max_steps")
    if draft.eval_rows and interval and max_steps and 0 < max_steps < interval:
        yield warn(
            "eval_steps",
            f"The run ends at step {max_steps}, before its first evaluation at step {int(interval)}.",
            "Evaluate more often.",
            Fix(f"Evaluate every {max(max_steps // 4, 1)} steps", {"eval_steps": str(max(max_steps // 4, 1))}),
        )


def check_choice(draft: Draft) -> Iterator[Finding]:
    choice = draft.prompts
    rewards = draft.rewards or ()
    per_turn = any(reward.per_turn for reward in rewards)
    components = [reward.name for reward in rewards]
    unusable = list(prompts.problems(choice, components, draft.episodes, per_turn=per_turn))
    for problem in unusable:
        if problem.field == "spread_in":
            if draft.rewards is not None:
                yield stop(problem.field, problem.sentence, problem.fix, Fix("Use the total", {"spread_in": ""}))
        elif problem.field in CHOICE_OFF:
            yield stop(problem.field, problem.sentence, problem.fix, Fix("Turn both off", CHOICE_OFF))
    if unusable or not choice.on:
        return
    if choice.extra_rounds:
        yield _choice_cost(draft)
    if draft.data is not None and draft.train_rows < MIN_POOL_FACTOR * draft.batch.prompts:
        sentence = (
            f"A batch takes {draft.batch.prompts:,} of the {draft.train_rows:,} training prompts, so "
            "there is little to choose from."
        )
        yield warn("extra_rounds", sentence, "Use more prompts, or smaller batches.")
    if not draft.eval_rows:
        sentence = "The training reward is that of chosen prompts, so it can't be compared with runs that don't choose."
        yield note("eval_rows", sentence, "Evaluate on validation rows; evaluations don't choose prompts.")


def _choice_cost(draft: Draft) -> Finding:
    completions, rounds = draft.batch.completions, draft.prompts.extra_rounds
    limit = completions * (1 + rounds)
    sentence = (
        f"Each generation makes {completions:,} completions, or up to {limit:,} if groups have no spread: about "
        "twice as many if half of the groups have none, three times as many if two thirds have none."
    )
    fix = "The charts under Choice of prompts show the extra tokens. Lower the extra rounds to limit them."
    by_difficulty = Fix("Also draw prompts by difficulty", {"by_difficulty": "on"})
    return note("extra_rounds", sentence, fix, *(() if draft.prompts.by_difficulty else (by_difficulty,)))
