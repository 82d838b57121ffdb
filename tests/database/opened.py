"""Opens every page and every reading operation with the rows that a database has: python -m tests.database.opened

CONTROLPLANE_DATA and CONTROLPLANE_DATABASE_URL name the database, as for the control plane. Prints one JSON object:
"statuses" of all answers with how often each came, and "failures", each the address and the end of its traceback.
"""

# ruff: noqa: E402
from __future__ import annotations

import itertools
import json
import logging
import os
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from django.apps import apps
from django.test import Client
from django.test.utils import setup_test_environment
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, Role, User

ROWS = 12
"""Rows of each table that are tried."""
CASES = 60
"""Addresses of each route that are tried; what one run and another's event make together is 404 anyway."""
OF_TABLES = {
    "run_id": "runs.Run",
    "event_id": "runs.RunEvent",
    "attempt_id": "runs.Attempt",
    "sample_id": "runs.SampleRow",
    "lease_id": "runs.Lease",
    "preset_id": "runs.HealthPreset",
    "trial_id": "runs.ProfileTrial",
    "dataset_id": "datasets.Dataset",
    "corpus_id": "datasets.Corpus",
    "config_id": "rewards.RewardConfig",
    "item_id": "rewards.RewardConfig",
    "environment_id": "environments.Environment",
    "host_id": "hardware.Host",
    "profile_id": "hardware.HardwareProfile",
    "key": "hardware.HardwareProfile",
    "inspection_id": "hardware.ModelInspection",
    "user_id": "accounts.User",
    "check_id": "references.ReferenceCheck",
}
OTHERS: dict[str, list[Any]] = {
    "number": [1, 2],
    "row": [0, 1],
    "name": ["trainer", "supervisor"],
    "slug": ["sums"],
    "document": ["runs"],
    "kind": ["csv"],
    "kind_slug": ["profile", "run"],
    "thing": ["profile", "run"],
    "engine": ["slurm"],
}
"""Other parameters -> values; routes with one that stands in neither table are left out: nothing stored has them."""


def main() -> None:
    setup_test_environment()
    logging.disable(logging.CRITICAL)
    admin = User.objects.filter(role=Role.ADMIN, is_active=True).first() or User.objects.create(
        username="opener", role=Role.ADMIN
    )
    pages, programs = Client(), Client(headers={"Authorization": f"Bearer {_token(admin)}"})
    pages.force_login(admin)
    statuses: Counter[int] = Counter()
    failures, opened = [], 0
    for address in addresses():
        try:
            answer = (programs if address.startswith("/api/") else pages).get(address, follow=True)
            b"".join(answer) if answer.streaming else answer.content
            status = answer.status_code
            failure = "" if status < 500 else "status"
        except Exception:
            status, failure = 500, "".join(traceback.format_exc().splitlines(keepends=True)[-6:])
        statuses[status] += 1
        opened += status == 200
        if failure:
            failures.append([address, failure])
    print(json.dumps({"opened": opened, "statuses": statuses, "failures": failures}))


def addresses() -> Iterator[str]:
    known = {name: list(apps.get_model(model)._base_manager.values_list("pk", flat=True)[:ROWS]) for name, model in
             OF_TABLES.items()} | OTHERS  # fmt: skip
    for name, pattern in _routes():
        parameters = re.findall(r"<(?:\w+:)?(\w+)>", pattern)
        if name and name != "ready" and not set(parameters) - set(known):  # ready: Redis doesn't run here
            for values in itertools.islice(itertools.product(*(known[parameter] for parameter in parameters)), CASES):
                try:
                    yield reverse(name, kwargs=dict(zip(parameters, values, strict=True)))
                except NoReverseMatch:
                    continue


def _routes(resolver: Any = None, before: str = "") -> Iterator[tuple[str, str]]:
    for entry in (resolver or get_resolver()).url_patterns:
        pattern = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _routes(entry, pattern)
        elif isinstance(entry, URLPattern):
            yield entry.name or "", pattern


def _token(user: User) -> str:
    return api_tokens.make(user, "opener", ApiScope.ADMIN, days=1)[1]


if __name__ == "__main__":
    main()
