"""Checks of reward components that apply only to the rows of some datasets, sources or tags."""

from collections.abc import Iterator, Sequence

from runs.engine.sentences import counted
from runs.launch.preflight.draft import DataFacts, Draft
from runs.launch.preflight.finding import Finding, note, stop, warn
from workers.contract.run.row_names import applies, rows_of
from workers.contract.run.spec import RewardSpec

FIELD = "reward_version"
MAX_NAMED = 3


def check(draft: Draft) -> Iterator[Finding]:
    limited = [reward for reward in draft.rewards or () if reward.applies_to]
    data = [data for data in draft.every_data if data.ready and data.rows]
    if not limited or not data:
        return
    unknown = [facts.name for facts in data if facts.name_sets is None]
    for reward in limited:
        yield from _names(reward, data, bool(unknown))
    weighted = [reward for reward in draft.rewards or () if reward.weight]
    if weighted and all(facts.applies(reward) is False for facts in data for reward in weighted):
        cause = "No component with a weight applies to any row of the run, so every advantage is 0."
        yield stop(FIELD, cause, "Correct the names in the reward config, or choose other data.")
        return
    for facts in data:
        yield from _uncovered(facts, weighted)
    if unknown and any(facts.applies(reward) is None for facts in data for reward in limited):
        cause = f"Which rows of {', '.join(unknown)} the limited components apply to is not known before the run."
        yield note(
            FIELD, cause, "The import counts the names of rows, up to 200 different sets: import the file again."
        )


def _names(reward: RewardSpec, data: Sequence[DataFacts], some_unknown: bool) -> Iterator[Finding]:
    """Warn about names that no row has."""
    known = {name for facts in data for names, _ in facts.name_sets or () for name in names}
    known |= {facts.dataset for facts in data}
    missing = [name for name in reward.applies_to if name not in known]
    if not missing or some_unknown:
        return
    if len(missing) == len(reward.applies_to):
        rows = rows_of(reward.applies_to)
        cause = f"{reward.name} applies only to {rows}, but the run has no such rows, so it scores nothing."
    else:
        cause = f"{reward.name} also applies to rows of {', '.join(missing)}, but the run has none."
    yield warn(FIELD, cause, "Correct the names in the reward config, or add the dataset.")


def _uncovered(data: DataFacts, weighted: Sequence[RewardSpec]) -> Iterator[Finding]:
    """Warn about rows to which no component with a weight applies."""
    open_to = [reward for reward in weighted if not reward.applies_to or data.dataset in reward.applies_to]
    if open_to or data.name_sets is None:
        return
    left_out = [
        (names, rows) for names, rows in data.name_sets if not any(applies(reward, names) for reward in weighted)
    ]
    count = sum(rows for _, rows in left_out)
    if not count:
        return
    examples = sorted({name for names, _ in left_out for name in names})[:MAX_NAMED]
    of = f" (with {', '.join(examples)})" if examples else ""
    cause = (
        f"{counted(count, 'training row')} of {data.name}{of} get no score from any component, so the run generates "
        "completions for them but learns nothing."
    )
    yield warn(FIELD, cause, "Add a component for these rows, or leave them out of the data.")
