"""The stale-policy canary: a few fixed sequences that both the trainer and vLLM score after weight syncs.

The sequences are taken from the first batch, before the first update. If the new weights arrive, vLLM's
log-probabilities of their tokens change. If they don't arrive, they stay exactly as they were, which shows at the next
update, long before rewards or the importance ratio do. vLLM scores them right after the sync, before it generates: next
to other requests, it rounds differently, and with asynchronous generation the next batch is requested at once. Nothing
here draws a random number or changes what TRL trains on.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any

import torch
from accelerate.utils import broadcast_object_list

from workers.contract.run.hardware import Rollout
from workers.contract.run.spec import AttemptSpec
from workers.trainer.rollouts import fanout
from workers.trainer.rollouts.sync_figures import Logps, Scoring, SyncFigures, joined
from workers.trainer.rollouts.vllm_client import ServerError

SEQUENCES = 4
MAX_TOKENS = 256
"""Maximum length of a sequence, since the trainer computes the logits of all its tokens."""
MAX_SCORED = 64
"""Maximum number of tokens at a sequence's end whose log-probabilities are compared."""

FIRST_SYNCS = 8
"""Number of syncs at an attempt's start after each of which the sequences are scored."""
EVERY_SYNCS = 8
"""Number of syncs between two later scorings: for a small model, scoring takes a fifth of a short step."""

ScoreByVllm = Callable[[list[list[int]]], list[list[list[float | None]]]]
"""Function that returns, for each engine and sequence, the log-probability of each token; None for the first."""


def watch(trainer: Any, spec: AttemptSpec, servers: fanout.ServerFanout | None) -> None:
    """Make a trainer that generates with vLLM log the canary's metrics with each batch. `servers`: those of a run that
    loads its adapter over HTTP. Without effect for an engine that sleeps between batches."""
    rollout = spec.run.hardware.rollout
    if rollout is Rollout.SERVER:
        score: ScoreByVllm = (servers or fanout.connect(spec)).score
    elif rollout is Rollout.COLOCATE and not trainer.args.vllm_enable_sleep_mode:
        score = _score_in_process(trainer.vllm_generation.llm)
    else:
        return
    canary = Canary(trainer, score)
    generation = trainer.vllm_generation
    sync_weights, generate = generation.sync_weights, trainer._generate_and_score_completions

    def sync_and_score() -> None:
        sync_weights()
        canary.score_synced()

    def generate_and_check(inputs: Any) -> Any:
        output = generate(inputs)
        if trainer.model.training:
            canary.check(output)
        return output

    generation.sync_weights = sync_and_score
    trainer._generate_and_score_completions = generate_and_check


class Canary:
    def __init__(self, trainer: Any, score: ScoreByVllm) -> None:
        self._trainer = trainer
        self._score_by_vllm = score
        self._sequences: list[list[int]] = []
        self._figures = SyncFigures()
        self._synced: list[Logps] = []
        """Scores by each engine since the last sync; [] if they aren't known."""
        self._step = -1
        self._syncs = 0
        self._due = True

    def score_synced(self) -> None:
        """Let vLLM score the sequences, once there are any, with the weights that it has just got, if this sync's turn
        has come. All ranks must call this."""
        self._syncs += 1
        self._due = self._syncs <= FIRST_SYNCS or self._syncs % EVERY_SYNCS == 0
        self._synced = self._scores_of_engines() if self._sequences and self._due else []

    def check(self, batch: Any) -> None:
        """Score the sequences and log the metrics, once per optimizer step at most, unless the last sync wasn't scored.
        All ranks must call this. `batch`: TRL's output of a generation, from which the first call takes the
        sequences."""
        trainer = self._trainer
        if self._step == trainer.state.global_step or not self._due:
            return
        self._step = trainer.state.global_step
        if not self._sequences:
            chosen_sequences = [choose_sequences(batch, trainer.num_generations)]
            broadcast_object_list(chosen_sequences, from_process=0)
            self._sequences = chosen_sequences[0]
        if not self._sequences:
            return
        by_trainer = self._score_by_trainer()
        by_engine = self._synced or self._scores_of_engines()
        self._synced = []
        if not by_engine:
            return
        for name, value in self._figures.add(Scoring(by_trainer, by_engine)).items():
            trainer._metrics["train"][name].append(value)

    def _scores_of_engines(self) -> list[Logps]:
        """Return the scores by each engine; [] on ranks that send no requests, or if an engine returns no valid
        scores."""
        trainer = self._trainer
        is_server = trainer.vllm_mode == "server"
        if is_server and not trainer.accelerator.is_main_process:
            return []
        try:
            engines = self._score_by_vllm(self._sequences)
        except ServerError as error:  # a dead server ends the run at the next batch, with a better message
            print(f"The weights in vLLM are no longer checked: {error}", flush=True)
            self._score_by_vllm = lambda sequences: []
            return []
        if any(None in values[1:] for engine in engines for values in engine):  # NaN, which other metrics report
            return []
        return [joined(last_scores(values) for values in engine) for engine in engines]

    def _score_by_trainer(self) -> Logps:
        model = self._trainer.model
        was_training = model.training
        model.eval()  # without dropout, which would also draw random numbers
        try:
            with torch.no_grad():
                return joined(self._score_sequences())
        finally:
            model.train(was_training)

    def _score_sequences(self) -> Iterator[list[float]]:
        """Yield the scores of each sequence. All are in one batch, since short passes take as long as one, and with
        sharded weights each pass gathers them all."""
        accelerator, lengths = self._trainer.accelerator, [len(ids) for ids in self._sequences]
        tokens = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
        for row, ids in zip(tokens, self._sequences, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        tokens = tokens.to(accelerator.device)
        mask = torch.arange(max(lengths)).lt(torch.tensor(lengths)[:, None]).to(tokens)
        with accelerator.autocast():
            logits = self._trainer.model(input_ids=tokens, attention_mask=mask).logits
        for row, length, scores in zip(tokens, lengths, logits, strict=True):
            count = scored_count(row[:length])
            logps = scores[length - count - 1 : length - 1].float().log_softmax(-1)
            yield logps.gather(-1, row[length - count : length, None])[:, 0].tolist()


def choose_sequences(batch: Any, num_generations: int) -> list[list[int]]:
    """Return the first completion of the first prompts as token ids, with the end of its prompt. A sequence leaves
    room for the token that vLLM has to generate."""
    sequences = []
    for row in range(0, len(batch["prompt_ids"]), num_generations)[:SEQUENCES]:
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
        completion = batch["completion_ids"][row][batch["completion_mask"][row].bool()].tolist()
        ids = [*prompt, *completion[: min(MAX_SCORED, max(0, len(completion) - 1))]][-MAX_TOKENS:]
        if len(ids) > 1:
            sequences.append(ids)
    return sequences


def scored_count(ids: Sized) -> int:
    return min(MAX_SCORED, len(ids) - 1)


def last_scores(values: Sequence[float | None]) -> list[float]:
    return [value for value in values[-scored_count(values) :] if value is not None]


def _score_in_process(engine: Any) -> ScoreByVllm:
    def score(sequences: list[list[int]]) -> list[list[list[float | None]]]:
        from vllm import SamplingParams

        sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=1)
        outputs = engine.generate([{"prompt_token_ids": ids} for ids in sequences], sampling, use_tqdm=False)
        return [
            [
                [None if tokens is None else tokens[token].logprob for token, tokens in zip(ids, logprobs, strict=True)]
                for ids, logprobs in zip(sequences, (output.prompt_logprobs for output in outputs), strict=True)
            ]
        ]

    return score
