"""GRPOConfig fields that the trainer doesn't have, and those the control plane sets itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop

RESERVED = frozenset(
    {
        "output_dir",
        "logging_steps",
        "logging_strategy",
        "logging_first_step",
        "logging_nan_inf_filter",
        "report_to",
        "run_name",
        "project",
        "disable_tqdm",
        "trackio_space_id",
        "trackio_bucket_id",
        "trackio_static_space_id",
        "use_cpu",
        "local_rank",
        "do_train",
        "do_eval",
        "do_predict",
        "resume_from_checkpoint",
        "eval_strategy",
        "bf16",
        "fp16",
        "push_to_hub",
        "hub_token",
        "hub_private_repo",
        "hub_model_id",
        "hub_strategy",
        "hub_always_push",
        "hub_revision",
        "log_completions",
        "log_completions_hub_repo",
        "log_multimodal",
        "log_unique_prompts",
        "num_completions_to_print",
        "reward_weights",
        "auto_find_batch_size",
        "trust_remote_code",
        "model_init_kwargs",
        "deepspeed",
        "fsdp",
        "fsdp_config",
        "parallelism_config",
        "accelerator_config",
        "ddp_backend",
        "use_vllm",
        "vllm_mode",
        "vllm_enable_sleep_mode",
        "vllm_server_base_url",
        "vllm_server_host",
        "vllm_server_port",
        "vllm_server_timeout",
        "vllm_group_port",
        "vllm_gpu_memory_utilization",
        "vllm_tensor_parallel_size",
        "use_transformers_paged",
        "vllm_importance_sampling_cap",
        "enable_jit_checkpoint",
        "save_strategy",
        "load_best_model_at_end",
        "remove_unused_columns",
        "restore_callback_states_from_checkpoint",
        "ignore_data_skip",
        "log_on_each_node",
        "debug",
        "label_names",
        "batch_eval_metrics",
        "include_for_metrics",
    }
)
"""Set by the control plane or its trainer (files, logging, devices, vLLM, credentials), deprecated, or dangerous:
never offered under Advanced, and refused in a copied spec unless the form itself makes them."""

MADE_BY_THE_FORM = frozenset({"bf16", "fp16", "eval_strategy", "save_strategy"})


def check(draft: Draft) -> Iterator[Finding]:
    for name in sorted(set(draft.grpo) & RESERVED - MADE_BY_THE_FORM):
        yield stop(
            name,
            f"{name} is set by the control plane.",
            "Leave it out.",
            Fix(f"Clear {name}", {name: ""}),
        )
    fields = {f["name"] for f in (draft.schema or {}).get("fields", ())}
    if not fields:
        return
    for name in sorted(set(draft.grpo) - fields - RESERVED):
        close = difflib.get_close_matches(name, fields, n=1)
        yield stop(
            name,
            f"The trainer's GRPOConfig (TRL {(draft.schema or {}).get('trl', '?')}) has no field {name}.",
            f"Did you mean {close[0]}?" if close else "Leave it out.",
        )
