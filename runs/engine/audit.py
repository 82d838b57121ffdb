"""People's changes to runs, alert targets, presets and machine sources, as the Events page shows them."""

from typing import Any

from controlplane.platform.activity.recording import Watched, acting, renamed, watch
from runs.engine import sentences
from runs.engine.records import RunEvent


def watch_all() -> None:
    """Register the models whose changes are recorded. Call it once, when Django starts."""
    for model, watched in _WATCHED_FIELDS.items():
        watch(model, watched)


def _sentence(event: RunEvent, _: Any) -> str:
    """Describe an event that the current user caused; return "" for others and for mere status changes."""
    user = acting()
    by_person = user is not None and event.seq is None and event.actor == user.get_username()
    return sentences.of_event(event).removesuffix(".") if by_person and event.kind != "status" else ""


_PRESET_CHANGED = "Changed the thresholds"
_TARGET_CHANGED = "Changed its events or its address"
_SETTINGS = (
    *("options", "control_url", "most", "idle_minutes", "patience_minutes", "gpus", "gpu_kind", "gpu_memory_gib"),
    *("cpus", "memory_gib", "minutes"),
)
_WATCHED_FIELDS = {
    "runs.RunEvent": Watched("run", created=_sentence, of=lambda event: (event.run_id, event.run.name)),
    "runs.Run": Watched("run", deleted="Deleted"),
    "runs.HealthPreset": Watched(
        "preset",
        created="Created",
        deleted="Deleted",
        changed={"name": renamed, "bounds": _PRESET_CHANGED, "source": "Changed the source"},
    ),
    "alerting.AlertTarget": Watched(
        "alert",
        created="Created",
        deleted="Deleted",
        changed={
            "name": renamed,
            "enabled": lambda old, new: "Enabled" if new else "Disabled",
            "shown": _TARGET_CHANGED,
            "wants": _TARGET_CHANGED,
            "links_to": _TARGET_CHANGED,
        },
    ),
    "machines.MachineSource": Watched(
        "machines",
        created="Created",
        deleted="Deleted",
        changed={
            "name": renamed,
            "enabled": lambda old, new: "Enabled" if new else "Disabled",
            **dict.fromkeys(_SETTINGS, "Changed its settings"),
        },
    ),
}
