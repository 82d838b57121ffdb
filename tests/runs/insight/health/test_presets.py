"""Presets: shipped ones with their sources, own ones with a form that checks each bound, and the run's choice."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from controlplane.platform.accounts.models import Role
from runs.engine.models import Attempt, HealthPreset, Run
from runs.insight.health.forms import PresetForm
from runs.insight.health.judging.rules import BY_ID, RULES
from runs.insight.health.presets import Preset, as_preset
from tests.controlplane.people import operator, signed_in, viewer
from tests.runs.builders import a_host, a_run, an_attempt
from tests.runs.insight.health.test_tick import write

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def own() -> HealthPreset:
    return HealthPreset.objects.create(name="mine", bounds={"kl": {"warning": 0.2, "bad": 0.4, "source": "a paper"}})


def filled(preset: HealthPreset, **changes: object) -> dict[str, object]:
    """What a browser sends for a preset's form that was changed so; None leaves a field out."""
    form = PresetForm(None, preset=preset)
    sent = {bound.name: bound.value() for bound in form}
    sent |= {name.replace("__", "-"): value for name, value in changes.items()}
    return {name: ("on" if value is True else value) for name, value in sent.items() if value not in (None, False)}


def save(client: Client, preset: HealthPreset, **changes: object) -> HealthPreset | str:
    """The row after a save, or the page that refused it."""
    answer = client.post(reverse("health_preset", args=[preset.pk]), filled(preset, **changes))
    if answer.status_code == 422:
        return answer.content.decode()
    preset.refresh_from_db()
    return preset


def test_three_presets_are_shipped_each_with_its_sources() -> None:
    shipped = HealthPreset.objects.exclude(slug=None)
    assert {preset.slug for preset in shipped} == {"mixed", "atropos", "axolotl"}
    assert all(preset.source for preset in shipped)
    assert all(set(preset.bounds) <= set(BY_ID) for preset in shipped)
    assert shipped.get(is_default=True).slug == "mixed"


def test_every_shipped_preset_is_one_that_its_own_form_accepts() -> None:
    for preset in HealthPreset.objects.all():
        form = PresetForm(filled(preset), preset=preset)
        assert form.is_valid(), form.errors
        assert {rule for rule in RULES if as_preset(preset).bounds(rule).off} == {
            rule for rule in RULES if Preset(entries=form.entries()).bounds(rule).off
        }


def test_bounds_of_shares_are_typed_in_percent(own: HealthPreset) -> None:
    saved = save(operator(), own, clip__warning="12.5", clip__bad="40")
    assert isinstance(saved, HealthPreset)
    assert saved.bounds["clip"] == {"warning": 0.125, "bad": 0.4}


def test_what_was_not_changed_is_not_stored_and_a_source_stays_with_its_numbers(own: HealthPreset) -> None:
    saved = save(operator(), own, name="better")
    assert isinstance(saved, HealthPreset)
    assert (saved.name, saved.bounds) == ("better", {"kl": {"warning": 0.2, "bad": 0.4, "source": "a paper"}})
    save(operator(), own, kl__bad="0.5")
    assert own.bounds == {"kl": {"warning": 0.2, "bad": 0.5}}


def test_a_rule_can_be_switched_off_and_one_that_is_off_on(own: HealthPreset) -> None:
    save(operator(), own, loss__on=None, entropy_high__on=True, entropy_high__warning="3")
    assert own.bounds["loss"] == {"on": False}
    assert own.bounds["entropy_high"] == {"warning": 3.0, "bad": None}
    assert as_preset(own).bounds(BY_ID["loss"]).off


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kl__warning": "much"}, "Enter a number."),
        ({"kl__warning": "-1"}, "At least 0."),
        ({"clip__bad": "140"}, "At most 100."),
        ({"kl__bad": "0.1"}, "The worse bound must be above the milder one."),
        ({"entropy__bad": "2"}, "The worse bound must be below the milder one."),
        ({"kl__warning": "", "kl__bad": ""}, "Enter a bound, or turn the rule off."),
        ({"kl__warning": "nan"}, "Enter a number."),
        ({"name": "Mixed"}, "A preset with this name already exists."),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_nothing_is_saved(
    own: HealthPreset, changes: dict[str, object], says: str
) -> None:
    before = own.bounds
    page = save(operator(), own, **changes)
    assert isinstance(page, str)
    assert says in page
    assert HealthPreset.objects.get(pk=own.pk).bounds == before


