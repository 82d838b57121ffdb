"""Checks of generating one step ahead and of concurrent rewards: obstacles, costs, and runs that would benefit."""

from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from workers.contract.run.overlapping import AHEAD_FIELD, CORRECTION, REWARDS_FIELD, ahead_problems, rewards_problem
from workers.rewards.library import LIBRARY
from workers.rewards.reward import waits

AHEAD_OFF = Fix("Turn it off", {AHEAD_FIELD: ""})
REWARDS_OFF = Fix("Turn it off", {REWARDS_FIELD: ""})
REWARDS_ON = Fix("Score groups while others are generated", {REWARDS_FIELD: "on"})


def check_ahead(draft: Draft) -> Iterator[Finding]:
    obstacles = list(ahead_problems(draft.hardware, draft.grpo, draft.prompts, draft.episodes))
    if not draft.ahead:
        if draft.hardware is not None and not obstacles and _has_server_gpus(draft):
            yield note(
                AHEAD_FIELD,
                "Trainer and vLLM servers have separate GPUs but take turns. If the servers generate one step ahead, a "
                "step takes only as long as the longer of the two. Each batch is then generated with weights one "
                "update old; importance sampling corrects for that.",
                "",
                Fix("Generate one step ahead", {AHEAD_FIELD: "on"}),
            )
        return
    for problem in obstacles:
        fixes = [Fix("Leave the correction on", {CORRECTION: "true"})] if draft.grpo.get(CORRECTION) is False else []
        yield stop(AHEAD_FIELD, problem.sentence, problem.fix, AHEAD_OFF, *fixes)
    if obstacles:
        return
    if draft.hardware is not None and not _has_server_gpus(draft):
        yield warn(
            AHEAD_FIELD,
            "The vLLM servers share GPUs or cores with the trainer, so generating ahead slows both and gains little.",
            "Choose a profile whose servers have their own GPUs.",
            AHEAD_OFF,
        )
    yield note(
        AHEAD_FIELD,
        "Each batch is generated with weights one update old, so training is slightly off-policy. Importance sampling "
        "corrects each token, up to its cap. After a resume, the batch in flight is generated again by newer weights.",
        "Charts show the staleness and the share of truncated tokens. A smaller learning rate keeps both low.",
    )


def check_rewards(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None or draft.rewards is None:
        return
    obstacle = rewards_problem(draft.hardware, draft.episodes)
    names = [r.name for r in draft.rewards if r.function in LIBRARY and waits(LIBRARY[r.function])]
    if draft.rewards_beside and obstacle is not None:
        yield stop(obstacle.field, obstacle.sentence, obstacle.fix, REWARDS_OFF)
    elif draft.rewards_beside and not names:
        sentence = "No reward waits for a judge or a sandbox, so no scoring starts early."
        yield warn(REWARDS_FIELD, sentence, "Turn it off.", REWARDS_OFF)
    elif not draft.rewards_beside and names and obstacle is None:
        sentence = f"{' and '.join(names)} {'waits' if len(names) == 1 else 'wait'} for the whole batch."
        fix = "Each group can be scored as soon as it is complete, while others are generated. The scores are the same."
        yield note(REWARDS_FIELD, sentence, fix, REWARDS_ON)


def _has_server_gpus(draft: Draft) -> bool:
    hardware, server = draft.hardware, draft.server
    if hardware is None or server is None:
        return False
    return hardware.trainer_gpus > 0 and bool(server.attached or server.own_gpus)
