"""A tiny environment of Atropos, without a network or a dataset. Runs in the interpreter that has atroposlib.

python atropos_environment.py serve --env.group_size 4 --openai.server_type vllm ...
"""

from __future__ import annotations

import itertools
from typing import Any

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup


class Counting(BaseEnv):
    name = "counting"

    @classmethod
    def config_init(cls) -> tuple[BaseEnvConfig, list[APIServerConfig]]:
        return BaseEnvConfig(), [APIServerConfig()]

    async def setup(self) -> None:
        self.numbers = itertools.count()

    async def get_next_item(self) -> int:
        return next(self.numbers)

    async def evaluate(self, *_args: Any, **_kwargs: Any) -> None:
        """Nothing is evaluated."""

    async def collect_trajectories(self, item: int) -> tuple[ScoredDataGroup, list[Any]]:
        """The more different tokens, the better."""
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": f"What is {item % 50} + 1?"}], tokenize=False, add_generation_prompt=True
        )
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            await managed.completion(prompt=prompt, n=self.config.group_size, max_tokens=8)
            nodes = managed.get_state()["nodes"]
        group = ScoredDataGroup(tokens=[], masks=[], scores=[], inference_logprobs=[])
        for node in nodes:
            group["tokens"].append(node.tokens)
            group["masks"].append(node.masked_tokens)
            group["inference_logprobs"].append(node.logprobs)
            group["scores"].append(float(len(set(node.tokens))))
        return group, []


if __name__ == "__main__":
    Counting.cli()
