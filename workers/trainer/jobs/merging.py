"""Merge of a LoRA adapter into its base model, with a check that the merged model generates the same tokens.

The merge is computed in float32 and saved in the base's dtype, or in float32 if the job's settings say so. Then both
models run in float32: the base with its adapter, and the merged model as loaded from its files, including the rounding
to its dtype. They are *equal* if both generate the same greedy tokens for each of 20 prompts, rendered as in training:
64 tokens, or fewer if both end earlier. Computing in float32 excludes the noise of 16-bit arithmetic, so a difference
must be in the weights. Rounding to 16 bits may flip a close choice, and can lose updates that are smaller than a
weight's last digit: such a merge is refused, and float32 is the alternative.
"""

import gc
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError, safe_open
from transformers import AutoTokenizer, GenerationConfig
from transformers.utils import cached_file
from trl.trainer.utils import create_model_from_path

from workers.contract.run.jobs import FLOAT32, MergeSettings
from workers.contract.wire.hub_files import INDEX, ONLY_PICKLES, PICKLES
from workers.contract.wire.model_archive import WEIGHTS, model_files
from workers.contract.wire.names import EventKind, FileName
from workers.trainer.configuration.spec import SpecError, versions
from workers.trainer.jobs import ADAPTER_CONFIG, ModelJob, flush_to_disk
from workers.trainer.jobs.generation import up_to_end

PROMPTS, TOKENS, AT_ONCE = 20, 64, 5
ADAPTER = "adapter_model.safetensors"
ORIGIN = "merged_from.json"
"""Name of the file in the merged model's folder with its origin and the comparison."""
MAX_SHARD_SIZE = "5GB"


def run(job: ModelJob, settings: MergeSettings) -> None:
    """Merge, compare and keep the model. If there is nothing to merge or the merged model differs, leave no files and
    raise SpecError."""
    base = _base_folder(job)
    _check_adapter(job)
    _check_room(job, base, settings)
    with job.unfinished("the merged model") as folder:
        _merge(job, settings, base, folder)


