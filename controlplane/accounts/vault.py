"""Secrets on their way out: those that a run's rewards name, to its supervisor at the claim, and one endpoint to a try.

Nothing else opens a secret. What is opened goes into one answer or one process and is written down nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django.utils import timezone

from controlplane import sealing
from controlplane.accounts.models import HUB_TOKEN, Secret
from controlplane.http import addresses
from workers.contract import RewardSpec, RunSpec
from workers.contract.commands import hub_models
from workers.rewards import LIBRARY
from workers.rewards.tools import SECRET_PREFIX, Endpoint, Unavailable

ENTER_ANEW = "An admin must enter its key again under Settings, Secrets."


class NotGiven(Exception):
    """A secret that can't be had. The text says which, why, and what to do."""


def names_in(rewards: Iterable[RewardSpec]) -> list[str]:
    """Each secret that these rewards name, once."""
    found = (name for reward in rewards for name in _named(reward.function, reward.params))
    return list(dict.fromkeys(found))


def problem(name: str) -> str:
    """Why an endpoint of this name could not be given; "" when it could."""
    try:
        _open(name)
    except NotGiven as error:
        return str(error)
    return ""


def for_run(spec: RunSpec) -> dict[str, str]:
    """The environment variables that a run gets at its claim, and nothing beyond what its spec names. Raises
    NotGiven."""
    names = names_in(spec.rewards)
    given = {SECRET_PREFIX + name: _as_variable(*_open(name)) for name in names}
    if _fetches_from_hub(spec) and (token := Secret.objects.filter(name=HUB_TOKEN, kind=Secret.Kind.HUB).first()):
        given[HUB_TOKEN] = _key(token)
        names.append(HUB_TOKEN)
    note_use(names, run=spec.run_id)
    return given


def endpoint(name: str) -> tuple[Secret, str]:
    """An endpoint with its key. Raises NotGiven."""
    found = _open(name)
    note_use([name])
    return found


def endpoint_for_trial(name: str) -> Endpoint:
    """By its name on the secrets page. Raises Unavailable.

    Its `refusal` holds for what its name leads to at that moment: the network around the web is not the trainer's, and
    whoever tries a reward reads what the server answers.
    """
    try:
        secret, key = endpoint(name)
    except NotGiven as error:
        raise Unavailable(str(error)) from None
    return Endpoint(secret.address, key, refusal=addresses.rule_for(secret.address, private_too=secret.private_too))


def note_use(names: Iterable[str], *, run: str = "") -> None:
    if names := list(names):
        Secret.objects.filter(name__in=names).update(used_at=timezone.now(), used_by=run)


def _named(function: str, params: Mapping[str, Any]) -> list[str]:
    known = LIBRARY.get(function)
    entries = known.schema() if known else []
    values = (params.get(e["name"], e["default"]) for e in entries if e["widget"] == "secret")
    return [value for value in values if isinstance(value, str) and value]


def _open(name: str) -> tuple[Secret, str]:
    secret = Secret.objects.filter(name=name, kind=Secret.Kind.ENDPOINT).first()
    if secret is None:
        raise NotGiven(
            f"There is no endpoint {name} among the secrets: it was deleted, renamed or never created. "
            "An admin can add it under Settings, Secrets, or the reward config can name another."
        )
    return secret, _key(secret)


def _key(secret: Secret) -> str:
    try:
        return secret.key()
    except sealing.CannotOpen as error:
        raise NotGiven(f"The secret {secret.name} can't be opened: {_lower(str(error))} {ENTER_ANEW}") from None


def _as_variable(secret: Secret, key: str) -> str:
    return json.dumps({"address": secret.address, "key": key})


def _fetches_from_hub(spec: RunSpec) -> bool:
    """The model, or a reward's, is named by a hub id. What it isn't, the download says itself."""
    return bool(hub_models(spec))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
