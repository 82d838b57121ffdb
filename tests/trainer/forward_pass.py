"""Run by the trainer's interpreter: each prompt of stdin scored by a plain forward pass; JSON in and out."""

from __future__ import annotations

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

if __name__ == "__main__":
    logging.disable_progress_bar()
    asked = json.load(sys.stdin)
    model = AutoModelForCausalLM.from_pretrained(asked["model"], dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(asked["model"])
    found = []
    for prompt in asked["prompts"]:
        ids = tokenizer(prompt)["input_ids"]
        with torch.inference_mode():
            logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        own = [logprobs[place, token].item() for place, token in enumerate(ids[1:])]
        found.append({"ids": ids, "logprobs": own, "best": logprobs.max(-1).values.tolist()})
    print(json.dumps(found))