def _merge(job: ModelJob, settings: MergeSettings, base: Path, unfinished: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(job.checkpoint, padding_side="left")
    prompts = _prompts(job, tokenizer)
    job.stage("loading the base and its adapter")
    model, dtypes = _base(job)
    model = _with_adapter(job, model)
    job.begin(2 * len(prompts))
    expected = _completions(model, tokenizer, prompts, job.progress)

    job.stage("merging")
    merged = model.merge_and_unload()
    if settings.dtype != FLOAT32:
        for name, parameter in merged.named_parameters():
            parameter.data = parameter.data.to(dtypes[name])
    bad_tensor = next((name for name, weights in merged.named_parameters() if not torch.isfinite(weights).all()), None)
    if bad_tensor:
        raise SpecError(f"The merge is refused: {bad_tensor} of the merged model has values that are not finite.")
    dtype = str(merged.dtype).removeprefix("torch.")
    job.stage("saving")
    unfinished.mkdir(parents=True)
    merged.save_pretrained(unfinished, max_shard_size=MAX_SHARD_SIZE)
    tokenizer.save_pretrained(unfinished)
    _copy_missing(unfinished, job.checkpoint, base)
    del model, merged
    gc.collect()  # PEFT's wrappers refer to each other, and there may be no room for both models

    job.stage("comparing the merged model with base and adapter")
    reloaded = create_model_from_path(str(unfinished), dtype="float32", device_map=_device(job), use_safetensors=True)
    actual = _completions(reloaded, tokenizer, prompts, lambda count: job.progress(len(prompts) + count))
    comparison = compare(expected, actual)
    facts = {**comparison.facts, "dtype": dtype}
    if comparison.equal_prompts < comparison.prompts:
        sentence = f"The merge is refused: {comparison.sentence(dtype)}"
        job.result(sentence, **facts)
        raise SpecError(sentence)
    _move_to_checkpoint(job, unfinished, facts)
    job.result(f"Merged in {dtype}: {comparison.sentence(dtype)}", **facts)


@dataclass(frozen=True)
class Comparison:
    """Comparison of the greedy tokens from base and adapter with those from the merged model."""

    equal_prompts: int
    prompts: int
    tokens: int
    first_difference: tuple[int, int] | None
    """First difference as (prompt, token), both counted from 1."""

    @property
    def facts(self) -> dict[str, Any]:
        first = dict(zip(("prompt", "token"), self.first_difference, strict=True)) if self.first_difference else None
        counts = {"equal_tokens": self.equal_prompts, "of": self.prompts, "tokens": self.tokens}
        return {**counts, "first_difference": first}

    def sentence(self, dtype: str) -> str:
        if self.first_difference is None:
            return (
                f"it generates the same greedy tokens as base and adapter for {self.prompts} of {self.prompts} prompts."
            )
        prompt, token = self.first_difference
        is_rounded = dtype != FLOAT32
        return (
            f"the merged model generates the same greedy tokens as base and adapter for only {self.equal_prompts} of "
            f"{self.prompts} prompts; the first difference is token {token} of prompt {prompt}. "
            + (
                f"The cause is rounding to {dtype}: merge in float32, or serve the adapter on its base."
                if is_rounded
                else "Serve the adapter on its base."
            )
        )


def compare(expected: Sequence[Sequence[int]], actual: Sequence[Sequence[int]]) -> Comparison:
    """Compare each prompt's tokens from base and adapter with those from the merged model."""
    differences = [
        next((number for number, (a, b) in enumerate(zip_longest(*tokens), 1) if a != b), None)
        for tokens in zip(expected, actual, strict=True)
    ]
    differing = [(prompt, token) for prompt, token in enumerate(differences, 1) if token is not None]
    total = sum(map(len, expected))
    return Comparison(len(differences) - len(differing), len(differences), total, differing[0] if differing else None)


# --- before anything slow ----------------------------------------------------------------------------------------


def _base_folder(job: ModelJob) -> Path:
    """Return the base's folder, which may be in the hub's cache, after checking its files. Raises SpecError if it isn't
    on this host or can't be merged."""
    revision = job.spec.run.model.revision
    try:
        config = cached_file(job.base, "config.json", revision=revision, local_files_only=True)
    except OSError as error:
        raise SpecError(f"The base model {job.base} is not on this host: {error}") from error
    folder = Path(config).parent
    if json.loads(Path(config).read_bytes()).get("quantization_config"):
        raise SpecError(
            f"The base model {job.base} is stored quantized, so an adapter can't be merged into its weights: "
            "serve it as an adapter on its base, or train on the model in full precision."
        )
    if not any(folder.glob("*.safetensors")):
        pickled = any(path for pattern in PICKLES for path in folder.glob(pattern))
        raise SpecError(f"The base model {job.base} can't be merged. " + (ONLY_PICKLES if pickled else "No weights."))
    if (folder / INDEX).is_file():
        names = set(json.loads((folder / INDEX).read_bytes()).get("weight_map", {}).values())
        if missing := sorted(name for name in names if not (folder / name).is_file()):
            raise SpecError(f"The base model {job.base} is incomplete: {missing[0]} is missing.")
    return folder


def _check_adapter(job: ModelJob) -> None:
    if not job.is_adapter or not (job.checkpoint / ADAPTER).is_file():
        raise SpecError(f"{job.checkpoint.name} contains no LoRA adapter ({ADAPTER}), so there is nothing to merge.")
    base_name = json.loads((job.checkpoint / ADAPTER_CONFIG).read_bytes()).get("base_model_name_or_path")
    if isinstance(base_name, str) and Path(base_name).name != Path(job.base).name:
        raise SpecError(f"The adapter belongs to another base: {base_name}, not {job.base}.")
    with safe_open(job.checkpoint / ADAPTER, framework="pt") as tensors:
        bad_tensor = next((name for name in tensors.keys() if not torch.isfinite(tensors.get_tensor(name)).all()), None)  # noqa: SIM118
    if bad_tensor:
        raise SpecError(f"The merge is refused: {bad_tensor} of the adapter has values that are not finite.")


def _check_room(job: ModelJob, base: Path, settings: MergeSettings) -> None:
    stored_bytes = sum(path.stat().st_size for path in base.glob("*.safetensors"))
    size = stored_bytes * (2 if settings.dtype == FLOAT32 and _dtype_in(base) != FLOAT32 else 1)
    job.check_room(size, "The merged model")
    memory, available = stored_bytes * (1 if _dtype_in(base) == FLOAT32 else 2), _available_memory()
    if "cpu" in _device(job).values() and available < memory:
        raise SpecError(
            f"A merge is computed in float32 and needs {memory / 1e9:.1f} GB of memory, but the host has only "
            f"{available / 1e9:.1f} GB free. Wait until other runs have ended, or serve the adapter on its base."
        )


def _available_memory() -> float:
    """Return the available memory in bytes; infinity if the system doesn't report it."""
    with suppress(OSError, ValueError, StopIteration, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return float("inf")


def _dtype_in(base: Path) -> str:
    config = json.loads((base / "config.json").read_bytes())
    return str(config.get("dtype") or config.get("torch_dtype") or FLOAT32)


# --- the models --------------------------------------------------------------------------------------------------


def _device(job: ModelJob) -> dict[str, str]:
    return {"": "cuda:0" if job.spec.run.hardware.trainer_gpus else "cpu"}


def _base(job: ModelJob) -> tuple[Any, dict[str, torch.dtype]]:
    """Load the base in float32; return it and the stored dtype of each tensor."""
    model = job.spec.run.model
    try:
        base = create_model_from_path(
            job.base,
            dtype="auto",
            device_map=_device(job),
            use_safetensors=True,
            revision=model.revision,
            trust_remote_code=model.trust_remote_code,
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise SpecError(f"The base model {job.base} can't be loaded: {error}") from error
    dtypes = {name: parameter.dtype for name, parameter in base.named_parameters()}
    return base.float(), dtypes


def _with_adapter(job: ModelJob, base: Any) -> Any:
    try:
        model = PeftModel.from_pretrained(base, str(job.checkpoint))
    except (RuntimeError, ValueError) as error:  # torch raises it for tensors of another shape
        raise SpecError(f"The adapter doesn't fit {job.base}; was it trained on another base? {error}") from error
    return model.eval()


def _copy_missing(folder: Path, *sources: Path) -> None:
    """Copy files that neither model nor tokenizer has saved, such as a processor's settings or a model's code."""
    for path in (path for source in sources for path in model_files(source)):
        is_weights = WEIGHTS in path.name or path.name == ADAPTER_CONFIG
        if not is_weights and not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)


# --- completions -----------------------------------------------------------------------------------------------


def _prompts(job: ModelJob, tokenizer: Any) -> list[list[int]]:
    """Tokenize the prompts of the first rows, rendered as in training; validation rows come first."""
    rows = job.rows
    assert rows is not None  # noqa: S101  # the kind reads rows
    train = set(rows.train)
    row_ids = [*(row for row in rows.by_id if row not in train), *rows.train][:PROMPTS]
    prompts = [rows.by_id[row]["prompt"] for row in row_ids]
    if not rows.by_id.chat:
        return [tokenizer(text=prompt)["input_ids"] for prompt in prompts]
    options = job.spec.run.grpo.get("chat_template_kwargs") or {}
    return [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True, **options)[
            "input_ids"
        ]
        for prompt in prompts
    ]


def _completions(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], progress: Callable[[int], None]
) -> list[list[int]]:
    """Generate and return the greedy tokens for each prompt, up to an end token."""
    own_config = model.generation_config
    ends = own_config.eos_token_id if own_config.eos_token_id is not None else tokenizer.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    # Temporarily replaces the model's own config: `generate` would merge one passed to it with the model's settings.
    model.generation_config = GenerationConfig(
        max_new_tokens=TOKENS, do_sample=False, eos_token_id=ends, pad_token_id=pad
    )
    completions: list[list[int]] = []
    try:
        for start in range(0, len(prompts), AT_ONCE):
            batch = list(prompts[start : start + AT_ONCE])
            inputs = tokenizer.pad({"input_ids": batch}, return_tensors="pt").to(model.device)
            with torch.inference_mode():
                output = model.generate(**inputs)
            completions += [up_to_end(row, ends) for row in output[:, inputs["input_ids"].shape[1] :].tolist()]
            progress(len(completions))
    finally:
        model.generation_config = own_config
    return completions


# --- the end -----------------------------------------------------------------------------------------------------


def _move_to_checkpoint(job: ModelJob, unfinished: Path, facts: dict[str, Any]) -> None:
    """Move the merged model to its final folder atomically, and report it as a checkpoint."""
    run, step = job.spec.run, int(job.checkpoint.name.rpartition("-")[2])
    adapter = {"base": run.model.path, "revision": run.model.revision, "adapter": run.start_from, "step": step}
    packages = versions()
    origin = {**adapter, "merged_by": run.run_id, **facts, "versions": packages}
    (unfinished / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
    name = f"{FileName.CHECKPOINTS}/checkpoint-{step}"
    size = sum(path.stat().st_size for path in unfinished.iterdir())
    flush_to_disk(unfinished)
    os.rename(unfinished, job.folder / name)
    data = {"step": step, "path": name, "bytes": size, "kept": [step], "versions": packages}
    job.metrics.event(EventKind.CHECKPOINT, data, step=step)
