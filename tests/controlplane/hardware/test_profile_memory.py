"""What profiles say about memory: computed by the model, on the list and on the profile's page."""

from __future__ import annotations

import pytest

from controlplane.hardware.models import HardwareProfile
from controlplane.hardware.profile_memory import card_of, held, sentence, shipped_as
from controlplane.hardware.shipped import SHIPPED, Shipped, by_slug
from tests.controlplane.people import operator
from tests.gpu.setups import EVERYTHING, Setup
from tests.runs.builders import a_host
from workers.contract.memory.known import LADDER, known_shape

ON_GPUS = [profile for profile in SHIPPED if profile.card_gib]


@pytest.mark.parametrize("profile", ON_GPUS, ids=lambda profile: profile.slug)
def test_each_built_in_profile_holds_a_model_on_the_hardware_it_names_and_says_which(profile: Shipped) -> None:
    models = held(profile, profile.card_gib)
    fitting = [one for one in models if one.fits]
    assert fitting
    assert f"models up to {fitting[-1].name}" in sentence(profile, profile.card_gib)


@pytest.mark.parametrize("profile", SHIPPED, ids=lambda profile: profile.slug)
def test_no_description_has_words_about_memory_written_by_hand(profile: Shipped) -> None:
    for words in (" GiB", "bytes per parameter", "measured", "took "):
        assert words not in profile.description


def test_those_that_were_measured_are_those_of_the_proofs() -> None:
    proved = {unit.slug for unit in EVERYTHING.values() if isinstance(unit, Setup) and unit.gpus}
    assert {profile.slug for profile in ON_GPUS if profile.measured} == proved


def test_a_larger_model_takes_more_and_what_no_gpu_holds_is_said() -> None:
    needs = [one.needed_gib for one in held(by_slug("dual-gpu"), 24)]
    assert needs == sorted(needs)
    assert "none of the usual models; Qwen2.5 0.5B takes" in sentence(by_slug("dual-gpu"), 4)
    assert sentence(by_slug("cpu"), 24) == ""


def test_the_common_models_are_in_the_order_of_their_size() -> None:
    sizes = [known_shape(name).total for name in LADDER]
    assert sizes == sorted(sizes)
    assert known_shape("Qwen2.5 7B").total == 7_615_616_512
    assert known_shape("Llama 3.1 8B").total == 8_030_261_248


@pytest.mark.django_db
def test_the_list_says_what_built_in_profiles_hold_and_which_never_ran() -> None:
    page = operator().get("/hardware/").content.decode()
    assert sentence(by_slug("dual-gpu"), 24) in page
    assert f"{sentence(by_slug('three-gpus'), 24)} Never run on a GPU." in page


@pytest.mark.django_db
def test_the_page_of_a_profile_has_bars_for_a_model_and_a_card() -> None:
    row = HardwareProfile.objects.get(name="Three GPUs, 1 server + 2 trainers")
    assert shipped_as(row) is by_slug("three-gpus")
    client = operator()
    page = client.get(f"/hardware/profiles/{row.pk}/").content.decode()
    assert "Memory" in page
    assert "was never run on a GPU" in page
    page = client.get(f"/hardware/profiles/{row.pk}/?model=Qwen2.5 7B&card=80").content.decode()
    assert "estimated for Qwen2.5 7B on GPUs of 80 GiB" in page
    assert "Too much." in page


@pytest.mark.django_db
@pytest.mark.parametrize("query", ["card=nan", "card=-1", "card=1e9", "card=x&model=%FF", "model=nothing&card="])
def test_a_bad_query_shows_the_usual_answer(query: str) -> None:
    row = HardwareProfile.objects.get(name="Dual GPU, LoRA hot-swap")
    answer = operator().get(f"/hardware/profiles/{row.pk}/?{query}")
    assert answer.status_code == 200
    assert "on GPUs of 24 GiB" in answer.content.decode()


@pytest.mark.django_db
def test_a_profile_of_ones_own_takes_the_largest_gpu_that_a_host_has() -> None:
    row = HardwareProfile.objects.create(name="mine", spec={"trainer_gpus": 1}, batch={})
    assert shipped_as(row) is None
    assert card_of(row) == 24
    a_host("big", gpus=1)
    assert card_of(row) == pytest.approx(143_771 / 1024)


@pytest.mark.django_db
def test_the_cpu_profile_and_a_broken_one_have_no_bars() -> None:
    cpu = HardwareProfile.objects.get(name="CPU")
    broken = HardwareProfile.objects.create(name="broken", spec={"rollout": "telepathy"}, batch={})
    for row in (cpu, broken):
        assert "Estimated memory" not in operator().get(f"/hardware/profiles/{row.pk}/").content.decode()
