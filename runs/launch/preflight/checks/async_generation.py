"""Checks of generating one step ahead: obstacles, costs, and runs that would profit."""

from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from workers.contract.run import async_generation
from workers.contract.run.async_generation import CORRECTION, FIELD

OFF = Fix("Turn it off", {FIELD: ""})


def check(draft: Draft) -> Iterator[Finding]:
    unable = list(async_generation.problems(draft.hardware, draft.grpo, draft.prompts, draft.episodes))
    if not draft.ahead:
        if draft.hardware is not None and not unable and _has_gpus_of_its_own(draft):
            yield note(
                FIELD,
                "Trainer and vLLM servers take turns on GPUs of their own. Generating one step ahead, a step takes as "
                "long as the longer of the two; batches then come from weights one update old, with a correction.",
                "",
                Fix("Generate one step ahead", {FIELD: "on"}),
            )
        return
    for problem in unable:
        fixes = [Fix("Leave the correction on", {CORRECTION: "true"})] if draft.grpo.get(CORRECTION) is False else []
        yield stop(FIELD, problem.sentence, problem.fix, OFF, *fixes)
    if unable:
        return
    if draft.hardware is not None and not _has_gpus_of_its_own(draft):
        yield warn(
            FIELD,
            "The vLLM servers share GPUs or cores with the trainer: generating ahead slows both, and gains little.",
            "Take a profile whose servers have GPUs of their own.",
            OFF,
        )
    yield note(
        FIELD,
        "Each batch comes from weights one update old: no longer exactly GRPO on its own samples. The correction "
        "weighs each token, up to its cap; after a resume the batch in flight is sampled again, by newer weights.",
        "Staleness and the share of truncated tokens are on charts. A smaller learning rate keeps both low.",
    )


def _has_gpus_of_its_own(draft: Draft) -> bool:
    hardware, server = draft.hardware, draft.server
    if hardware is None or server is None:
        return False
    return hardware.trainer_gpus > 0 and bool(server.attached or server.own_gpus)
