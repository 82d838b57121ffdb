"""The model: named, found on the host or on the hub, able to do what the data asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.templatetags.figures import download_size
from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, note, stop, warn

ROOM_LEFT = 64 << 20
"""Bytes that a download leaves free."""


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
        what = "Then ask the host again below the model." if answer.get("gated") else "Choose another model."
        yield stop("model", answer.get("error") or "The host can't use this model.", what)
        return
    yield from _against_the_data(draft, answer)
    if answer.get("custom_code"):
        yield warn(
            "model",
            "The model brings code of its own, which is not run here: loading works only if Transformers knows it too.",
            "Use a model whose architecture Transformers has.",
        )
    if answer.get("hub"):
        yield _of_the_download(draft, answer)


def _against_the_data(draft: Draft, answer: dict[str, Any]) -> Iterator[Finding]:
    if not (draft.data and draft.data.ready):
        return
    if draft.data.chat and answer.get("chat_template") is False:
        yield stop(
            "model",
            f"{draft.data.name} has chat messages, and the model's tokenizer has no chat template to render them.",
            "Use an instruction-tuned model, or map the dataset's prompt as plain text.",
        )
    if not draft.data.chat and answer.get("chat_template"):
        yield warn(
            "dataset_version",
            "The prompts are plain text, and the model was made for chat: its template is not applied.",
            "Map the dataset as chat if the model should see its usual form.",
        )


def _of_the_download(draft: Draft, answer: dict[str, Any]) -> Finding:
    host = str(answer.get("host") or "the host")
    if answer.get("unreachable"):
        why = f" ({answer['why']})" if answer.get("why") else ""
        return warn(
            "model",
            f"{host} has no whole copy of this model and could not ask the hub for it{why}.",
            "The run fails if it still can't when it starts: check the host's connection, or give a folder there.",
        )
    size, free = draft.told("bytes"), draft.told("free_bytes")
    if not size:
        return note("model", "The host has no copy of this model and downloads it when the run starts.")
    words = f"{download_size(size)} to download, {download_size(free)} free on {host}."
    if size + ROOM_LEFT <= free:
        return note("model", words, "The run starts with the download.")
    elsewhere = not draft.host_chosen and sum(one.usable for one in draft.hosts) > 1
    return (warn if elsewhere else stop)(
        "model",
        f"The model doesn't fit on {host}'s disk: {words}",
        "Free some disk in its Hugging Face cache, or choose a smaller model.",
    )
