"""Room that the GPUs leave: the largest micro-batch that fits, with the same completions in each step.

The same completions are trained on in fewer passes, so a step learns the same: TRL's losses are normalised over all
passes of a step. Only `bnpo` is normalised over each pass, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runs.preflight.draft import Draft
from runs.preflight.duration import training_s, work_of
from runs.preflight.estimating import everywhere, shape_for
from runs.preflight.finding import Finding, Fix, note
from runs.preflight.memory import NEARLY_FULL

LEAST_GAIN = 1.1
"""How many times faster the training of a step must get, by the rule of thumb, to be worth a note."""


def check(draft: Draft) -> Iterator[Finding]:
    larger = largest(draft)
    hardware, shape, now = draft.hardware, shape_for(draft.inspection), work_of(draft)
    then = work_of(larger) if larger else None
    if larger is None or hardware is None or shape is None or now is None or then is None:
        return
    slow, fast = (training_s(work, hardware, shape.total) for work in (now, then))
    if slow < LEAST_GAIN * fast:
        return
    before, after = _fullest(draft), _fullest(larger)
    values = {
        "per_device_train_batch_size": str(then.micro_batch),
        "gradient_accumulation_steps": str(then.passes),
    }
    passes = "1 pass" if then.passes == 1 else f"{then.passes} passes"
    yield note(
        "per_device_train_batch_size",
        f"The GPUs have room for more: {before} now, and {after} with {then.micro_batch} completions per process in "
        f"{passes}, not {now.micro_batch} in {now.passes}. A step learns from the same completions.",
        f"By the rule of thumb, the training of a step takes {fast:.2g} s then, not {slow:.2g} s.",
        Fix(f"Use the memory: {then.micro_batch} per process, {passes}", values),
    )


def largest(draft: Draft) -> Draft | None:
    """The draft with the largest micro-batch that fits each host it may run on; None: it has that already, or nobody
    can tell."""
    own = draft.hardware is not None and draft.hardware.deepspeed is not None  # its sizes must agree with the run's
    whole = draft.value("steps_per_generation") or draft.value("generation_batch_size")
    if own or whole or draft.value("loss_type") == "bnpo" or not _fits(draft):
        return None
    batch, passes = draft.batch.per_device_train_batch_size, draft.batch.gradient_accumulation_steps
    for more in range(passes, 1, -1):
        if passes % more == 0:
            sizes = {"per_device_train_batch_size": batch * more, "gradient_accumulation_steps": passes // more}
            larger = replace(draft, grpo={**draft.grpo, **sizes})
            if _fits(larger):
                return larger
    return None


def _fits(draft: Draft) -> bool:
    answers = everywhere(draft)  # the run may come to any of these hosts
    return bool(answers) and all(
        gpu.total <= NEARLY_FULL * gpu.card_gib
        for answer in answers
        for gpu in answer.estimate.gpus
        if gpu.role != "server"
    )


def _fullest(draft: Draft) -> str:
    gpus = [gpu for answer in everywhere(draft) for gpu in answer.estimate.gpus if gpu.role != "server"]
    gpu = max(gpus, key=lambda one: one.total / one.card_gib)
    return f"about {gpu.total:.3g} of {gpu.card_gib:.3g} GiB"