def test_a_shipped_preset_stays_as_it_is() -> None:
    mixed = HealthPreset.objects.get(slug="mixed")
    for address in ("health_preset", "health_preset_delete"):
        operator().post(reverse(address, args=[mixed.pk]), filled(mixed, kl__warning="9"))
    assert HealthPreset.objects.get(slug="mixed").bounds == {}


def test_a_presets_page_marks_the_rules_that_it_changes() -> None:
    shipped = HealthPreset.objects.exclude(bounds={}).first()
    assert shipped is not None
    page = operator().get(reverse("health_preset", args=[shipped.pk])).content.decode()
    assert page.count(">changed</span>") == len(shipped.bounds)
    assert "Make default" in page


def test_a_viewer_reads_presets_and_changes_none() -> None:
    mixed = HealthPreset.objects.get(slug="mixed")
    listing = viewer().get(reverse("health_presets")).content.decode()
    assert mixed.name in listing
    assert reverse("health_preset_copy", args=[mixed.pk]) not in listing
    page = viewer().get(reverse("health_preset", args=[mixed.pk])).content.decode()
    assert "Built-in presets can't be changed." in page
    assert "Changing presets requires the operator role." in page
    assert "Save preset" not in page
    assert re.search(r'<fieldset[^>]* disabled>.*name="kl-warning".*</fieldset>', page, re.DOTALL)
    assert reverse("alerts") not in viewer().get(reverse("settings"), follow=True).content.decode()


def test_a_copy_is_ones_own_and_can_be_copied_again() -> None:
    client, axolotl = operator(), HealthPreset.objects.get(slug="axolotl")
    for name in ("Copy of Axolotl training stability", "Copy of Axolotl training stability 2"):
        answer = client.post(reverse("health_preset_copy", args=[axolotl.pk]))
        copy = HealthPreset.objects.get(name=name)
        assert answer["Location"] == reverse("health_preset", args=[copy.pk])
        assert (copy.slug, copy.bounds) == (None, axolotl.bounds)


def test_there_is_always_one_default(own: HealthPreset) -> None:
    client = operator()
    client.post(reverse("health_preset_default", args=[own.pk]))
    client.post(reverse("health_preset_delete", args=[own.pk]))
    assert HealthPreset.objects.get(is_default=True) == own


def test_an_own_preset_can_be_deleted_and_its_runs_go_by_the_default(own: HealthPreset) -> None:
    run = a_run()
    Run.objects.filter(pk=run.pk).update(preset=own)
    operator().post(reverse("health_preset_delete", args=[own.pk]))
    assert Run.objects.get(pk=run.pk).preset is None


def test_a_viewer_looks_and_changes_nothing(own: HealthPreset) -> None:
    client = viewer()
    assert "Save preset" not in client.get(reverse("health_preset", args=[own.pk])).content.decode()
    for name in ("health_preset", "health_preset_copy", "health_preset_default", "health_preset_delete"):
        assert client.post(reverse(name, args=[own.pk])).status_code == 403


def test_a_run_that_changes_its_preset_is_judged_anew_at_once(own: HealthPreset) -> None:
    attempt = an_attempt(run=a_run(host=a_host(), grpo={"beta": 0.04}))
    write(attempt, 60, kl=0.45)
    client = signed_in(Role.OPERATOR)
    client.post(reverse("run_preset", args=[attempt.run_id]), {"preset": own.pk})
    assert Run.objects.get(pk=attempt.run_id).health["verdict"] == "bad"
    default = HealthPreset.objects.get(is_default=True)
    client.post(reverse("run_preset", args=[attempt.run_id]), {"preset": default.pk})
    run = Run.objects.get(pk=attempt.run_id)
    assert (run.preset, run.health["verdict"]) == (None, "well")


@pytest.mark.parametrize("preset", ["", "x", "999999", "-1"])
def test_a_preset_that_is_not_there_is_no_choice(preset: str) -> None:
    run = a_run()
    assert operator().post(reverse("run_preset", args=[run.pk]), {"preset": preset}).status_code == 404


def test_a_run_of_long_ago_is_judged_anew_without_calling_anybody(own: HealthPreset) -> None:
    attempt = an_attempt(run=a_run(host=a_host(), grpo={"beta": 0.04}))
    write(attempt, 60, kl=0.45)
    Attempt.objects.filter(pk=attempt.pk).update(status="succeeded", ended_at=timezone.now())
    operator().post(reverse("run_preset", args=[attempt.run_id]), {"preset": own.pk})
    assert Run.objects.get(pk=attempt.run_id).health["verdict"] == "bad"
    assert not attempt.run.events.filter(kind="alert").exists()
