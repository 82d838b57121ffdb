"""Tunes vLLM's LoRA kernels for the card at hand, and writes the configs in the form that vLLM reads.

    python -m tests.gpu.lora_kernels [--deadline-s 285]

For ranks 16 and 32 and the layers of a 7B shape, with one slot for adapters, it times each candidate of the shrink and
of the expand kernel as they are run in CUDA graphs, from 1 to 2,048 tokens, and keeps the quickest that gives the same
product. The files go to contract/stack/adapters/kernels/VLLM-VERSION/, from where servers take them on this card:
`{card}_SHRINK.json` and `{card}_EXPAND_TRUE.json`, each {slots + 1: {slices: {tokens: {k: {n: config}}}}}. Which tokens
and sizes are missing there vLLM takes from the nearest; what was not reached in time has vLLM's own config.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.gpu.models import SHAPES
from workers.contract.stack import adapters

SLOTS = 1
RANKS = (16, 32)
TOKENS = (1, 8, 32, 64, 128, 256, 512, 2048)
SHRINK, EXPAND = "shrink", "expand"
SLOWER = 0.98
"""A candidate must take less than this share of the default's time: less is noise."""
Config = dict[str, int | None]


@dataclass(frozen=True)
class Layer:
    """One linear layer as the kernels see it: the parts of a packed one are slices."""

    slices: int
    inputs: int
    outputs: tuple[int, ...]
    """Of each slice."""


def layers(shape: str = "7b") -> list[Layer]:
    """The attention's first: they are what a LoRA has by default."""
    its = SHAPES[shape]
    kv = its.num_key_value_heads * its.head_dim
    return [
        Layer(3, its.hidden_size, (its.hidden_size, kv, kv)),
        Layer(1, its.hidden_size, (its.hidden_size,)),
        Layer(2, its.hidden_size, (its.intermediate_size, its.intermediate_size)),
        Layer(1, its.intermediate_size, (its.hidden_size,)),
    ]


def candidates(kernel: str, rank: int) -> Iterator[Config]:
    """Few, as each is compiled for each number of slices."""
    if kernel == SHRINK:
        sizes = itertools.product((16, 32), (rank,), (64, 128, 256), (1, 4, 8, 16), (4,), (2, 3))
        for m, n, k, split, warps, stages in sizes:
            yield _config(m, n, k, warps, stages, split_k=split, group_size_m=8)
    else:
        sizes = itertools.product((16, 32, 64), (64, 128, 256), (rank,), (2, 4), (2,))
        for m, n, k, warps, stages in sizes:
            yield _config(m, n, k, warps, stages)


