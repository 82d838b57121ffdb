"""GRPOConfig and LoraConfig, from the user's settings, those implied by the hardware, and those reserved for us."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peft import LoraConfig
from trl import GRPOConfig

from workers.contract.run import overlapping
from workers.contract.run.hardware import Rollout
from workers.contract.run.mixing import most_in_batch, place_of, shortage
from workers.contract.run.spec import AttemptSpec, DataSpec, LoraSpec, RunSpec, outcome_weights, servers_of
from workers.contract.stack.training_rules import value_problems
from workers.contract.wire.names import FileName
from workers.trainer.configuration import hardware
from workers.trainer.configuration.spec import NoStepsError, SpecError

FIXED_SETTINGS: dict[str, Any] = {
    "logging_strategy": "steps",
    "logging_steps": 1,
    "report_to": [],
    "disable_tqdm": True,
    # samples.jsonl has the completions of every step; TRL's own recording writes a Parquet file per step.
    "log_completions": False,
    "push_to_hub": False,
}


def build(spec: AttemptSpec, folder: Path, *, gpu_share: float = 1.0) -> GRPOConfig:
    """Build an attempt's config. `gpu_share`: the share of its GPU that a rank may use. Raises SpecError if the run's
    settings can't be used."""
    run = spec.run
    check(run)
    settings = {
        **overlapping.with_correction(hardware.settings(run), run.ahead),
        **FIXED_SETTINGS,
        **_placement_settings(spec, gpu_share),
        "output_dir": str(folder / FileName.CHECKPOINTS),
        # WatchedTrainer separates them.
        "reward_weights": [*outcome_weights(run.rewards), *(reward.weight for reward in run.eval_rewards)],
        "trust_remote_code": run.model.trust_remote_code,
    }
    if run.keep_best and settings.get("save_total_limit"):
        settings["save_total_limit"] += 1  # transformers includes the best checkpoint in the count
    model_arguments = {
        "revision": run.model.revision,
        "attn_implementation": run.attn_implementation,
        "dtype": hardware.loading_dtype(run, bf16=bool(settings["bf16"]), fp16=bool(settings["fp16"])),
    }
    settings["model_init_kwargs"] = {
        name: value for name, value in model_arguments.items() if value is not None
    } or None
    return construct(GRPOConfig, settings)


def construct(config: type[GRPOConfig], settings: dict[str, Any]) -> GRPOConfig:
    try:
        return config(**settings)
    except (ValueError, TypeError, ImportError) as error:
        raise SpecError(f"The GRPO settings can't be used: {error}") from error


def check(run: RunSpec) -> None:
    """Check what GRPOConfig doesn't check. Raises SpecError if the settings can't be used, or if an evaluation has no
    rows."""
    for problem in value_problems(run.grpo):
        raise SpecError(f"The GRPO settings can't be used: {problem}")
    if run.grpo.get("eval_strategy", "no") != "no" and not run.data.eval_rows:
        raise SpecError("The run is to be evaluated, but none of the dataset's validation rows are chosen for that.")


def check_steps(config: GRPOConfig, rows: Sequence[int], data: DataSpec) -> None:
    """Raise NoStepsError if there are fewer prompts than one generation batch needs, of a mix's sources, too: TRL would
    silently train nothing. `rows`: those of the training set."""
    prompts = len(rows)
    needed_prompts = config.generation_batch_size // config.num_generations
    if prompts < needed_prompts:
        raise NoStepsError(
            f"The dataset has {prompts} prompts to train on, but one generation batch takes {needed_prompts} "
            f"({config.generation_batch_size} completions, {config.num_generations} for each prompt), so there would "
            f"be no step at all. Add prompts, or make the batch smaller."
        )
    counts = Counter(place_of(row)[0] for row in rows)
    needed_by_source = most_in_batch([source.weight for source in data.every_source], needed_prompts)
    for index, (source, needed) in enumerate(zip(data.every_source, needed_by_source, strict=True)):
        if counts[index] < needed:
            raise NoStepsError(str(shortage(source.name, counts[index], needed)))


def lora(spec: LoraSpec | None) -> LoraConfig | None:
    if spec is None:
        return None
    targets: Any = list(spec.target_modules)
    return LoraConfig(
        r=spec.r,
        lora_alpha=spec.alpha,
        lora_dropout=spec.dropout,
        target_modules=targets[0] if targets == ["all-linear"] else targets,
        bias="none",
        task_type="CAUSAL_LM",
    )


def _placement_settings(spec: AttemptSpec, gpu_share: float) -> dict[str, Any]:
    profile = spec.run.hardware
    settings: dict[str, Any] = {
        "use_cpu": profile.trainer_gpus == 0,
        "use_vllm": profile.rollout is not Rollout.TRANSFORMERS,
    }
    if profile.rollout is Rollout.COLOCATE:
        settings |= {
            "vllm_mode": "colocate",
            # A share of the GPU, or under a memory cap, of the smaller GPU that the cap emulates.
            "vllm_gpu_memory_utilization": profile.colocate_memory_utilization * gpu_share,
            "vllm_enable_sleep_mode": profile.colocate_sleep,
            "vllm_tensor_parallel_size": profile.colocate_tensor_parallel,
        }
    if profile.rollout is Rollout.SERVER:
        settings |= {"vllm_mode": "server", "vllm_server_base_url": servers_of(spec)[0].address}
        if profile.server is not None:
            settings["vllm_server_timeout"] = float(profile.server.ready_timeout_s)
        if spec.placement.group_port is not None:
            settings["vllm_group_port"] = spec.placement.group_port
    return settings
