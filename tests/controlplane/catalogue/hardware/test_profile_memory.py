"""What profiles say about memory: computed by the model, on the list and on the profile's page."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from importlib import import_module

import pytest
from django.apps import apps
from django.utils import timezone

from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.hardware.profile_pages.memory_bars import view
from controlplane.catalogue.hardware.profile_pages.profile_memory import (
    card_of,
    division,
    estimated,
    fitted_models,
    largest_fitting,
    sentence,
    shipped_as,
)
from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES, by_slug
from controlplane.platform.activity.models import Act
from tests.controlplane.people import operator
from tests.gpu.estimates import shape_named
from tests.gpu.setups import EVERYTHING
from tests.gpu.units import Setup
from tests.runs.builders import a_host
from workers.contract.memory.known import LADDER, known_shape

ON_GPUS = [profile for profile in SHIPPED_PROFILES if profile.card_gib]


def test_each_built_in_profile_holds_a_model_on_the_hardware_it_names_and_says_which(subtests: pytest.Subtests) -> None:
    for profile in ON_GPUS:
        with subtests.test(profile.slug):
            models = fitted_models(profile, profile.card_gib)
            fitting = [one for one in models if one.fits]
            assert fitting
            assert f"models up to {fitting[-1].name}" in sentence(profile, profile.card_gib)


def test_no_description_has_words_about_memory_written_by_hand(subtests: pytest.Subtests) -> None:
    for profile in SHIPPED_PROFILES:
        with subtests.test(profile.slug):
            for words in (" GiB", "bytes per parameter", "measured", "took "):
                assert words not in profile.description


def test_those_that_were_measured_are_those_of_the_proofs() -> None:
    proved = {unit.slug for unit in EVERYTHING.values() if isinstance(unit, Setup) and unit.gpus}
    assert {profile.slug for profile in ON_GPUS if profile.measured} == proved


def test_a_larger_model_takes_more_and_what_no_gpu_holds_is_said() -> None:
    needs = [one.needed_gib for one in fitted_models(by_slug("dual-gpu"), 24)]
    assert needs == sorted(needs)
    assert "none of the usual models; Qwen2.5 0.5B needs" in sentence(by_slug("dual-gpu"), 4)
    assert sentence(by_slug("cpu"), 24) == ""


def test_the_common_models_are_in_the_order_of_their_size() -> None:
    sizes = [known_shape(name).total for name in LADDER]
    assert sizes == sorted(sizes)
    assert known_shape("Qwen2.5 7B").total == 7_615_616_512
    assert known_shape("Llama 3.1 8B").total == 8_030_261_248


@pytest.mark.django_db
def test_the_list_says_what_built_in_profiles_hold_and_which_never_ran() -> None:
    rows = operator().get("/hardware/").content.decode().split("</tr>")
    ran, never = (
        next(row for row in rows if f">{by_slug(slug).name}</a>" in row) for slug in ("dual-gpu", "three-gpus")
    )
    assert largest_fitting(by_slug("dual-gpu"), 24) in ran
    assert "never run" not in ran
    assert largest_fitting(by_slug("three-gpus"), 24) in never
    assert "never run" in never


@pytest.mark.django_db
def test_the_page_of_a_profile_has_bars_for_a_model_and_a_card() -> None:
    row = HardwareProfile.objects.get(name="Three GPUs, 1 server + 2 trainers")
    assert shipped_as(row) is by_slug("three-gpus")
    client = operator()
    page = client.get(f"/hardware/profiles/{row.pk}/").content.decode()
    assert "Memory" in page
    assert "has never run on a GPU" in page
    page = client.get(f"/hardware/profiles/{row.pk}/?model=Qwen2.5 7B&card=80").content.decode()
    assert "estimated for Qwen2.5 7B on GPUs with 80 GiB" in page
    assert "Too much." in page


@pytest.mark.django_db
@pytest.mark.parametrize("query", ["card=nan", "card=-1", "card=1e9", "card=x&model=%FF", "model=nothing&card="])
def test_a_bad_query_shows_the_usual_answer(query: str) -> None:
    row = HardwareProfile.objects.get(name="Dual GPU, LoRA hot-swap")
    answer = operator().get(f"/hardware/profiles/{row.pk}/?{query}")
    assert answer.status_code == 200
    assert "on GPUs with 24 GiB" in answer.content.decode()


@pytest.mark.django_db
def test_a_profile_of_ones_own_takes_the_largest_gpu_that_a_host_has() -> None:
    row = HardwareProfile.objects.create(name="mine", spec={"trainer_gpus": 1}, batch={})
    assert shipped_as(row) is None
    assert card_of(row) == (24, "")
    host = a_host("big", gpus=1)
    assert card_of(row) == (pytest.approx(143_771 / 1024), "big")
    assert "Estimated for big: a GPU with 140 GiB" in operator().get(f"/hardware/profiles/{row.pk}/").content.decode()
    Host.objects.filter(pk=host.pk).update(announced_at=timezone.now() - timedelta(days=1))
    assert card_of(row) == (24, ""), "a host unreachable doesn't count"


@pytest.mark.django_db
@pytest.mark.parametrize("slug", ["one-gpu-colocate", "three-gpus", "16gb-conservative", "16gb-aggressive"])
def test_a_renamed_built_in_profile_holds_what_it_held(slug: str) -> None:
    row, client = HardwareProfile.objects.get(name=by_slug(slug).name), operator()
    page = client.get(f"/hardware/profiles/{row.pk}/")
    before = page.context["memory"]
    fields = {bound.name: bound.value() for bound in page.context["form"]}
    sent = {name: "on" if v is True else v for name, v in fields.items() if v is not None and v is not False}
    told = client.post(f"/hardware/profiles/{row.pk}/", {**sent, "name": "Another name"})
    assert told["Location"] == f"/hardware/profiles/{row.pk}/"
    assert Act.objects.get(kind="profile").what == f"Renamed from “{row.name}”"
    row.refresh_from_db()
    assert (row.name, shipped_as(row)) == ("Another name", by_slug(slug))
    after = client.get(f"/hardware/profiles/{row.pk}/").context["memory"]
    assert (after.sentence, after.unmeasured, after.guide) == (before.sentence, before.unmeasured, before.guide)


@pytest.mark.parametrize("slug", ["one-gpu-colocate", "dual-gpu"])
def test_the_bars_have_the_figure_of_the_sentence(slug: str) -> None:
    profile = by_slug(slug)
    largest = [one for one in fitted_models(profile, profile.card_gib) if one.fits][-1]
    shown = view(estimated(profile, known_shape(largest.name), profile.card_gib), length=768, where="")
    trainers = [bar for bar in shown.bars if bar.role != "server"]
    assert max(bar.needed_gib for bar in trainers) == largest.needed_gib
    for bar in trainers:
        assert sum(part["value"] for part in bar.parts) == pytest.approx(bar.needed_gib)


@pytest.mark.django_db
def test_the_cpu_profile_and_a_broken_one_have_no_bars() -> None:
    cpu = HardwareProfile.objects.get(name="CPU")
    broken = HardwareProfile.objects.create(name="broken", spec={"rollout": "telepathy"}, batch={})
    for row in (cpu, broken):
        assert "Estimated memory" not in operator().get(f"/hardware/profiles/{row.pk}/").content.decode()


def test_built_in_batches_are_the_guides_divided_by_the_memory_model(subtests: pytest.Subtests) -> None:
    for profile in [one for one in SHIPPED_PROFILES if one.guide]:
        with subtests.test(profile.slug):
            guides = replace(profile, batch={**profile.batch, **profile.guide})
            now, then, gain = division(guides, known_shape(profile.model), profile.card_gib, any_share=False)
            assert then is not None
            assert then.micro_batch == profile.batch["per_device_train_batch_size"]
            assert then.passes == profile.batch["gradient_accumulation_steps"]
            assert now.micro_batch * now.passes == then.micro_batch * then.passes
            assert gain > 1


def test_built_in_profiles_with_the_guides_batch_have_no_room_for_more() -> None:
    for slug, shape in {"dual-gpu": known_shape("Llama 3.2 1B"), "16gb-standard": shape_named("20b")}.items():
        profile = by_slug(slug)
        assert division(profile, shape, profile.card_gib, any_share=False)[1] is None


@pytest.mark.django_db
def test_one_click_uses_the_memory_and_another_has_the_guides_batch_back() -> None:
    row, client = HardwareProfile.objects.get(name="Dual GPU, LoRA hot-swap"), operator()
    address = f"/hardware/profiles/{row.pk}/"
    guides = client.get(f"{address}?use=guide").context["form"]
    assert guides["per_device_train_batch_size"].value() == 4
    assert "marked below" in client.get(f"{address}?use=guide").content.decode()
    row.batch = {**row.batch, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 8}
    row.spec["server"]["all_graphs"] = True
    row.save()
    page = client.get(f"{address}?use=memory&card=80")
    form = page.context["form"]
    assert (form["per_device_train_batch_size"].value(), form["gradient_accumulation_steps"].value()) == ("32", "1")
    assert form["server_all_graphs"].value() == ""
    shown = {bound.name: bound.value() for bound in form}
    sent = {name: "on" if v is True else v for name, v in shown.items() if v is not None and v is not False}
    assert client.post(address, sent).status_code == 302
    row.refresh_from_db()
    assert (row.batch["per_device_train_batch_size"], row.spec["server"]["all_graphs"]) == (32, False)


@pytest.mark.django_db
def test_an_update_divides_the_batches_of_built_in_profiles_that_nobody_changed() -> None:
    shipped, other = by_slug("guide-8b"), by_slug("guide-14b")
    for one in (shipped, other):
        HardwareProfile.objects.filter(name=one.name).update(batch={**one.batch, **one.guide})
    HardwareProfile.objects.filter(name=other.name).update(batch={**other.batch, **other.guide, "num_generations": 2})
    import_module("controlplane.catalogue.hardware.migrations.0005_divided_batches").divide(apps, None)
    assert HardwareProfile.objects.get(name=shipped.name).batch == shipped.batch
    assert HardwareProfile.objects.get(name=other.name).batch["gradient_accumulation_steps"] == 8
