"""What a GPU-hour costs: an admin says it on the Hardware page, and the comparison shows what runs have cost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.prices import Money, total
from tests.controlplane.people import admin, operator, viewer
from tests.runs.builders import a_host, an_attempt
from tests.runs.pages.hosts.page import page

pytestmark = pytest.mark.django_db


def saved(client: Client, price: str, currency: str = "$") -> str:
    host = Host.objects.get()
    answer = client.post(f"/hardware/hosts/{host.pk}/price/", {"gpu_hour_price": price, "currency": currency})
    return "" if answer.status_code == 302 else answer.content.decode()


def test_an_admin_sets_a_price_and_takes_it_away() -> None:
    a_host(gpus=1)
    assert "no price" in page(admin())
    assert saved(admin(), "2.5", "€") == ""
    assert "€2.50" in page()
    assert saved(admin(), "", "") == ""
    assert Host.objects.get().gpu_hour_price is None
    assert "GPU-hour" not in page()


def test_only_admins_are_offered_the_price_and_may_set_it() -> None:
    host = a_host(gpus=1)
    address = f"/hardware/hosts/{host.pk}/price/"
    assert address in page(admin())
    assert address not in page(operator())
    assert [someone.post(address, {"gpu_hour_price": "1"}).status_code for someone in (viewer(), operator())] == [
        403
    ] * 2


@pytest.mark.parametrize(
    ("price", "currency", "words"),
    [
        ("-1", "$", "At least 0"),
        ("much", "$", "Enter a number."),
        ("nan", "$", "Enter a number."),
        ("1e300", "$", "At most 10000"),
        ("2.5", "", "Enter the currency of the price."),
        ("2.5", "12", "without digits"),
        ("2.5", "dollars", "at most 5 characters"),
    ],
)
def test_a_price_that_makes_no_sense_stays_in_its_field_with_the_reason(price: str, currency: str, words: str) -> None:
    a_host(gpus=1, gpu_hour_price=3.0, currency="CHF")
    shown = saved(admin(), price, currency)
    assert words in shown
    assert f'value="{price}"' in shown
    assert not currency or f'value="{currency}"' in shown
    assert (Host.objects.get().gpu_hour_price, Host.objects.get().currency) == (3.0, "CHF")


@pytest.mark.parametrize(
    ("money", "words"),
    [
        (Money(12.3, "$"), "$12.30"),
        (Money(1204.4, "CHF"), "1,204 CHF"),
        (Money(0.004, "€"), "€0.00"),
    ],
)
def test_money_in_words(money: Money, words: str) -> None:
    assert str(money) == words


def test_money_of_different_currencies_is_not_added() -> None:
    assert total([Money(1, "$"), Money(2, "€"), Money(3, "$")]) == "$4.00 + €2.00"
    assert total([]) == ""


@pytest.mark.parametrize(("price", "words"), [(2.5, "$10.00"), (None, "")])
def test_the_comparison_shows_the_cost_beside_the_gpu_hours(client: Client, price: float | None, words: str) -> None:
    attempt = an_attempt()
    host = a_host("priced", gpus=2, gpu_hour_price=price, currency="$")
    start = timezone.now() - timedelta(hours=3)
    type(attempt).objects.filter(pk=attempt.pk).update(
        host=host, dispatched_at=start, ended_at=start + timedelta(hours=2), placement={"gpus": [0, 1]}
    )
    client = viewer()
    text = client.get("/runs/compare/table/", {"runs": attempt.run_id}).content.decode()
    assert 'data-label="GPU-hours">4' in text
    assert words in text
    assert bool(words) == ("current prices" in text)
