"""The bare TRL script that `bench overhead` measures the product against: FOLDER SETTINGS.json.

Nothing of ours but the reward library, so that both sides compute the same rewards. SETTINGS: model, rewards, grpo.
Writes FOLDER/bare.jsonl, a line for each log call.
"""

import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)  # not this folder, whose datasets.py has the name of a library
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")

import torch  # noqa: E402
from datasets import load_dataset  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from workers.rewards.library import LIBRARY  # noqa: E402
from workers.rewards.scoring import score  # noqa: E402

folder, settings = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
torch.set_num_threads(1)


def reward(spec):
    def scores(completions, answer, **_):
        rows = [{"answer": one} for one in answer]
        return score(LIBRARY[spec["function"]], completions, rows, spec["params"]).values

    scores.__name__ = spec["name"]
    return scores


class Lines(TrainerCallback):
    def __init__(self):
        self.file = (folder / "bare.jsonl").open("w")

    def on_log(self, args, state, control, logs=None, **_):
        print(json.dumps({"t": time.time(), "step": state.global_step, "data": logs}), file=self.file, flush=True)


arguments = GRPOConfig(
    output_dir=str(folder / "checkpoints"),
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    dataloader_pin_memory=False,
    logging_steps=1,
    report_to=[],
    disable_tqdm=True,
    reward_weights=[one["weight"] for one in settings["rewards"]],
    **settings["grpo"],
)
trainer = GRPOTrainer(
    model=settings["model"],
    reward_funcs=[reward(one) for one in settings["rewards"]],
    args=arguments,
    train_dataset=load_dataset("json", data_files=settings["dataset"], split="train", cache_dir=str(folder / "cache")),
    callbacks=[Lines()],
)
trainer.train()
