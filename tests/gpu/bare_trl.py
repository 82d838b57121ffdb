"""The bare TRL script that the product's steps are measured against: FOLDER SPEC.json DATASET.parquet --steps N.

The arguments are those of the run that SPEC describes; beside them there is TRL's own trainer and nothing of ours but
the reward library and a line for each log call, in FOLDER/bare.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import from_dict
from workers.rewards.library import LIBRARY
from workers.rewards.scoring import score
from workers.trainer.configuration import environment


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("spec", type=Path)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save", action="store_true", help="keep the trained weights as FOLDER/checkpoint-STEPS")
    options = parser.parse_args()
    spec = from_dict(AttemptSpec, json.loads(options.spec.read_bytes()))
    environment.prepare(spec)

    import pyarrow.parquet as pq
    import torch
    from datasets import Dataset
    from trl import GRPOTrainer

    from workers.trainer.configuration import config

    if spec.run.hardware.threads:
        torch.set_num_threads(spec.run.hardware.threads)
    arguments = config.build(spec, options.folder)
    arguments.max_steps, arguments.save_strategy = options.steps, "no"
    rows = pq.read_table(options.dataset)
    chat = json.loads(rows.schema.metadata[b"grpo"])["chat"]
    data = Dataset.from_list(
        [
            {"prompt": row["prompt"] if chat else row["prompt"][0]["content"], "answer": row["answer"]}
            for row in rows.to_pylist()
            if row["split"] == "train"
        ]
    )
    trainer = GRPOTrainer(
        model=spec.run.model.path,
        reward_funcs=[reward(one) for one in spec.run.rewards],
        args=arguments,
        train_dataset=data,
        peft_config=config.lora(spec.run.lora),
        callbacks=[lines(options.folder / "bare.jsonl")],
    )
    trainer.train()
    if options.save:
        trainer.save_model(str(options.folder / f"checkpoint-{options.steps}"))
    return 0


def reward(spec: Any) -> Any:
    def scores(completions: list[Any], answer: list[Any], **_: Any) -> list[float | None]:
        texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
        return score(LIBRARY[spec.function], texts, [{"answer": one} for one in answer], spec.params).values

    scores.__name__ = spec.name
    return scores


def lines(path: Path) -> Any:
    from transformers import TrainerCallback

    class Lines(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            with path.open("a") as file:
                print(json.dumps({"t": time.time(), "step": state.global_step, "values": logs}), file=file)

    return Lines()


if __name__ == "__main__":
    sys.exit(main())
