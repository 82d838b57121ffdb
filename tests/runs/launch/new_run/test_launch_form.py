"""The New run page over HTTP: what it launches, what it refuses, and what it keeps."""

from __future__ import annotations

import pytest
from django.db import IntegrityError
from django.test import Client
from django.utils.html import strip_tags

from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards import saving
from controlplane.platform.accounts.models import Role
from runs.engine.models import Run
from runs.launch.new_run.drafting import checked
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.prefill import as_sent
from tests.controlplane.people import make_user, operator, viewer
from tests.runs.builders import a_run
from tests.runs.launch.new_run.launching_page import SCHEMA, a_config, a_ready_host, a_version, sent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick_passwords(settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def client() -> Client:
    a_ready_host()
    return operator()


def launched(client: Client, **changes) -> Run:
    answer = client.post("/runs/new/", sent(**changes))
    assert answer.status_code == 302, refusals(answer)
    return Run.objects.get(pk=answer.url.strip("/").split("/")[-1])


def refusals(answer) -> dict[str, list[str]]:
    return dict(answer.context["form"].errors)


def test_a_viewer_is_told_who_may_launch_and_sees_no_form():
    make_user(Role.OPERATOR, name="olga")
    gone = make_user(Role.OPERATOR, name="gone")
    gone.is_active = False
    gone.save()
    for path in ("/runs/new/", f"/runs/{a_run().pk}/clone/"):
        page = viewer().get(path).content.decode()
        assert "Launching requires the operator role" in page
        assert "olga" in page
        assert "gone" not in page
        assert 'id="launch"' not in page


def test_the_page_opens_on_an_empty_installation():
    Host.objects.all().delete()
    HardwareProfile.objects.all().delete()
    page = operator().get("/runs/new/")
    assert page.status_code == 200
    assert b"No host has announced itself" in page.content


def test_a_viewer_launches_nothing():
    a_ready_host()
    assert viewer().post("/runs/new/", sent()).status_code == 403
    assert not Run.objects.exists()


def test_nobody_launches_without_signing_in():
    a_ready_host()
    assert Client().post("/runs/new/", sent()).status_code == 302
    assert not Run.objects.exists()


def test_launching_takes_a_csrf_token():
    a_ready_host()
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(Role.OPERATOR))
    assert client.post("/runs/new/", sent()).status_code == 403


@pytest.mark.parametrize("path", ["/runs/new/check", "/runs/new/model"])
def test_parts_of_the_page_take_a_post_by_an_operator(path):
    assert operator().get(path).status_code == 405
    assert viewer().post(path, {}).status_code == 403


def test_the_page_takes_no_put():
    assert operator().put("/runs/new/").status_code == 405


def test_a_launch_freezes_what_the_page_said(client):
    run = launched(client, learning_rate="3e-5", num_generations="4", beta="0.04", seed="7")
    grpo = run.spec["grpo"]
    assert (grpo["learning_rate"], grpo["num_generations"], grpo["beta"], grpo["seed"]) == (3e-5, 4, 0.04, 7)
    assert run.spec["model"]["path"] == "/models/tiny"
    assert run.spec["hardware"]["profile"] == "CPU"


def test_fields_that_are_off_are_not_in_the_spec(client):
    grpo = launched(client).spec["grpo"]
    assert grpo["max_steps"] == 200
    assert not {"num_train_epochs", "eval_strategy", "eval_steps", "epsilon_high", "bf16"} & grpo.keys()


def test_epochs_count_when_steps_are_empty(client):
    grpo = launched(client, max_steps="", num_train_epochs="2").spec["grpo"]
    assert grpo["num_train_epochs"] == 2
    assert "max_steps" not in grpo


def test_checkpoints_are_written_every_epoch_if_the_form_says_so(client):
    grpo = launched(client, save_strategy="epoch", save_steps="").spec["grpo"]
    assert grpo["save_strategy"] == "epoch"
    assert "save_steps" not in grpo
    assert launched(client, name="by steps").spec["grpo"]["save_steps"] == 100


