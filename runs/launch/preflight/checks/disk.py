"""Check of the host's disk space for the run's files and checkpoints."""

import math
from collections.abc import Iterator

from controlplane.platform.templatetags.figures import size_in_words
from runs.launch.preflight.checks.batch import total_steps
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.estimating import settings_of, shape_for
from runs.launch.preflight.finding import Finding, Fix, stop, warn
from workers.contract.memory import checkpoint_gib
from workers.contract.run.batch_rules import epochs

MIN_MIB = 512
"""Space that a run needs for logs, the dataset and metrics; a host with less can't take a run."""


def check(draft: Draft) -> Iterator[Finding]:
    measured = [host for host in draft.hosts if host.disk_free_mib is not None]
    if not measured or len(measured) < len(draft.hosts):
        return
    roomiest = max(measured, key=lambda host: host.disk_free_mib or 0)
    free_mib = roomiest.disk_free_mib or 0
    if free_mib < MIN_MIB:
        yield stop("host", f"{roomiest.name} has only {_mib(free_mib)} of free disk space.", "Free up space there.")
        return
    checkpoint_size = _checkpoint_mib(draft)
    limit, count = draft.value("save_total_limit"), checkpoints(draft)
    # TRL writes the new checkpoint before it deletes the oldest one.
    number = min(count or math.inf, limit + 1 + bool(draft.keep_best) if limit else math.inf)
    if checkpoint_size is None or count == 0 or number == math.inf:
        return
    if checkpoint_size * number > free_mib - MIN_MIB:
        yield warn(
            "save_total_limit",
            f"{f'{number} checkpoints' if number > 1 else 'A checkpoint'} of about {_mib(checkpoint_size)}"
            f"{' each need' if number > 1 else ' needs'} more than the {_mib(free_mib)} free on {roomiest.name}.",
            "Keep fewer, or free up space." if draft.lora else "Keep fewer, train a LoRA, or free up space.",
            *([Fix("Keep 1", {"save_total_limit": "1"})] if number > 1 and limit != 1 else []),
        )


def checkpoints(draft: Draft) -> int | None:
    """Count the checkpoints that the whole run writes; return None if its steps aren't known yet."""
    strategy, total = draft.value("save_strategy"), total_steps(draft)
    if strategy == "no":
        return 0
    if total is None:
        return None
    max_steps, interval = draft.value("max_steps") or -1, draft.value("save_steps")
    if strategy == "epoch":
        times = draft.value("num_train_epochs")
        return math.ceil(epochs(draft.batch, draft.train_rows, steps=max_steps) if max_steps > 0 else float(times))
    if not interval or interval <= 0:
        return None
    return math.ceil(total / (math.ceil(total * interval) if interval < 1 else int(interval)))


def _mib(amount: float) -> str:
    return size_in_words(amount * 2**20)


def _checkpoint_mib(draft: Draft) -> float | None:
    """Estimate the size of a checkpoint (trained weights and optimizer states); return None if it isn't known."""
    shape = shape_for(draft.inspection)
    if shape is None or draft.hardware is None:
        return None
    return 1024 * checkpoint_gib(shape, draft.hardware, settings_of(draft, draft.hardware))
