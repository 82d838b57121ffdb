"""Pushing a model to the hub: valid repository names, and the job."""

from __future__ import annotations

import re

from controlplane.platform.accounts import vault
from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import starting
from runs.engine.models import Run
from workers.contract.run.jobs import PUSH, PushSettings
from workers.contract.wire.documents import ContractError

MOST_CARD_BYTES = 64 * 1024
_PART = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")


def repository_problem(name: str) -> str:
    """Explain why the hub would reject a repository name, or ""."""
    owner, slash, own = name.partition("/")
    if not slash or "/" in own:
        return "A repository name has two parts: owner/name. The owner is the token's account or an organization."
    if not (_PART.fullmatch(owner) and _PART.fullmatch(own)):
        return (
            "Each part has up to 96 letters, digits, dots, dashes and underscores, and must not begin or end with a "
            "dot or a dash."
        )
    if "--" in name or ".." in name:
        return "The hub allows no name with two dashes or two dots in a row."
    return "The hub allows no name that ends with .git." if own.endswith(".git") else ""


def start(checkpoint: Checkpoint, user: User, settings: PushSettings) -> Run:
    """Start the push of a model to a repository, or return the one that is under way.

    Raises ContractError with words for people, and QueueFull.
    """
    if why := repository_problem(settings.repository) or vault.hub_token_problem():
        raise ContractError(why)
    job = starting.start_once(checkpoint, PUSH, user, settings=settings)
    under_way = job.spec["job"]["repository"]
    if under_way != settings.repository:
        raise ContractError(f"a push of this model to {under_way} is under way: wait for its end")
    return job