def test_evaluation_rows_switch_evaluation_on(client):
    spec = launched(client, eval_rows="16", eval_steps="5").spec
    assert spec["data"]["eval_rows"] == 16
    assert (spec["grpo"]["eval_strategy"], spec["grpo"]["eval_steps"]) == ("steps", 5)


@pytest.mark.parametrize(
    ("precision", "flags"), [("bf16", (True, False)), ("fp16", (False, True)), ("fp32", (False, False))]
)
def test_a_precision_is_two_flags(client, precision, flags):
    grpo = launched(client, precision=precision).spec["grpo"]
    assert (grpo["bf16"], grpo["fp16"]) == flags


def test_a_lora_goes_into_the_spec(client):
    lora = launched(client, use_lora="on", lora_r="8", lora_targets="q_proj v_proj").spec["lora"]
    assert lora == {"r": 8, "alpha": 32, "dropout": 0.0, "target_modules": ["q_proj", "v_proj"]}


def test_only_changed_advanced_values_are_frozen(client):
    grpo = launched(
        client, weight_decay="0.1", shuffle_dataset="true", top_k="0", generation_kwargs='{"length_penalty": 1}'
    ).spec["grpo"]
    assert (grpo["weight_decay"], grpo["generation_kwargs"]) == (0.1, {"length_penalty": 1})
    assert not {"shuffle_dataset", "top_k", "optim"} & grpo.keys()


def test_fields_of_the_control_plane_are_not_offered():
    form = LaunchForm(schema=SCHEMA)
    assert "output_dir" not in form.fields
    assert form.fields["model"].label == "Model"
    assert sum(names.count("learning_rate") for names in form.advanced.values()) == 0


def test_a_run_without_a_name_gets_one_of_model_and_dataset(client):
    assert launched(client, name="").name == "tiny-sums"
    assert launched(client, name="  mine  ", key="2").name == "mine"


def test_a_double_click_makes_one_run(client):
    page = sent()
    first, second = client.post("/runs/new/", page), client.post("/runs/new/", page)
    assert first.url == second.url
    assert Run.objects.count() == 1


def test_another_clash_than_the_double_click_is_not_taken_for_one(client, monkeypatch):
    def clash(*args, **arguments):
        raise IntegrityError("some other rule")

    monkeypatch.setattr("runs.engine.scheduling.launching.submit", clash)
    with pytest.raises(IntegrityError, match="some other rule"):
        client.post("/runs/new/", sent())


def test_going_back_and_changing_something_makes_another_run(client):
    page = sent()
    client.post("/runs/new/", page)
    client.post("/runs/new/", page | {"seed": "43"})
    assert Run.objects.count() == 2


def test_the_page_of_one_person_is_not_the_launch_of_another(client):
    page = sent()
    client.post("/runs/new/", page)
    operator().post("/runs/new/", page)
    assert Run.objects.count() == 2


BAD = [
    ("num_generations", "three", "Enter a whole number"),
    ("num_generations", "1", "at least 2"),
    ("num_generations", "", "required"),
    ("num_generations", "9" * 5000, "Enter a whole number"),
    ("num_generations", "6", "not a whole number of groups"),
    ("learning_rate", "fast", "Enter a number"),
    ("learning_rate", "nan", "Enter a number"),
    ("learning_rate", "inf", "Enter a number"),
    ("learning_rate", "-1", "At least 0"),
    ("temperature", "0", "above 0"),
    ("top_p", "1.5", "At most 1"),
    ("loss_type", "dpo", "Select a valid choice"),
    ("model", "", "No model is chosen"),
    ("model", "a\nb\x01", "neither a folder nor a hub id"),
    ("model", "--config", "neither a folder nor a hub id"),
    ("dataset_version", "", "No dataset is chosen"),
    ("dataset_version", "99999999999999999999999", "no longer exists"),
    ("dataset_version", "x'", "no longer exists"),
    ("reward_version", "-1", "no longer exists"),
    ("profile", "", "No hardware profile"),
    ("host", "999999999999999999999999999", "no longer exists"),
    ("eval_rows", "100", "validation row"),
    ("max_steps", "0", "At least 1"),
    ("generation_kwargs", "{", "Enter a valid JSON"),
    ("generation_batch_size", "12", "not a whole number of groups"),
    ("name", "x" * 500, "at most 120"),
]


