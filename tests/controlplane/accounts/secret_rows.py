"""Secrets, and a reward that names one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.utils import timezone

from controlplane.accounts.models import HUB_TOKEN, Secret
from workers.rewards import LIBRARY
from workers.rewards.reward import Cost, Params, Reward, param

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


@dataclass(frozen=True)
class AsksParams(Params):
    endpoint: str = param("", "Which server.", widget="secret")


def asks_reward(monkeypatch: pytest.MonkeyPatch, name: str = "JUDGE") -> list[dict[str, Any]]:
    """The components of a config with a reward that names a secret."""
    reward = Reward("asks", "Asks", "Asks a server.", AsksParams, (0.0, 1.0), function=lambda *_: 0.0, cost=Cost.HTTP)
    monkeypatch.setitem(LIBRARY, "asks", reward)
    return [{"name": "judged", "function": "asks", "params": {"endpoint": name}}]
