"""Opens every page and every reading operation with the rows that a database has:
python -m tests.database.opened [--updated]

`--updated`: brings the database up to date first, as `up` does, and prints what that says.
CONTROLPLANE_DATA and CONTROLPLANE_DATABASE_URL name the database, as for the control plane. Prints one JSON object:
"statuses" of all answers with how often each came, and "failures", each the address and the end of its traceback.
"""

# ruff: noqa: E402
from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections import Counter

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from django.test import Client
from django.test.utils import setup_test_environment

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, Role, User
from controlplane.setup.serving import preparing
from tests.controlplane.route_rules import ACT, CODE, HOST, RULES
from tests.everything.addresses import Addresses, routes

NOT_READ = ("POST ", "PUT ", "PATCH ", "DELETE ")
"""Beginnings of the names of operations that change something."""


def main() -> None:
    if "--updated" in sys.argv:
        preparing._migrate(print)
    setup_test_environment()
    logging.disable(logging.CRITICAL)
    admin = User.objects.filter(role=Role.ADMIN, is_active=True).first() or User.objects.create(
        username="opener", role=Role.ADMIN
    )
    pages, programs = Client(), Client(headers={"Authorization": f"Bearer {_token(admin)}"})
    pages.force_login(admin)
    statuses: Counter[int] = Counter()
    failures, opened = [], 0
    tried = Addresses()
    for address in (each for name, pattern in routes() if _is_read(name) for each in tried.of(name, pattern)):
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


def _is_read(name: str) -> bool:
    """False for `ready`, too: Redis doesn't run here."""
    return name != "ready" and not name.startswith(NOT_READ) and RULES.get(name) not in (ACT, CODE, HOST)


def _token(user: User) -> str:
    return api_tokens.make(user, "opener", ApiScope.ADMIN, days=1)[1]


if __name__ == "__main__":
    main()
