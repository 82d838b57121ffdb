"""A profile's own DeepSpeed config, as it is typed into the form."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_pages.forms import ProfileForm, as_submitted, values_of
from controlplane.catalogue.hardware.profile_pages.profile_yaml import export, read
from controlplane.catalogue.hardware.profiles import profile_of
from controlplane.catalogue.hardware.shipped import by_slug
from tests.controlplane.people import operator

pytestmark = pytest.mark.django_db

TUNED = """{
  // smaller buckets
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 50000000,},
  "train_batch_size": "auto"
}"""


def page(text: str, **changes: Any) -> dict[str, str]:
    values = as_submitted(values_of(by_slug("consumer-8gb")))
    return {**values, "name": "tuned", "deepspeed": text, **changes}


def beside(text: str, **changes: Any) -> str:
    return " ".join(ProfileForm(page(text, **changes)).errors.get("deepspeed", []))


def test_a_config_with_comments_is_kept_and_travels_with_the_profile():
    assert operator().post("/hardware/profiles/new/", page(TUNED)).status_code == 302
    profile = profile_of(HardwareProfile.objects.get(name="tuned"))
    assert profile.spec.deepspeed is not None
    assert profile.spec.deepspeed["zero_optimization"]["reduce_bucket_size"] == 50_000_000
    HardwareProfile.objects.all().delete()
    assert read(export(profile).encode()).form().result.spec == profile.spec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Line 1"),
        ('{"a": 1,\n "a": 2}', "'a' occurs twice"),
        ('{\n"a": NaN}', "NaN is not a JSON value"),
        ("[1]", "Enter a JSON object"),
        ("[" * 1000, "nested more than"),
        ('{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}', "ZeRO stage is 3"),
        ('{"train_micro_batch_size_per_gpu": 2}', "is 2 but the run has 16"),
    ],
)
def test_what_is_wrong_with_it_is_said_beside_its_field_and_the_text_stays(text, words):
    answer = operator().post("/hardware/profiles/new/", page(text))
    assert answer.status_code == 422
    assert words in " ".join(answer.context["form"].errors["deepspeed"])
    assert answer.context["form"]["deepspeed"].value() == text


def test_without_zero_it_may_hold_anything():
    assert beside("{", strategy="ddp", offload="none") == ""
    assert beside("", strategy="zero2") == ""
