"""Bare vLLM with an evaluation's prompts: FOLDER is the evaluation's attempt. Prints its completions per second."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from workers.trainer import data
from workers.trainer.configuration import spec


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rehearsal", action="store_true", help="transformers, on the CPU")
    options = parser.parse_args()
    folder = options.folder

    from transformers import AutoTokenizer

    attempt = spec.read(folder)
    run, rows = attempt.run, data.read(folder, attempt)
    tokenizer = AutoTokenizer.from_pretrained(run.model.path)
    prompts = [_ids(tokenizer, rows.by_id[row]["prompt"]) for row in rows.evaluation]
    group, tokens = int(run.grpo["num_generations_eval"]), int(run.grpo["max_completion_length"])
    generate = _transformers(run.model.path, tokens) if options.rehearsal else _vllm(run, tokens)
    begun = time.monotonic()
    count = generate(prompts, group)
    print(f"completions per second: {count / (time.monotonic() - begun):.3f}", flush=True)
    return 0


def _ids(tokenizer: Any, prompt: Any) -> list[int]:
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    return list(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"])


def _vllm(run: Any, tokens: int) -> Any:
    from vllm import LLM, SamplingParams

    hardware = run.hardware
    engine = LLM(
        run.model.path,
        dtype="bfloat16",
        gpu_memory_utilization=hardware.colocate_memory_utilization,
        max_model_len=hardware.colocate_max_model_len,
    )

    def generate(prompts: list[list[int]], group: int) -> int:
        sampling = SamplingParams(n=group, temperature=float(run.grpo.get("temperature", 1.0)), max_tokens=tokens)
        answers = engine.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        return sum(len(answer.outputs) for answer in answers)

    return generate


def _transformers(path: str, tokens: int) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(path)

    def generate(prompts: list[list[int]], group: int) -> int:
        for ids in prompts:
            model.generate(torch.tensor([ids] * group), do_sample=True, max_new_tokens=tokens)
        return len(prompts) * group

    return generate


if __name__ == "__main__":
    sys.exit(main())