def _config(m: int, n: int, k: int, warps: int, stages: int, **more: int) -> Config:
    sizes: Config = {"block_m": m, "block_n": n, "block_k": k, **more}
    return {**sizes, "num_warps": warps, "num_ctas": 1, "num_stages": stages, "max_nreg": None}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.lora_kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--deadline-s", type=float, default=285.0)
    options = parser.parse_args(argv)
    deadline = time.monotonic() + options.deadline_s
    import torch

    card, vllm = torch.cuda.get_device_name(), importlib.metadata.version("vllm").partition("+")[0]
    tables: dict[str, dict[str, Any]] = {SHRINK: {}, EXPAND: {}}
    gains: list[float] = []
    for layer, rank, kernel in itertools.product(layers(), RANKS, (SHRINK, EXPAND)):
        bench = Bench(kernel, layer, rank)
        tried = []
        for config in candidates(kernel, rank):
            if time.monotonic() > deadline:
                break
            tried.append((config, bench.times(config)))
        gains += fill(tables[kernel], layer, rank, kernel, bench, tried)
        left = deadline - time.monotonic()
        print(f"{kernel} r {rank}, {layer}: {len(tried)} tried, {left:.0f} s left", flush=True)
    folder = adapters.KERNELS / vllm
    folder.mkdir(parents=True, exist_ok=True)
    for kernel, suffix in ((SHRINK, "SHRINK"), (EXPAND, "EXPAND_TRUE")):
        path = folder / f"{adapters.file_name(card)}_{suffix}.json"
        path.write_text(json.dumps(tables[kernel], indent=1) + "\n", encoding="utf-8")
        print(f"written: {path}", flush=True)
    middle = sorted(gains)[len(gains) // 2]
    print(f"of {len(gains)} cases the median takes {middle:.2f} of the default's time", flush=True)
    return 0


def fill(
    table: dict[str, Any],
    layer: Layer,
    rank: int,
    kernel: str,
    bench: Bench,
    tried: Sequence[tuple[Config, dict[int, float]]],
) -> list[float]:
    """Put the quickest config of each number of tokens into the table; its share of the default's time each."""
    k, n = (layer.inputs, rank) if kernel == SHRINK else (rank, max(layer.outputs))
    gains = []
    for tokens in TOKENS:
        default, usual = bench.default(tokens), bench.default_s(tokens)
        timed = [(config, times[tokens]) for config, times in tried if tokens in times]
        best, least = min(timed, key=lambda one: one[1], default=(default, usual))
        config, least = (best, least) if least < SLOWER * usual else (default, usual)
        gains.append(least / usual)
        of_slices = table.setdefault(str(SLOTS + 1), {}).setdefault(str(layer.slices), {})
        of_slices.setdefault(str(tokens), {}).setdefault(str(k), {})[str(n)] = config
    return gains


class Bench:
    """One kernel on one layer, for all numbers of tokens."""

    def __init__(self, kernel: str, layer: Layer, rank: int) -> None:
        import torch
        from vllm.lora.ops.triton_ops import LoRAKernelMeta, lora_expand_op, lora_shrink_op, utils

        utils._LORA_A_PTR_DICT.clear()  # by address: the layer before this one may have had the same ones
        utils._LORA_B_PTR_DICT.clear()
        self._kernel, self._layer, self._rank, self._torch = kernel, layer, rank, torch
        self._module: Any = lora_shrink_op if kernel == SHRINK else lora_expand_op
        self._usual = utils.get_lora_op_configs
        most, device = max(TOKENS), torch.device("cuda")
        options: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
        self._inputs = torch.randn(most, layer.inputs, **options)
        self._down = [torch.randn(SLOTS, 1, rank, layer.inputs, **options) * 0.02 for _ in range(layer.slices)]
        self._up = [torch.randn(SLOTS, 1, size, rank, **options) * 0.02 for size in layer.outputs]
        whole = torch.randn(layer.slices, most, rank, dtype=torch.float32, device=device)
        self._between = {tokens: whole[:, :tokens].contiguous() for tokens in TOKENS}
        self._prepared = 0
        self._meta = LoRAKernelMeta.make(SLOTS, most, device)
        self._expected = {tokens: self._result(tokens, self.default(tokens)) for tokens in TOKENS}
        self._default_s = {tokens: self._seconds(tokens, self.default(tokens)) for tokens in TOKENS}

    def default(self, tokens: int) -> Config:
        layer = self._layer
        size = layer.inputs if self._kernel == SHRINK else max(layer.outputs)
        adds = {} if self._kernel == SHRINK else {"add_inputs": True}
        config: Config = self._usual(self._kernel, SLOTS + 1, tokens, size, self._rank, layer.slices, **adds)
        return dict(config)

    def default_s(self, tokens: int) -> float:
        return self._default_s[tokens]

    def times(self, config: Config) -> dict[int, float]:
        """Milliseconds by the number of tokens; nothing for a config that can't run or gives another product."""
        found = {}
        try:
            for tokens in TOKENS:
                result = self._result(tokens, config)
                if self._torch.allclose(result, self._expected[tokens], rtol=0.05, atol=0.05):
                    found[tokens] = self._seconds(tokens, config)
        except Exception as error:  # Triton has many ways to refuse a size
            print(f"{config}: {type(error).__name__}", flush=True)
        return found

    def _result(self, tokens: int, config: Config) -> Any:
        output = self._output(tokens)
        self._run(tokens, config, output)
        self._torch.cuda.synchronize()
        return output.float()

    def _seconds(self, tokens: int, config: Config) -> float:
        import triton

        output = self._output(tokens)
        return float(triton.testing.do_bench_cudagraph(lambda: self._run(tokens, config, output), rep=2))

    def _output(self, tokens: int) -> Any:
        if self._kernel == SHRINK:
            size = (self._layer.slices, tokens, self._rank)
            return self._torch.zeros(size, dtype=self._torch.float32, device="cuda")
        width = sum(self._layer.outputs)
        return self._torch.zeros(tokens, width, dtype=self._torch.bfloat16, device="cuda")

    def _run(self, tokens: int, config: Config, output: Any) -> None:
        """As vLLM calls it, all tokens with the adapter."""
        self._module.get_lora_op_configs = lambda *_, **__: config
        arguments = self._arguments(tokens)
        if self._kernel == SHRINK:
            self._module._lora_shrink(self._inputs[:tokens], self._down, output, *arguments, 1.0)
        else:
            self._module._lora_expand(
                self._between[tokens], self._up, output, *arguments, offset_start=0, add_inputs=True
            )

    def _arguments(self, tokens: int) -> tuple[Any, ...]:
        if self._prepared != tokens:
            self._meta.prepare_tensors(self._torch.zeros(tokens, dtype=self._torch.int32, device="cuda"))
            self._prepared = tokens
        return tuple(self._meta.meta_args(tokens, False))


if __name__ == "__main__":
    sys.exit(main())
