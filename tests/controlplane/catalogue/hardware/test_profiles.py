"""Hardware profiles: the shipped ones, making, changing, deleting, and who may."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_fields import HELP, LABELS, SECTIONS
from controlplane.catalogue.hardware.profile_pages.forms import ProfileForm, as_submitted, spec_fields, values_of
from controlplane.catalogue.hardware.profiles import launch_values, profile_of, profile_problems
from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES, by_slug
from runs.launch.new_run.fields.choice_fields import offered_profiles
from tests.controlplane.catalogue.hardware.profile_form import (
    ATTACHED,
    COLOCATE,
    HOT_SWAP,
    SERVER,
    SHARED,
    TWO,
    filled,
    saved,
)
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_run
from workers.contract.run.hardware import HardwareSpec
from workers.contract.stack.hardware_rules import problems_with_lora
from workers.contract.wire.documents import from_dict

pytestmark = pytest.mark.django_db

SLUGS = [profile.slug for profile in SHIPPED_PROFILES]


def spec_of(profile: HardwareProfile) -> HardwareSpec:
    return from_dict(HardwareSpec, profile.spec)


def test_every_field_has_a_label_a_sentence_of_help_and_a_place():
    placed = [name for section in SECTIONS for part in section.parts for name in part.names]
    assert sorted(placed) == sorted(spec_fields()) == sorted(HELP) == sorted(LABELS)
    assert all(text.endswith(".") for text in HELP.values())


def test_a_shipped_profile_is_there_and_can_run(subtests):
    for slug in SLUGS:
        with subtests.test(slug=slug):
            profile = profile_of(HardwareProfile.objects.get(name=by_slug(slug).name))
            assert profile.columns() == by_slug(slug).columns()
            assert profile_problems(profile) == []


def test_a_shipped_profile_goes_through_its_own_form_unchanged(subtests):
    for slug in SLUGS:
        with subtests.test(slug=slug):
            row = HardwareProfile.objects.get(name=by_slug(slug).name)
            form = ProfileForm(as_submitted(values_of(profile_of(row))), profile=row)
            assert form.is_valid(), form.errors
            assert form.result.columns() == by_slug(slug).columns()


def test_what_the_page_of_a_shipped_profile_shows_is_what_it_saves(subtests):
    for slug in SLUGS:
        with subtests.test(slug=slug):
            row = HardwareProfile.objects.get(name=by_slug(slug).name)
            form = operator().get(f"/hardware/profiles/{row.pk}/").context["form"]
            shown = {bound.name: bound.value() for bound in form}
            browser = {name: "on" if v is True else v for name, v in shown.items() if v is not None and v is not False}
            assert operator().post(f"/hardware/profiles/{row.pk}/", browser).status_code == 302
            row.refresh_from_db()
            assert profile_of(row).columns() == by_slug(slug).columns()


def test_slugs_and_names_are_unique():
    assert len(set(SLUGS)) == len({profile.name.lower() for profile in SHIPPED_PROFILES}) == len(SHIPPED_PROFILES)
    assert all(profile.spec.profile == profile.name for profile in SHIPPED_PROFILES)


@pytest.mark.django_db
def test_a_new_database_has_the_shipped_profiles() -> None:
    """Its first migration has a copy of them: change a profile there, too, or in a migration that follows."""
    rows = {row.name: row for row in HardwareProfile.objects.all()}
    assert set(rows) == {profile.name for profile in SHIPPED_PROFILES}
    for profile in SHIPPED_PROFILES:
        stored = {name: getattr(rows[profile.name], name) for name in profile.columns()}
        assert stored == json.loads(json.dumps(profile.columns()))


def test_a_profile_is_made():
    assert spec_of(saved(threads=2)).threads == 2


def test_a_server_profile_is_made():
    server = spec_of(saved(**HOT_SWAP, server_max_model_len="2048")).server
    assert server is not None
    assert (server.weight_sync, server.max_model_len) == ("lora", 2048)


def test_several_servers_with_pinned_gpus_are_made():
    profile = saved(
        **{**HOT_SWAP, **TWO}, trainer_gpu_ids="2, 3", server_count=2, server_gpu_ids="0 1", server_port=8000
    )
    spec = spec_of(profile)
    assert (spec.trainer_gpu_ids, spec.server.gpu_ids, spec.server.port) == ((2, 3), (0, 1), 8000)


def test_a_server_on_the_trainers_gpu_is_made():
    assert spec_of(saved(**SHARED)).server.own_gpus == 0


def test_attached_servers_are_made_and_shown_as_such():
    profile = saved(**HOT_SWAP | ATTACHED | {"server_attached": "http://a:8000\n http://10.0.0.2:8001 \n"})
    assert spec_of(profile).server.attached == ("http://a:8000", "http://10.0.0.2:8001")
    assert operator().get(f"/hardware/profiles/{profile.pk}/").context["form"]["rollout"].value() == "attached"


def test_variables_lora_and_batch_are_kept():
    profile = saved(
        environment="NCCL_DEBUG=INFO\n\nTOKENIZERS_PARALLELISM = false",
        use_lora="on",
        lora_targets="q_proj v_proj",
        num_generations=4,
        per_device_train_batch_size=4,
    )
    assert profile.spec["environment"] == {"NCCL_DEBUG": "INFO", "TOKENIZERS_PARALLELISM": "false"}
    assert profile.lora["target_modules"] == ["q_proj", "v_proj"]
    assert profile.batch == {"per_device_train_batch_size": 4, "num_generations": 4}


@pytest.mark.parametrize(("value", "kept"), [("", None), ("on", True), ("off", False)])
def test_gradient_checkpointing_has_three_states(value, kept):
    assert spec_of(saved(gradient_checkpointing=value)).gradient_checkpointing is kept


UNUSED: list[tuple[str, dict[str, Any]]] = [
    ("transformers", {"server_gpus": "-3", "server_dtype": "", "server_gpu_ids": "x", "colocate_sleep": "on"}),
    ("transformers", {"lora_r": "0", "lora_targets": "lm_head", "server_attached": "?", "lora_alpha": ""}),
    ("colocate", {**COLOCATE, "server_count": "99", "server_port": "1", "server_weight_sync": "fax"}),
    ("server", {**SERVER, "server_attached": "ftp://x", "colocate_memory_utilization": "7"}),
    ("attached", {**ATTACHED, "server_gpus": "7", "server_gpu_ids": "0 0", "server_gpu_memory_utilization": "9"}),
]


@pytest.mark.parametrize(("rollout", "changes"), UNUSED, ids=[f"{r}: {list(c)[-1]}" for r, c in UNUSED])
def test_what_is_not_used_may_hold_anything(rollout, changes):
    spec = spec_of(saved(**changes))
    assert (spec.server is None) == (rollout in ("transformers", "colocate"))
    assert problems_with_lora(spec, None) == []


def test_a_launch_starts_from_the_profiles_lora_and_batch():
    values = launch_values(HardwareProfile.objects.get(name=by_slug("consumer-8gb").name))
    assert values == {
        "use_lora": "on",
        "lora_r": "16",
        "lora_alpha": "32",
        "lora_dropout": "0.1",
        "lora_targets": "q_proj, k_proj, v_proj, o_proj",
        "per_device_train_batch_size": "16",
        "gradient_accumulation_steps": "2",
        "num_generations": "8",
        "max_completion_length": "256",
    }


def test_a_launch_on_a_profile_without_lora_trains_all_weights():
    assert launch_values(HardwareProfile.objects.get(name="CPU")) == {"use_lora": ""}


def test_a_profile_is_changed_under_its_own_name():
    profile = HardwareProfile.objects.get(name="CPU")
    assert operator().post(f"/hardware/profiles/{profile.pk}/", filled(name="CPU", threads=3)).status_code == 302
    profile.refresh_from_db()
    assert profile.spec["threads"] == 3


def test_of_two_tabs_the_later_one_is_told_before_it_overwrites():
    profile = HardwareProfile.objects.get(name="CPU")
    page = f"/hardware/profiles/{profile.pk}/"
    client = operator()
    digest = client.get(page).context["form"]["digest"].value()
    assert client.post(page, filled(name="CPU", threads=3, digest=digest)).status_code == 302
    told = client.post(page, filled(name="CPU", threads=5, digest=digest))
    assert told.status_code == 422
    assert "Somebody has changed this profile" in told.content.decode()
    again = told.context["form"]["digest"].value()
    assert client.post(page, filled(name="CPU", threads=5, digest=again)).status_code == 302
    profile.refresh_from_db()
    assert profile.spec["threads"] == 5


def test_a_profile_that_the_contract_has_outgrown_can_be_opened_and_saved_anew():
    row = HardwareProfile.objects.create(name="old", spec={"profile": "old", "gears": 5})
    answer = operator().get(f"/hardware/profiles/{row.pk}/")
    assert answer.context["form"]["name"].value() == "old"
    assert operator().get(f"/hardware/profiles/{row.pk}/profile.yaml").status_code == 302
    assert operator().post(f"/hardware/profiles/{row.pk}/", filled(name="old")).status_code == 302


def test_the_list_says_what_a_profile_does():
    HardwareProfile.objects.create(name="odd", spec={"gears": 5})
    page = viewer().get("/hardware/").content.decode()
    assert all(profile.name in page for profile in SHIPPED_PROFILES)


def test_a_deleted_profile_leaves_its_runs():
    run = a_run()
    assert operator().post("/deleted/profile/", {"id": run.profile_id}).status_code == 302
    assert "(deleted)" in viewer().get(f"/runs/{run.pk}/").content.decode()
    assert run.spec["hardware"]["cpu_slots"] == 1


def test_an_archived_profile_is_offered_no_more_and_comes_back():
    profile = HardwareProfile.objects.get(name="CPU")
    page = f"/hardware/profiles/{profile.pk}/"
    for _ in range(2):
        told = operator().post(f"{page}archive/", {"archived": "1"}, follow=True).content.decode()
    assert "archived</span>" in told
    assert profile not in offered_profiles()
    choices = operator().get("/runs/new/").content.decode().split('name="profile"')[1].split("</select>")[0]
    assert f'value="{profile.pk}"' not in choices
    operator().post(f"{page}archive/", {"archived": "0"})
    assert profile in offered_profiles()
    assert viewer().post(f"{page}archive/", {"archived": "1"}).status_code == 403


def test_viewers_look_and_change_nothing():
    profile = HardwareProfile.objects.get(name="CPU")
    assert viewer().get(f"/hardware/profiles/{profile.pk}/").status_code == 200
    assert viewer().get(f"/hardware/profiles/{profile.pk}/profile.yaml").status_code == 200
    assert viewer().get("/hardware/profiles/new/").status_code == 403
    for path in ("new/", "import/", f"{profile.pk}/"):
        assert viewer().post(f"/hardware/profiles/{path}", filled()).status_code == 403


def test_changing_takes_a_post():
    profile = HardwareProfile.objects.get(name="CPU")
    assert operator().put(f"/hardware/profiles/{profile.pk}/").status_code == 405
    assert operator().post(f"/hardware/profiles/{profile.pk}/profile.yaml").status_code == 405


def test_a_profile_that_is_not_there():
    assert operator().get("/hardware/profiles/99999/").status_code == 404
