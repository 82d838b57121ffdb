"""vLLM's share of a GPU: weights, activations of its profiling pass, and the KV cache, which gets the rest."""

from dataclasses import dataclass

from workers.contract.memory.shapes import Shape

GIB = 2**30
LARGE_CARD_GIB = 70.0
"""Minimum memory of a GPU on which vLLM's default limits on batched tokens and sequences are larger."""
OUTSIDE_GIB = 1.0
"""GiB that vLLM uses outside torch's allocator: CUDA context, NCCL's buffers and CUDA graphs."""
ASLEEP_GIB = 1.0
"""GiB that a sleeping vLLM keeps: CUDA context and graphs."""


@dataclass(frozen=True)
class Serving:
    """vLLM's memory in GiB on each of its GPUs."""

    share: float
    """GiB that vLLM reserves at startup; with a KV cache of fixed size, only what it needs."""
    weights: float
    activations: float
    cache: float
    """GiB of the KV cache; below 0 if the share is too small even for the weights."""
    tokens: int

    def sequences(self, length: int) -> float:
        """Return how many sequences of `length` tokens the KV cache holds at the same time."""
        return self.tokens / length if length > 0 else 0.0


def serving(
    shape: Shape,
    *,
    share_gib: float,
    card_gib: float,
    tensor_parallel: int = 1,
    weight_bytes: float = 2,
    adapter_weights: int = 0,
    cache_gib: float | None = None,
) -> Serving:
    """Divide vLLM's share into its parts. `adapter_weights`: number of weights of a LoRA, for which the server has one
    slot. `cache_gib`: fixed size of the KV cache; None for what the share leaves."""
    is_large_card, parallel = card_gib >= LARGE_CARD_GIB, max(tensor_parallel, 1)
    batch_tokens, sequences = (8192, 1024) if is_large_card else (2048, 256)
    weights = (weight_bytes * shape.total / parallel + 2 * adapter_weights) / GIB
    # The peak of a layer: gate, up and their product, and a few hidden states.
    layer = batch_tokens * (6 * shape.inner / parallel + 8 * shape.hidden)
    # Logits of one token per sequence in fp32, which sampling copies once.
    logits = 2 * 4 * sequences * shape.vocab
    activations = (layer + logits) / GIB + OUTSIDE_GIB
    cache = share_gib - weights - activations if cache_gib is None else cache_gib
    share_gib = share_gib if cache_gib is None else weights + activations + cache_gib
    token_bytes = shape.kv_bytes() / (parallel if shape.key >= parallel else 1)
    return Serving(share_gib, weights, activations, cache, int(max(cache, 0) * GIB / token_bytes))
