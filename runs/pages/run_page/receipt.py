"""A run's receipt, which proves that everything was released, as text."""

from collections.abc import Iterator
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import duration, mib, sig
from runs.engine import checkpoints
from runs.engine.models import Attempt
from runs.engine.scheduling import kept_memory
from runs.engine.scheduling.kept_memory import KeptMemory
from workers.contract.wire.names import StopMode

Fact = tuple[str, str | SafeString]
RELEASED = {
    "tone": "good",
    "icon": "circle-check",
    "chip": "Resources released",
    "title": "All processes ended; all resources released.",
}
NOT_CONFIRMED = {
    "tone": "bad",
    "icon": "triangle-alert",
    "chip": "Release not confirmed",
    "title": "Couldn’t confirm that everything was released.",
}


def receipt_of(attempt: Attempt) -> dict[str, Any] | None:
    receipt = attempt.receipt
    if not receipt:
        return None
    leftovers = kept_memory.of_attempt(attempt)
    return {
        **(RELEASED if receipt.get("free") else NOT_CONFIRMED),
        "summary": list(_summary(receipt, leftovers)),
        "facts": list(_facts(attempt, receipt)),
        "gpus": [{**gpu, "free_after": _free_after(gpu)} for gpu in receipt.get("gpus") or ()],
        # Memory that attached servers still use on the run's GPUs.
        "kept_memory": leftovers,
    }


def _summary(receipt: dict[str, Any], leftovers: list[KeptMemory]) -> Iterator[str | SafeString]:
    ended_count = receipt.get("processes_ended") or 0
    duration_text = duration(receipt.get("seconds_to_gone"))
    yield (
        f"{ended_count} process{'es' if ended_count != 1 else ''} ended in {duration_text}"
        if ended_count
        else "No leftover processes"
    )
    for gpu in receipt.get("gpus") or ():
        peak, after_run = mib(gpu.get("peak_mib")), mib(gpu.get("after_mib"))
        if gpu.get("seconds_to_free") is None:
            yield format_html("· GPU {} still has {} in use", gpu.get("gpu"), after_run)
        else:
            yield format_html("· GPU {} from {} to {}", gpu.get("gpu"), peak, after_run)
    for memory in leftovers:
        text = '<span class="warn">· {} of GPU {} still used by an attached server</span>'
        yield format_html(text, mib(memory.mib), memory.gpu)


def _facts(attempt: Attempt, receipt: dict[str, Any]) -> Iterator[Fact]:
    if attempt.stop_mode == StopMode.SAVE and attempt.run.trains:
        step = checkpoints.saved_on_request(attempt)
        yield "Saved before the stop", "nothing" if step is None else f"step {sig(step, 9)}"
    yield "Process tree empty after", f"{duration(receipt.get('seconds_to_gone'))}, confirmed twice"
    yield "Processes ended", str(receipt.get("processes_ended", ""))
    yield "Orphans found", str(receipt.get("orphans_found", ""))
    survivors = ", ".join(map(str, receipt.get("survivors") or ()))
    yield "Still running", format_html('<span class="bad">pid {}</span>', survivors) if survivors else "none"
    if not receipt.get("gpus"):
        yield "GPUs", "the run held none"
    if receipt.get("port_free") is not None:
        in_use = SafeString('<span class="bad">still in use</span>')
        yield "Server port", "free" if receipt["port_free"] else in_use


def _free_after(gpu: dict[str, Any]) -> str | SafeString:
    seconds = gpu.get("seconds_to_free")
    return SafeString('<span class="bad">not confirmed</span>') if seconds is None else duration(seconds)
