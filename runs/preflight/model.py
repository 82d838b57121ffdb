"""The model: named, found on the host, able to do what the data asks of it."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, note, stop, warn


def check(draft: Draft) -> Iterator[Finding]:
    if not draft.model:
        yield stop("model", "No model is chosen.", "Give a folder on the host, or a hub id such as Qwen/Qwen3-0.6B.")
        return
    answer = draft.inspection
    if answer is None:
        if any(host.fresh for host in draft.hosts):
            yield note("model", "No host has answered about this model yet.", "The launch doesn't wait for it.")
        return
    if not answer.get("ok"):
        yield stop("model", answer.get("error") or "The host can't use this model.", "Choose another model.")
        return
    if draft.data and draft.data.ready and draft.data.chat and answer.get("chat_template") is False:
        yield stop(
            "model",
            f"{draft.data.name} has chat messages, and the model's tokenizer has no chat template to render them.",
            "Use an instruction-tuned model, or map the dataset's prompt as plain text.",
        )
    if draft.data and draft.data.ready and not draft.data.chat and answer.get("chat_template"):
        yield warn(
            "dataset_version",
            "The prompts are plain text, and the model was made for chat: its template is not applied.",
            "Map the dataset as chat if the model should see its usual form.",
        )
    if answer.get("custom_code"):
        yield warn(
            "model",
            "The model brings code of its own, which is not run here: loading works only if Transformers knows it too.",
            "Use a model whose architecture Transformers has.",
        )
    if answer.get("hub"):
        yield note("model", "The host has no copy of this model and downloads it when the run starts.")