@pytest.mark.parametrize(("field", "value", "words"), BAD, ids=[f"{f}={v[:12]!r}" for f, v, _ in BAD])
def test_bad_input_is_said_beside_its_field(client, field, value, words):
    answer = client.post("/runs/new/", sent(**{field: value}))
    assert answer.status_code == 422
    owner = "num_generations" if field == "generation_batch_size" else field
    assert words in " ".join(refusals(answer)[owner])
    assert not Run.objects.exists()


def test_a_label_and_its_finding_are_two_sentences(client):
    text = strip_tags(client.post("/runs/new/check", sent(max_steps="0", temperature="0")).content.decode())
    words = " ".join(text.split())
    assert "Steps: At least 1." in words
    assert "Temperature: 0 is not a valid temperature. It must be above 0." in words


def test_launch_stands_out_once_nothing_is_wrong(client):
    assert 'class="button primary launch"' in client.post("/runs/new/check", sent()).content.decode()
    assert 'class="button launch"' in client.post("/runs/new/check", sent(temperature="0")).content.decode()
    assert 'class="button launch"' in client.post("/runs/new/check", sent(profile="")).content.decode()


@pytest.mark.parametrize(
    "off",
    [
        {"lora_r": "x", "lora_dropout": "7"},
        {"eval_steps": "x", "per_device_eval_batch_size": "0"},
        {"num_train_epochs": "x"},
    ],
)
def test_what_is_switched_off_may_be_wrong(client, off):
    assert not off.keys() & launched(client, **off).spec["grpo"].keys()


def test_a_wrong_number_of_a_lora_counts_when_there_is_one(client):
    assert "lora_r" in refusals(client.post("/runs/new/", sent(use_lora="on", lora_r="x")))


def test_nothing_typed_is_lost_on_an_error(client):
    page = client.post(
        "/runs/new/", sent(num_generations="6", lora_targets="my_proj", weight_decay="0.25")
    ).content.decode()
    for typed in ('value="6"', 'value="my_proj"', 'value="0.25"'):
        assert typed in page


def test_an_error_in_a_folded_part_opens_it(client):
    answer = client.post("/runs/new/", sent(top_k="many"))
    assert [fold["title"] for fold in answer.context["form"].advanced_folds if fold["open"]] == ["Generation"]


def test_an_empty_post_is_no_server_error(client):
    assert client.post("/runs/new/", {}).status_code == 422


def test_text_is_shown_as_text(client):
    page = client.post("/runs/new/", sent(model="<script>alert(1)</script>", num_generations="6")).content
    assert b"<script>alert(1)" not in page


def test_the_live_check_offers_fixes_and_stores_nothing(client):
    panel = client.post("/runs/new/check", sent(num_generations="6")).content.decode()
    assert "Set generations per prompt to 8" in panel
    assert not Run.objects.exists()


def test_what_is_still_to_choose_is_no_error_yet(client):
    panel = client.get("/runs/new/").content.decode()
    assert "Still to choose: dataset, reward config" in panel
    assert "put right first" not in panel


def test_every_reason_is_said_beside_a_field_at_once(client):
    answer = client.post("/runs/new/", sent(num_generations="6", max_completion_length="0", loss_type="dpo"))
    assert {"num_generations", "max_completion_length", "loss_type"} <= refusals(answer).keys()


def test_the_button_says_where_it_would_start(client):
    assert "Launch now on box · CPU slot 0" in client.post("/runs/new/check", sent()).content.decode()


def test_the_button_says_that_the_run_would_wait(client):
    Host.objects.update(draining=True)
    assert "Host box is draining." in client.post("/runs/new/check", sent()).content.decode()


