"""Checks of concurrent rewards: obstacles, rewards that wait, and runs that would profit."""

from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from workers.contract.run.concurrent_rewards import FIELD, problem
from workers.rewards.library import LIBRARY
from workers.rewards.reward import waits

OFF = Fix("Turn it off", {FIELD: ""})
ON = Fix("Score groups while others are generated", {FIELD: "on"})


def check(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None or draft.rewards is None:
        return
    unable = problem(draft.hardware, draft.episodes)
    waiting = [r.name for r in draft.rewards if r.function in LIBRARY and waits(LIBRARY[r.function])]
    if draft.rewards_beside and unable is not None:
        yield stop(unable.field, unable.sentence, unable.fix, OFF)
    elif draft.rewards_beside and not waiting:
        yield warn(FIELD, "No reward waits for a judge or a sandbox: nothing begins early.", "Turn it off.", OFF)
    elif not draft.rewards_beside and waiting and unable is None:
        sentence = f"{' and '.join(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for the whole batch."
        fix = "Each group can be scored as soon as it is complete, while others are generated; the scores are the same."
        yield note(FIELD, sentence, fix, ON)
