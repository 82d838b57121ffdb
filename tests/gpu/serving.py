"""An adapter trained, served with a key by vLLM, and chatted with beside its base: through the product, on one GPU.

    python -m tests.gpu.serving --out DIR               one GPU
    python -m tests.gpu.serving --out DIR --rehearsal   the CPU, where transformers answers

Writes DIR/serving.json.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from typing import Any

import httpx

from tests.benchmarks.sampling import chat_client, first_token
from tests.gpu.installation import Site, busy, tail
from tests.gpu.sampling import end, prove, wait
from tests.gpu.units import Setup

MESSAGES = 5
LIMIT_S = 200.0
CHECKPOINT = """
from runs.engine import checkpoints
from runs.engine.models import Run
result = checkpoints.last(Run.objects.get(pk=run)).event.pk
"""
SERVED = """
from runs.engine.models import Run
result = Run.objects.filter(kind="serve").latest("created_at").pk
"""


def main(argv: list[str] | None = None) -> int:
    return prove(argv, "serving", __doc__, measure)


def measure(site: Site, setup: Setup) -> dict[str, Any]:
    """`load_s`: from the click until the model answers. `chat_first_token_s`: from the POST of a message to the first
    text on the page, the median. `free`: the receipt of the stop."""
    place = "vllm" if setup.gpus else "cpu"
    trained = _trained(site, setup)
    saved = site.stack.django(CHECKPOINT, run=trained)
    begun = time.monotonic()
    address, key = _serve(site, saved, place)
    served = site.stack.django(SERVED)
    loaded = time.monotonic() - begun
    with chat_client(site.stack, saved) as client:
        tokens = [first_token(client, number) for number in range(MESSAGES)]
    answers = _ask(address, key)
    refused = httpx.get(f"{address}/models", headers={"Authorization": "Bearer wrong"}, trust_env=False).status_code
    site.person.stop(served)
    state = wait(site, served)
    return {
        "place": place,
        "load_s": round(loaded, 1),
        "chat_first_token_s": round(statistics.median(tokens), 3),
        "answers": answers,
        "without_the_key": refused,
        "free": bool((state.receipt or {}).get("free")),
        "receipt": state.receipt,
        "busy_afterwards": busy(site.baseline),
        "model": setup.shape,
    }


def _trained(site: Site, setup: Setup) -> str:
    """An adapter of one step, its completions by the trainer itself."""
    profile = site.person.make_profile(site.shipped("cpu"), "adapter", {"trainer_gpus": setup.gpus})
    chosen = {
        **site.launch_values(profile),
        "name": "adapter",
        "model": str(site.models / setup.shape),
        "dataset_version": site.dataset,
        "reward_version": site.rewards,
        "profile": profile,
        "use_lora": True,
        "max_completion_length": 32,
        "max_steps": 1,
    }
    run, _, _ = site.person.launch(chosen)
    end(site, run)
    return run


def _serve(site: Site, saved: int, place: str) -> tuple[str, str]:
    """The address and the key, once the model answers."""
    page = f"/models/{saved}/serve/"
    with site.stack.client("admin") as admin:
        token = re.search(r'"X-CSRFToken": "(\w+)"', admin.get(page).text)
        form = {
            "place": place,
            "address": "127.0.0.1",
            "idle_minutes": 30,
            "csrfmiddlewaretoken": token[1] if token else "",
        }
        shown = admin.post(page, data=form).text
        key = re.search(r"sk-[\w-]+", shown)
        if key is None:
            raise RuntimeError(f"no key is shown: {re.sub('<[^>]+>', ' ', shown)[-1500:]}")
        deadline = time.monotonic() + LIMIT_S
        while ">ready<" not in (shown := admin.get(page).text):
            run = site.stack.django(SERVED)
            if site.state(run).status in ("failed", "stopped") or time.monotonic() > deadline:
                raise RuntimeError(f"{site.state(run)}\n{tail(site.folder(run) / 'logs' / 'vllm.log', 40)}")
            time.sleep(0.2)
        address = re.search(r"http://127\.0\.0\.1:\d+/v1", shown)
        return (address[0] if address else "", key[0])


def _ask(address: str, key: str) -> dict[str, int]:
    """Characters of each model's answer."""
    found = {}
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60) as client:
        for model in ("trained", "base"):
            body = {"model": model, "messages": [{"role": "user", "content": "Add 2 and 3."}], "max_tokens": 24}
            answer = client.post(f"{address}/chat/completions", json=body)
            answer.raise_for_status()
            found[model] = len(answer.json()["choices"][0]["message"]["content"])
    return found


if __name__ == "__main__":
    sys.exit(main())