def test_a_dataset_without_answers_refuses_a_reward_that_reads_them(client):
    version = a_version(mapping={"prompt": "q", "answer": ""})
    config = a_config("numbers", "numeric_match")
    answer = client.post("/runs/new/", sent(dataset_version=version.pk, reward_version=config.pk))
    assert "reads the column answer" in refusals(answer)["reward_version"][0]


def test_too_few_prompts_for_one_generation_are_refused(client):
    version = a_version(rows=3)
    answer = client.post("/runs/new/", sent(dataset_version=version.pk, per_device_train_batch_size="32"))
    assert "without a single step" in refusals(answer)["dataset_version"][0]


def test_a_link_chooses_the_dataset(client):
    version = a_version()
    form = client.get(f"/runs/new/?dataset_version={version.pk}&seed=9").context["form"]
    assert form["dataset_version"].value() == str(version.pk)
    assert form["seed"].value() == 42


def test_a_link_with_nonsense_opens_the_page(client):
    assert client.get("/runs/new/?dataset_version=%20&profile=zz&host=-1").status_code == 200


def test_a_clone_sends_what_the_run_froze(client):
    sent()  # the rewards that are trained on
    other = saving.make("wordy", [{"name": "length", "function": "length"}])
    changes = {"learning_rate": "3e-5", "beta": "0.04", "weight_decay": "0.1", "use_lora": "on", "precision": "fp32"}
    run = launched(client, eval_rows="16", eval_reward_version=other.pk, **changes)
    form = client.get(f"/runs/{run.pk}/clone/").context["form"]
    again = launched(client, **as_sent(form))
    same = {name: value for name, value in again.spec.items() if name not in ("run_id", "name")}
    first = {name: value for name, value in run.spec.items() if name not in ("run_id", "name")}
    assert same["grpo"] == first["grpo"]
    assert same == first
    assert again.name == "tiny-sums-2"
    assert (again.cloned_from, run.cloned_from) == (run, None)
    assert launched(client, cloned_from="rgone").cloned_from is None


def test_a_clone_never_has_the_name_of_another_run(client):
    run, _ = a_run("first"), a_run("first-2")
    third = a_run("first-3")
    for cloned in (run, third):
        assert client.get(f"/runs/{cloned.pk}/clone/").context["form"]["name"].value() == "first-4"


def test_a_clone_leaves_to_trl_what_the_run_left_to_it(client):
    Host.objects.update(trainer_schema=SCHEMA | {"defaults": {"save_steps": 700}})
    form = client.get(f"/runs/{a_run().pk}/clone/").context["form"]
    left = [form[name].value() for name in ("max_completion_length", "save_steps", "save_total_limit", "seed")]
    assert left == [512, 700, None, 42]


def test_a_value_that_overrules_a_profile_is_frozen_even_if_it_is_the_default(client):
    assert launched(client, optim="adamw_torch").spec["grpo"]["optim"] == "adamw_torch"


def test_a_clone_says_what_has_changed_since(client):
    run = a_run()
    saving.save(run.reward_version.config, [{"name": "other", "function": "length"}])
    assert "Its reward config has a newer version, tags v2" in client.get(f"/runs/{run.pk}/clone/").content.decode()


def test_a_clone_of_no_run_is_not_found(client):
    assert client.get("/runs/r000000000/clone/").status_code == 404


@pytest.mark.parametrize("text", ['{"a": NaN}', "1e999", '"\\ud800"', "[" * 100_000])
def test_json_that_no_database_stores_is_refused_beside_its_field(client: Client, text: str):
    answer = client.post("/runs/new/", sent(generation_kwargs=text))
    assert answer.status_code == 422
    assert "generation_kwargs" in refusals(answer)


def test_the_length_of_the_longest_prompt_is_known_to_preflight(client: Client):
    version = a_version(report={"mapped": {"statistics": {"lengths": {"prompt_chars": {"longest": 1234}}}}})
    form = LaunchForm(sent(dataset_version=version.pk), schema=SCHEMA)
    data = checked(form).draft.data
    assert data is not None
    assert data.longest_prompt_chars == 1234
