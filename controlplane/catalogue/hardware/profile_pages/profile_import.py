"""Import of profiles: fills the form from our own YAML, or from the hardware settings of another tool's config."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from controlplane.catalogue.exchange import documents, trl
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading, UnreadableDocument
from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.profile_fields import ATTACHED
from controlplane.catalogue.hardware.profile_pages import profile_yaml
from controlplane.catalogue.hardware.profile_pages.forms import ProfileForm, values_of
from controlplane.catalogue.hardware.profile_pages.profile_yaml import ImportedProfile
from controlplane.catalogue.hardware.profiles import Profile
from controlplane.platform import safe_yaml
from controlplane.platform.http import upload
from controlplane.platform.safe_yaml import YamlRefused
from workers.contract.run.hardware import BATCH_FIELDS, HardwareSpec, Rollout


@dataclass(frozen=True)
class ProfileImport:
    form: ProfileForm
    reading: Reading | None = None
    """Settings read from another tool's config; None for our own YAML, whose errors are shown at its fields."""


def document(request: HttpRequest) -> bytes:
    """Read the uploaded or pasted document. Raises YamlRefused if there is none or it can't be read."""
    file = request.FILES.get("file")
    if file is None or upload.problem(request):
        return safe_yaml.document(request, documents.MAX_BYTES)
    try:
        return documents.content_of(file)
    except UnreadableDocument as error:
        raise YamlRefused(str(error)) from error


def read(content: bytes) -> ProfileImport:
    """Parse a document, and return the import form filled in from it. Raises YamlRefused if the document can't be read
    or its format isn't recognised."""
    try:
        if not content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
            return ProfileImport(profile_yaml.read(content).form())
    except YamlRefused as refused:
        try:
            return _from_other(content)
        except UnreadableDocument:
            raise refused from None
    try:
        return _from_other(content)
    except UnreadableDocument as error:
        raise YamlRefused(str(error)) from error


def _from_other(content: bytes) -> ProfileImport:
    schema = Host.objects.exclude(trainer_schema=None).values_list("trainer_schema", flat=True).first()
    reading = documents.read(content, trl.fields_of(schema))
    if reading.kind == DocumentKind.PROFILE:
        return ProfileImport(profile_yaml.read(content).form())
    draft = ImportedProfile(values_of(Profile("", "", HardwareSpec(""))))
    _assume_one_gpu(reading)
    for name, value in reading.below("hardware").items():
        draft.values["name" if name == "profile" else name.replace("server.", "server_")] = value
    draft.values |= {name: value for name, value in _run_values(reading).items() if name in draft.values}
    draft.values |= {name: value for name, value in reading.below("grpo").items() if name in BATCH_FIELDS}
    if draft.values["rollout"] == Rollout.SERVER and draft.values["server_attached"]:
        draft.values["rollout"] = ATTACHED
    for note in reading.notes:
        if note.verdict == KeyVerdict.WRONG and note.path.startswith("hardware."):
            name = note.path.removeprefix("hardware.").replace("server.", "server_")
            draft.refuse(name, note.raw, f"{note.key}: {note.text}")
    form = draft.form()
    for name in draft.values:
        path = f"hardware.{name}".replace("hardware.server_", "hardware.server.")
        if name in form.fields and (key := reading.sources.get(path) or reading.sources.get(f"grpo.{name}")):
            form.fields[name].imported_from = key  # type: ignore[attr-defined]  # for components/imported_mark.html
    return ProfileImport(form, reading)


def _assume_one_gpu(reading: Reading) -> None:
    if not reading.complete and "hardware.trainer_gpus" not in reading.values:
        reading.values["hardware.trainer_gpus"] = 1
        message = "The document doesn't say how many GPUs to train on; one is assumed."
        reading.note(KeyVerdict.ASSUMED, "", message, path="hardware.trainer_gpus")


def _run_values(reading: Reading) -> dict[str, Any]:
    """Return a run's LoRA settings, and note its other settings, which don't belong in a profile."""
    lora_values: dict[str, Any] = {"use_lora": bool(reading.values.get("lora"))}
    lora_values |= {f"lora_{name}": value for name, value in reading.below("lora").items()}
    if "lora_target_modules" in lora_values:
        lora_values["lora_targets"] = lora_values.pop("lora_target_modules")
    batch_paths = {f"grpo.{name}" for name in BATCH_FIELDS}
    run_keys = [
        reading.sources.get(path, path)
        for path in reading.values
        if not path.startswith(("hardware.", "lora", "_")) and path not in batch_paths
    ]
    if run_keys:
        message = "These settings belong to a run, not to its hardware. To use them, import the document under New run."
        reading.note(KeyVerdict.LEFT_OUT, ", ".join(run_keys[:12]), message)
    return lora_values
