"""Profiles out as YAML and in again: nothing lost, nothing stored before it is saved, and no document that bites."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_pages import profile_yaml
from controlplane.catalogue.hardware.profiles import profile_of
from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES, by_slug
from controlplane.platform import safe_yaml
from controlplane.platform.safe_yaml import YamlRefused
from tests.controlplane.people import operator
from workers.contract.run.hardware import BATCH_FIELDS, HardwareSpec, ServerSpec

pytestmark = pytest.mark.django_db

IMPORT = "/hardware/profiles/import/"
SLUGS = [profile.slug for profile in SHIPPED_PROFILES]


def imported(text: str | bytes, status: int = 422) -> Any:
    """The answer to a pasted document (text) or a file (bytes)."""
    before = set(HardwareProfile.objects.values_list("name", flat=True))
    sent = {"text": text} if isinstance(text, str) else {"file": SimpleUploadedFile("p.yaml", text)}
    answer = operator().post(IMPORT, sent)
    assert answer.status_code == status, answer.content
    assert set(HardwareProfile.objects.values_list("name", flat=True)) == before
    return answer


def beside(text: str, field: str | None) -> str:
    """What the form says beside a field, or above all, after this document."""
    errors = imported(text).context["form"].errors
    return " ".join(errors.get(field or "__all__", []))


def test_a_shipped_profile_survives_the_way_out_and_in(subtests):
    for slug in SLUGS:
        with subtests.test(slug=slug):
            row = HardwareProfile.objects.get(name=by_slug(slug).name)
            answer = operator().get(f"/hardware/profiles/{row.pk}/profile.yaml")
            assert answer["Content-Disposition"].startswith("attachment; filename=")
            row.delete()
            form = imported(answer.content, 200).context["form"]
            assert form.result.columns() == by_slug(slug).columns()


def test_what_was_imported_is_saved_by_its_form():
    row = HardwareProfile.objects.get(name=by_slug("16gb-standard").name)
    text = profile_yaml.export(dataclasses.replace(profile_of(row), name="Copy: of a 16 GB card #1"))
    form = imported(text, 200).context["form"]
    assert operator().post("/hardware/profiles/new/", form.data).status_code == 302
    copy = HardwareProfile.objects.get(name="Copy: of a 16 GB card #1")
    assert (copy.lora, copy.batch) == (row.lora, row.batch)
    assert {**copy.spec, "profile": ""} == {**row.spec, "profile": ""}


def test_the_document_has_every_field_under_its_own_name():
    document = yaml.safe_load(profile_yaml.export(by_slug("dual-gpu")))
    assert set(document) == {"name", "description", "hardware", "lora", "batch"}
    assert set(document["hardware"]) == {f.name for f in dataclasses.fields(HardwareSpec)} - {"profile"}
    assert set(document["hardware"]["server"]) == {f.name for f in dataclasses.fields(ServerSpec)}
    assert tuple(document["batch"]) == BATCH_FIELDS


def test_names_that_yaml_could_take_for_something_else_stay_text(subtests):
    for name in ["yes", "1:30", "1e3", "2020-01-01", "null", "0x1f", "# no", "a: b", "zwölf ≥ 1", "~"]:
        with subtests.test(name=name):
            profile = dataclasses.replace(by_slug("cpu"), name=name)
            text = profile_yaml.export(profile)
            assert profile_yaml.read(text.encode()).values["name"] == name
            assert yaml.safe_load(text)["name"] == name


def test_what_is_not_named_keeps_its_default():
    form = imported("name: short\nhardware: {cpu_slots: 1}", 200).context["form"]
    assert form.result.spec == HardwareSpec("short", cpu_slots=1)


def test_an_attached_server_comes_in_as_one():
    text = "name: far\nhardware:\n  rollout: server\n  trainer_gpus: 1\n  server: {attached: ['http://gpu-box:8000']}\n"
    assert imported(text, 200).context["form"].result.spec.server.attached == ("http://gpu-box:8000",)


def test_a_name_that_is_taken_is_said_beside_it():
    assert "already exists" in beside("name: cpu\nhardware: {cpu_slots: 1}", "name")


WRONG = [
    ("gears: 5", None, "gears"),
    ("hardware: {gears: 5}", None, "hardware.gears"),
    ("hardware: {server: {wings: 2}}", None, "hardware.server.wings"),
    ("lora: {rank: 2}", None, "lora.rank"),
    ("batch: {size: 2}", None, "batch.size"),
    ("hardware: {profile: x}", None, "hardware.profile"),
    ("hardware: [1]", None, "hardware: expected a mapping"),
    ("lora: 16", None, "lora: expected a mapping"),
    ("batch: none", None, "batch: expected a mapping"),
    ("hardware: {server: here}", None, "hardware.server: expected a mapping"),
    ("hardware: {trainer_gpus: two}", "trainer_gpus", "hardware.trainer_gpus: expected a whole number, got 'two'"),
    ("hardware: {trainer_gpus: true}", "trainer_gpus", "hardware.trainer_gpus: expected a whole number, got True"),
    ("hardware: {trainer_gpus: 1.5}", "trainer_gpus", "hardware.trainer_gpus"),
    ("hardware: {trainer_gpus: {a: 1}}", "trainer_gpus", "hardware.trainer_gpus"),
    ("hardware: {trainer_gpus: 99999999999999999999}", "trainer_gpus", "hardware.trainer_gpus"),
    ("hardware: {trainer_gpus: -1}", "trainer_gpus", ""),
    ("hardware: {rollout: cloud}", "rollout", "hardware.rollout: 'cloud' is not one of"),
    ("hardware: {rollout: attached}", "rollout", "hardware.rollout"),
    ("hardware: {liger_kernels: off}", "liger_kernels", "hardware.liger_kernels: expected true or false, got 'off'"),
    ("hardware: {gradient_checkpointing: 1}", "gradient_checkpointing", "hardware.gradient_checkpointing"),
    ("hardware: {memory_cap_gib: lots}", "memory_cap_gib", "hardware.memory_cap_gib: expected a number"),
    ("hardware: {trainer_gpu_ids: 0}", "trainer_gpu_ids", "hardware.trainer_gpu_ids: expected a list"),
    ("hardware: {trainer_gpu_ids: [a]}", "trainer_gpu_ids", "hardware.trainer_gpu_ids[0]"),
    ("hardware: {environment: [A]}", "environment", "hardware.environment: expected a mapping"),
    ("hardware: {environment: {NCCL_P2P_DISABLE: 1}}", "environment", "hardware.environment.NCCL_P2P_DISABLE"),
    ("hardware: {environment: {LD_PRELOAD: x}}", "environment", "LD_PRELOAD"),
    ("hardware: {colocate_sleep: maybe}", "colocate_sleep", "hardware.colocate_sleep"),
    ("hardware: {server: {count: null}}", "server_count", "hardware.server.count: expected a whole number"),
    ("hardware: {server: {attached: http://a:1}}", "server_attached", "hardware.server.attached: expected a list"),
    ("hardware: {server: {dtype: 8}}", "server_dtype", "hardware.server.dtype: expected a string"),
    ("lora: {target_modules: [1]}", "lora_targets", "lora.target_modules[0]: expected a string"),
    ("lora: {r: big}", "lora_r", "lora.r: expected a whole number"),
    ("batch: {num_generations: 1}", "num_generations", "at least 2"),
    ("batch: {num_generations: yes}", "num_generations", "batch.num_generations: expected a whole number"),
    ("name: [1]", "name", "name: expected a string"),
    ("description: 5", "description", "description: expected a string"),
]


def test_a_wrong_value_is_named_with_its_path_beside_its_field(subtests):
    for text, field, cause in WRONG:
        with subtests.test(field=field):
            named = text if text.startswith(("name", "description")) else f"name: mine\n{text}"
            assert cause in beside(named, field)


def test_every_wrong_value_is_named_at_once():
    errors = (
        imported("name: x\nhardware: {trainer_gpus: a, cpu_slots: b, threads: c}\nlora: {r: d}").context["form"].errors
    )
    assert {"trainer_gpus", "cpu_slots", "threads", "lora_r"} <= set(errors)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)
ATTACKS = {
    "an alias bomb": BOMB,
    "an anchor": "name: &a x",
    "an alias": "name: *a",
    "a merge key": "hardware: &h {cpu_slots: 1}\nbatch:\n  <<: *h",
    "a Python object": "name: !!python/object/apply:os.system ['true']",
    "a Python name": "name: !!python/name:os.system",
    "a tag of its own": "name: !x y",
    "a standard tag": "name: !!str y",
    "a binary": "name: !!binary aGk=",
    "deep lists": "name: " + "[" * 5000,
    "deep mappings": "name: " + "{a: " * 5000,
    "deep blocks": "".join(" " * level + "a:\n" for level in range(300)),
    "a key twice": "name: a\nname: b",
    "a key twice inside": "hardware:\n  threads: 1\n  threads: 2",
    "two documents": "name: a\n---\nname: b",
    "a number as a key": "1: a\nname: b",
    "a list as a key": "? [a]\n: b\nname: c",
    "nothing": "",
    "blanks": "   \n",
    "a comment": "# hello",
    "a list": "[1, 2]",
    "a word": "hello",
    "something else": "kind: Deployment\nspec: {}",
    "broken quotes": 'name: "a',
    "a tab": "name:\n\t- a",
    "a zero byte": "name: a\0b",
    "a control character": "name: a\x1bb",
    "a directive": "%TAG ! tag:x,2000:\n---\nname: !y z",
    "half a surrogate": "name: \ud800",
    "half a surrogate, escaped": r'name: "\ud800"',
    "half a surrogate as a key": r'"\udfff": 1',
    "many keys": "".join(f"k{n}: {{}}\n" for n in range(20_000)),
}


def test_a_document_that_is_none_is_refused_with_a_sentence(subtests):
    for text in ATTACKS.values():
        with subtests.test(text=text):
            with pytest.raises(YamlRefused) as refused:
                profile_yaml.read(text.encode(errors="surrogatepass"))
            assert 10 < len(str(refused.value)) < 300
            if "\ud800" not in text:
                assert imported(text).context["problem"]


def test_a_document_of_ten_megabytes_is_refused():
    assert "64\N{NO-BREAK SPACE}KiB" in imported(b"name: " + b"x" * 10_000_000).context["problem"]
    assert "64\N{NO-BREAK SPACE}KiB" in imported("name: " + "x" * 1_000_000).context["problem"]


def test_bytes_that_are_no_text_are_refused():
    assert "UTF-8" in imported(b"\xff\xfe\x00\x01").context["problem"]


def test_an_import_of_nothing_is_refused():
    assert "paste" in operator().post(IMPORT, {}).context["problem"]


def test_the_pasted_text_stays_on_the_page_of_a_refusal():
    assert "name: *a" in imported("name: *a").content.decode()


def test_the_largest_document_that_is_taken_is_read_in_a_moment():
    worst = b"name: " + b"[" * 6 + b"1," * ((safe_yaml.MAX_BYTES - 30) // 2) + b"]" * 6
    assert "name: expected a string" in " ".join(cause for _, cause in profile_yaml.read(worst).wrong)
