"""Asynchronous generation: vLLM servers generate the next batch, requested in a thread, while the trainer learns from
this one.

The next batch is requested as soon as the previous one has arrived, and the servers get new weights only once it has
arrived too: no request is in flight during a weight sync, and a whole batch comes from one version, at most one sync
old. TRL then gets the completions with the log-probabilities that vLLM sampled them with, for its correction.

Only the main process sends requests; the other ranks keep the same records, so that all know which weights a batch
comes from. A checkpoint contains nothing of a batch in flight: a resumed run requests the same prompts again, with the
checkpoint's weights. Standard library only.
"""

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from workers.contract.run.overlapping import AHEAD_SECONDS, STALENESS
from workers.trainer.configuration.spec import TrainerError

Prompts = list[list[int]]


@dataclass(frozen=True)
class PromptBatch:
    epoch: int
    number: int
    indexes: tuple[int, ...]
    """Indexes of the prompts of all ranks in the training set, in rank order, each prompt once."""


class BatchOrder:
    def __init__(self, epochs: Iterator[Sequence[int]], *, size: int, first_epoch: int = 0, first: int = 0) -> None:
        """Derive the batches. `epochs`: each epoch's indexes in the sampler's order. `size`: the number of prompts per
        batch; an epoch's incomplete last batch isn't trained on. `first`: the number of the first epoch's first
        batch."""
        self._batches = (
            PromptBatch(epoch, number, tuple(indexes[number * size : (number + 1) * size]))
            for epoch, indexes in zip(itertools.count(first_epoch), epochs, strict=False)
            for number in range(first if epoch == first_epoch else 0, len(indexes) // size)
        )
        self._next = next(self._batches)

    def find(self, index: int) -> tuple[PromptBatch, PromptBatch]:
        """Return the next batch with this prompt, and the one after it; batches before it are skipped, since a resumed
        run begins within an epoch. Raises TrainerError if neither this epoch nor the next has such a batch."""
        last_epoch = self._next.epoch + 1
        while self._next.epoch <= last_epoch:
            current, self._next = self._next, next(self._batches)
            if index in current.indexes:
                return current, self._next
        raise TrainerError(
            "The prompts of this batch are not those that the sampler chose, so the next batch is unknown."
        )


class PendingGeneration:
    """A request in a separate thread. The thread ends with the process, which closes its connection, so that vLLM
    cancels the request."""

    def __init__(self, prompts: Prompts, generate: Callable[[Prompts], Any]) -> None:
        self._prompts = prompts
        self._result: Future[Any] = Future()
        self.seconds = 0.0
        threading.Thread(target=self._run, args=(generate,), name="next-batch", daemon=True).start()

    def _run(self, generate: Callable[[Prompts], Any]) -> None:
        started_at = time.perf_counter()
        try:
            completions = generate(self._prompts)
        except BaseException as error:
            self._result.set_exception(error)
        else:
            self.seconds = time.perf_counter() - started_at
            self._result.set_result(completions)

    def wait(self) -> Any:
        """Wait for the completions and return them, or raise the exception with which the request failed."""
        return self._result.result()

    def completions_of(self, prompts: Prompts) -> Any:
        """Wait for the completions of these prompts and return them. Raises the request's exception, and TrainerError
        if other prompts were requested."""
        completions = self.wait()
        if prompts != self._prompts:
            raise TrainerError("The batch that was generated ahead is not the one that is trained on next.")
        return completions


class AsyncGeneration:
    """Wrapper of a backend's weight sync and requests that requests each batch one step early."""

    def __init__(
        self,
        generation: Any,
        *,
        main: bool,
        step: Callable[[], int],
        tokenize: Callable[[Sequence[int]], Prompts],
        needed: Callable[[PromptBatch], bool],
    ) -> None:
        """Wrap the backend. `generation`: TRL's VLLMGeneration or its substitute. `step`: returns the number of
        finished optimizer steps. `tokenize`: tokenizes the prompts at these indexes. `needed`: returns whether training
        will reach that batch."""
        self._step = step
        self._tokenize = tokenize
        self._needed = needed
        self._synced_at = 0
        """Step whose weights the servers have."""
        self._requested: tuple[PromptBatch, int] | None = None
        """Batch that is generated ahead, and the step of its weights."""
        self._pending: PendingGeneration | None = None
        self._current: PromptBatch | None = None
        self._upcoming: PromptBatch | None = None
        self.seconds: float | None = None
        """Duration of the last batch's generation if it was generated ahead; None on ranks other than the main
        process."""
        generation.sync_weights = self._after_pending(generation.sync_weights)
        if main:
            client = generation.vllm_client
            route = "complete" if hasattr(client, "complete") else "generate"
            setattr(client, route, self._one_batch_early(getattr(client, route)))

    def expect(self, current: PromptBatch, upcoming: PromptBatch) -> None:
        """Announce the batch that is generated next, and the one after it. All ranks must call this."""
        self._current, self._upcoming = current, upcoming if self._needed(upcoming) else None
        self.seconds = None

    def policy_step(self) -> int:
        """Return the step whose weights generated the last batch. All ranks must call this after each generation."""
        step = self._synced_at
        if self._current is not None:
            if self._requested is not None and self._requested[0] == self._current:
                step = self._requested[1]
            self._requested = None if self._upcoming is None else (self._upcoming, self._synced_at)
            self._current = self._upcoming = None
        return step

    def _after_pending(self, sync_weights: Callable[[], None]) -> Callable[[], None]:
        def sync_after_pending() -> None:
            if self._pending is not None:
                self._pending.wait()
            sync_weights()
            self._synced_at = self._step()

        return sync_after_pending

    def _one_batch_early(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        def generate_early(prompts: Prompts, *arguments: Any, **settings: Any) -> Any:
            def request(batch: Prompts) -> Any:
                return generate(batch, *arguments, **settings)

            if self._current is None:  # an evaluation, or fresh prompts that replace others
                return request(prompts)
            pending, self._pending = self._pending, None
            if pending is not None:
                completions, self.seconds = pending.completions_of(prompts), pending.seconds
            else:
                completions = request(prompts)
            if self._upcoming is not None:
                self._pending = PendingGeneration(self._tokenize(self._upcoming.indexes), request)
            return completions

        return generate_early


class NextBatches:
    """Asynchronous generation for a GRPOTrainer, based on its prompts, their order, and its last step."""

    def __init__(self, trainer: Any, announce: Callable[[Prompts, list[int]], None]) -> None:
        """Wrap the trainer's backend. `announce` is called with each batch's prompts and rows before they are
        requested."""
        self._trainer = trainer
        self._announce = announce
        self._indexes = {row: index for index, row in enumerate(trainer.train_dataset["row"])}
        self._order: BatchOrder | None = None
        self._generation = AsyncGeneration(
            trainer.vllm_generation,
            main=trainer.accelerator.is_main_process,
            step=lambda: trainer.state.global_step,
            tokenize=self._tokenize,
            needed=self._is_reached,
        )

    def log(self, metrics: MutableMapping[str, list[float]], policies: Sequence[int]) -> None:
        """Log a batch's metrics. `policies`: the steps whose weights generated the completions of all ranks."""
        metrics[STALENESS].append(self._trainer.state.global_step - sum(policies) / len(policies))
        if self._generation.seconds is not None:
            metrics[AHEAD_SECONDS].append(self._generation.seconds)

    def policy_step(self) -> int:
        return self._generation.policy_step()

    def expect(self, row: int, *, epochs_done: int) -> None:
        """Announce that the batch with this row is generated next. `epochs_done`: the number of epochs before the
        checkpoint from which the run resumed."""
        if self._order is None:
            sampler = self._trainer._get_train_sampler()  # like the data loader's sampler, so it draws the same order
            sampler.mini_repeat_count = sampler.repeat_count = 1
            epochs = (list(sampler) for _ in itertools.count())
            first = self._next_batch(epochs_done)
            self._order = BatchOrder(epochs, size=sampler.batch_size, first_epoch=epochs_done, first=first)
        self._generation.expect(*self._order.find(self._indexes[row]))

    def _tokenize(self, indexes: Sequence[int]) -> Prompts:
        examples = [self._trainer.train_dataset[index] for index in indexes]
        ids: Prompts = self._trainer._tokenize_prompts([example["prompt"] for example in examples])[0]
        self._announce(ids, [example["row"] for example in examples])
        return ids

    def _is_reached(self, batch: PromptBatch) -> bool:
        passes, steps = self._passes_and_steps()
        first_step = batch.epoch * steps + batch.number * passes // self._trainer.args.gradient_accumulation_steps
        return bool(first_step < self._trainer.state.max_steps)

    def _next_batch(self, epoch: int) -> int:
        """Return the number in this epoch of the batch that is generated next."""
        passes, steps = self._passes_and_steps()
        steps_of_epoch = int(self._trainer.state.global_step) - epoch * steps
        return math.ceil(steps_of_epoch * int(self._trainer.args.gradient_accumulation_steps) / passes)

    def _passes_and_steps(self) -> tuple[int, int]:
        """Return the number of forward passes over one batch, and of steps per epoch."""
        trainer, args = self._trainer, self._trainer.args
        passes = args.steps_per_generation * trainer.num_iterations
        batches = len(self._indexes) // (args.generation_batch_size // trainer.num_generations)
        return passes, math.ceil(batches * passes / args.gradient_accumulation_steps)
