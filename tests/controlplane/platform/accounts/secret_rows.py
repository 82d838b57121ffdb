"""Secrets, and a reward that names one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.utils import timezone

from controlplane.platform.accounts.models import HUB_TOKEN, Role, Secret, User
from controlplane.platform.accounts.secret_forms import SecretForm
from workers.contract.wire.artifacts import STORE
from workers.rewards.library import LIBRARY
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Cost, Reward

KEY = "sk-that-nobody-may-see"
HUB_KEY = "hf_that_nobody_may_see"


def an_endpoint(name: str = "JUDGE", key: str = KEY, **columns: Any) -> Secret:
    start = {"address": "https://judge.example/v1", "updated_at": timezone.now(), **columns}
    secret = Secret(name=name, **start)
    secret.lock_in(key)
    secret.save()
    return secret


def a_hub_token(key: str = HUB_KEY) -> Secret:
    return an_endpoint(HUB_TOKEN, key, kind=Secret.Kind.HUB, address="")


def a_store(address: str = "https://s3.example.com/grpo/team?region=eu-central-1", key: str = "ID:SECRET") -> Secret:
    """Entered by an admin, or changed."""
    known = Secret.objects.filter(name=STORE).first()
    form = SecretForm({"name": STORE, "kind": "store", "address": address, "key": key}, instance=known)
    assert form.is_valid(), form.errors
    return form.save_by(User.objects.filter(username="ann").first() or User.objects.create_user("ann", role=Role.ADMIN))


@dataclass(frozen=True)
class AsksParams(Params):
    endpoint: str = param("", "Which server.", widget="secret")


def asks_reward(monkeypatch: pytest.MonkeyPatch, name: str = "JUDGE") -> list[dict[str, Any]]:
    """The components of a config with a reward that names a secret."""
    reward = Reward("asks", "Asks", "Asks a server.", AsksParams, (0.0, 1.0), function=lambda *_: 0.0, cost=Cost.HTTP)
    monkeypatch.setitem(LIBRARY, "asks", reward)
    return [{"name": "judged", "function": "asks", "params": {"endpoint": name}}]
