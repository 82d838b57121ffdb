"""vLLM servers that somebody else runs: what can't be proved of them, and what they must be able to do."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, note, warn
from workers.contract import WeightSync

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")


def check(draft: Draft) -> Iterator[Finding]:
    server = draft.server
    if server is None or not server.attached:
        return
    many = len(server.attached) > 1
    yield warn(
        "profile",
        f"Nothing can be proved of {'servers' if many else 'a server'} that somebody else runs "
        f"({', '.join(server.attached)}): neither that {'they serve' if many else 'it serves'} this model unchanged "
        "and to this run alone, nor that the GPU memory there is free at the end. The receipt covers the trainer only.",
        "Use it where you run the server yourself and nobody else trains with it.",
    )
    if server.weight_sync == WeightSync.LORA:
        yield from _adapters(draft, server.attached)
    else:
        yield from _stream(server.attached)


def _adapters(draft: Draft, addresses: tuple[str, ...]) -> Iterator[Finding]:
    rank = draft.lora.r if draft.lora else 16
    yield note(
        "profile",
        "The server must have been started with --enable-lora, --max-lora-rank at least "
        f"{rank}, --max-loras at least 3 and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1.",
    )
    away = [address for address in addresses if not _is_local(address)]
    if away:
        yield warn(
            "profile",
            f"The server at {away[0]} loads each adapter from the run's folder on the host, by its path: it must see "
            "that folder under the same name.",
            "Share the host's folder of runs with the server's machine, or attach a server on the host itself.",
        )


def _stream(addresses: tuple[str, ...]) -> Iterator[Finding]:
    yield warn(
        "profile",
        "NCCL weight updates take a server started with VLLM_SERVER_DEV_MODE=1 and "
        '--weight-transfer-config \'{"backend":"nccl"}\', whose GPUs the trainer reaches over the network or NVLink '
        "and doesn't share; whether it does shows only when the first weights are sent.",
        "LoRA hot-swap needs no such connection.",
    )
    if not all(_is_local(address) for address in addresses):
        yield note(
            "profile",
            "Whoever can connect to a server in development mode can change its weights: keep it on a network of its "
            "own.",
        )


def _is_local(address: str) -> bool:
    try:
        return (urlsplit(address).hostname or "") in LOOPBACK
    except ValueError:
        return False
