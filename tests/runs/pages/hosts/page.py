"""The Hardware page as somebody sees it."""

from __future__ import annotations

from django.test import Client

from tests.controlplane.people import viewer


def page(client: Client | None = None) -> str:
    return (client or viewer()).get("/hardware/").content.decode()
