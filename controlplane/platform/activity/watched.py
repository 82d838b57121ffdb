"""The models of accounts and the catalogue whose changes are recorded. runs.engine.audit adds those of runs."""

from typing import Any

from controlplane.platform.activity.recording import Phrase, Watched, renamed, watch


def watch_all() -> None:
    """Start recording changes to all models of WATCHED_MODELS. Called once when Django starts."""
    for model, watched in WATCHED_MODELS.items():
        watch(model, watched)


def _version(row: Any, _: Any) -> str:
    return f"Saved version {row.number}{f': {row.note}' if row.note else ''}"


_LIMITS, _KEY, _ADDRESS = "Changed the run limits", "Stored another key", "Changed the address"


_DELETABLE_PHRASES: dict[str, Phrase] = {
    "name": renamed,
    "deleted_at": lambda old, new: "Deleted" if new else "Restored",
}
_NAMED_PHRASES: dict[str, Phrase] = {**_DELETABLE_PHRASES, "description": "Changed the description"}
WATCHED_MODELS = {
    "accounts.User": Watched(
        "user",
        created=lambda row, _: f"Created the account, role {row.role}",
        deleted="Deleted the account",
        changed={
            "username": renamed,
            "role": lambda old, new: f"Changed the role from {old} to {new}",
            "is_active": lambda old, new: "Enabled the account" if new else "Disabled the account",
            "max_running": _LIMITS,
            "max_queued": _LIMITS,
            "password": "Set a password",
        },
    ),
    "accounts.SignInLink": Watched(
        "user", created="Created a sign-in link", of=lambda row: (row.user_id, row.user.get_username())
    ),
    "accounts.ApiToken": Watched("token", created=lambda row, _: f"Created with scope: {row.scope}"),
    "accounts.Secret": Watched(
        "secret",
        created="Stored",
        deleted="Deleted",
        changed={"name": renamed, "sealed": _KEY, "address": _ADDRESS, "private_too": _ADDRESS},
    ),
    "datasets.Dataset": Watched("dataset", deleted="Deleted with all versions", changed=_DELETABLE_PHRASES),
    "datasets.DatasetVersion": Watched(
        "dataset",
        created=lambda row, _: f"Added version {row.number}",
        deleted=lambda row, _: f"Deleted version {row.number}",
        of=lambda row: (row.dataset_id, row.dataset.name),
    ),
    "datasets.Corpus": Watched("corpus", deleted="Deleted", changed={"name": renamed}),
    "datasets.CorpusVersion": Watched(
        "corpus",
        created=lambda row, _: f"Added version {row.number}",
        deleted=lambda row, _: f"Deleted version {row.number}",
        of=lambda row: (row.corpus_id, row.corpus.name),
    ),
    "rewards.RewardConfig": Watched("reward", deleted="Deleted with all versions", changed=_NAMED_PHRASES),
    "rewards.RewardVersion": Watched("reward", created=_version, of=lambda row: (row.config_id, row.config.name)),
    "environments.Environment": Watched("environment", deleted="Deleted with all versions", changed=_NAMED_PHRASES),
    "environments.EnvironmentVersion": Watched(
        "environment", created=_version, of=lambda row: (row.environment_id, row.environment.name)
    ),
    "hardware.HardwareProfile": Watched(
        "profile",
        created="Created",
        deleted="Deleted",
        changed=_NAMED_PHRASES | dict.fromkeys(("spec", "lora", "batch"), "Changed its settings"),
    ),
    "hardware.Host": Watched(
        "host",
        changed={
            "draining": lambda old, new: "Paused new runs" if new else "Resumed new runs",
            "gpu_hour_price": lambda old, new: f"Set the price of a GPU-hour to {'none' if new is None else new}",
            "currency": "Changed the currency of the price",
            "serve_address": lambda old, new: f"Let served models listen on {new or 'loopback only'}",
            "unsandboxed_allowed": lambda old, new: (
                "Allowed reward code without a sandbox" if new else "Forbade reward code without a sandbox"
            ),
        },
    ),
    "joining.JoinCode": Watched(
        "host", created="Created a join code", of=lambda row: ("", row.host_name or "any new host")
    ),
}
