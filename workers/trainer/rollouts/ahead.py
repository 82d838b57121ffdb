"""One step ahead: a thread asks the vLLM servers for the next batch while the trainer learns from this one.

A batch is asked for as soon as the one before has arrived, and the servers get new weights only once it has arrived
too: no request is in flight during a push, and all of a batch comes from one version, at most one push old. TRL then
takes the completions, with the log-probabilities that vLLM sampled them with, for its correction.

Only the main process has requests in flight; the other ranks keep the same books, so that all of them know which
weights a batch comes from. A checkpoint holds nothing of a batch in flight: a resumed training asks for the same
prompts again, with the weights of the checkpoint. Standard library only.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.contract.run.async_generation import SECONDS, STALENESS
from workers.trainer.configuration.spec import TrainerError

Prompts = list[list[int]]


@dataclass(frozen=True)
class Dealt:
    """A batch of prompts, as TRL's sampler deals them."""

    epoch: int
    number: int
    """In its epoch, from 0."""
    places: tuple[int, ...]
    """In the training set: each prompt once, those of all ranks in their order."""


class Order:
    """The batches of a training, epoch after epoch."""

    def __init__(self, epochs: Iterator[Sequence[int]], *, size: int, first_epoch: int = 0) -> None:
        """`epochs`: the places of each in the sampler's order, from `first_epoch` on. `size`: prompts of a batch; what
        is left of an epoch isn't trained on."""
        self._first = first_epoch
        self._dealt = (
            Dealt(epoch, number, tuple(places[number * size : (number + 1) * size]))
            for epoch, places in zip(itertools.count(first_epoch), epochs, strict=False)
            for number in range(len(places) // size)
        )
        self._next = next(self._dealt)

    def find(self, place: int) -> tuple[Dealt, Dealt]:
        """The next batch with this prompt, and the one after it. A resumed training begins within an epoch."""
        last = self._next.epoch + 1
        while self._next.epoch <= last:
            here, self._next = self._next, next(self._dealt)
            if place in here.places:
                return here, self._next
        raise TrainerError("The prompts of this batch are not those that the sampler deals: the next can't be known.")


class Flight:
    """A request in a thread of its own. The thread ends with the process, which closes its connection: vLLM then
    gives the request up."""

    def __init__(self, prompts: Prompts, generate: Callable[[Prompts], Any]) -> None:
        self._prompts = prompts
        self._generate = generate
        self._answer: Any = None
        self._error: BaseException | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="ahead", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        started = time.perf_counter()
        try:
            self._answer = self._generate(self._prompts)
        except BaseException as error:  # passed to the trainer's thread, which raises it
            self._error = error
        self.seconds = time.perf_counter() - started

    def wait(self) -> None:
        """Raises what the request has raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def answer(self, prompts: Prompts) -> Any:
        self.wait()
        if prompts != self._prompts:
            raise TrainerError("The batch that was generated ahead is not the one that is trained on next.")
        return self._answer


class Ahead:
    def __init__(
        self,
        generation: Any,
        *,
        main: bool,
        step: Callable[[], int],
        tokenized: Callable[[Sequence[int]], Prompts],
        wanted: Callable[[Dealt], bool],
    ) -> None:
        """`generation`: TRL's VLLMGeneration, or what stands in for it. `step`: the optimizer steps done. `tokenized`:
        the prompts of these places. `wanted`: whether the training will come to that batch."""
        self._step = step
        self._tokenized = tokenized
        self._wanted = wanted
        self._held = 0
        """The step whose weights the servers have."""
        self._asked: tuple[Dealt, int] | None = None
        """The batch that is generated ahead, and the step of its weights."""
        self._flight: Flight | None = None
        self._here: Dealt | None = None
        self._coming: Dealt | None = None
        self.seconds: float | None = None
        """That the last batch took, if it was generated ahead; known to the main process."""
        generation.sync_weights = self._once_landed(generation.sync_weights)
        if main:
            client = generation.vllm_client
            route = "complete" if hasattr(client, "complete") else "generate"
            setattr(client, route, self._answering(getattr(client, route)))

    def turn_to(self, here: Dealt, coming: Dealt) -> None:
        """This batch is generated next, if it hasn't been, and then the coming one. To be called by all ranks."""
        self._here, self._coming = here, coming if self._wanted(coming) else None
        self.seconds = None

    def sampled_by(self) -> int:
        """The step of the weights that the last generation came from. To be called by all ranks after each."""
        step = self._held
        if self._here is not None:
            if self._asked is not None and self._asked[0] == self._here:
                step = self._asked[1]
            self._asked = None if self._coming is None else (self._coming, self._held)
            self._here = self._coming = None
        return step

    def _once_landed(self, sync_weights: Callable[[], None]) -> Callable[[], None]:
        def pushed() -> None:
            if self._flight is not None:
                self._flight.wait()
            sync_weights()
            self._held = self._step()

        return pushed

    def _answering(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        def answered(prompts: Prompts, *arguments: Any, **settings: Any) -> Any:
            def ask(of: Prompts) -> Any:
                return generate(of, *arguments, **settings)

            if self._here is None:  # an evaluation, or fresh prompts in the place of others
                return ask(prompts)
            flight, self._flight = self._flight, None
            if flight is not None:
                answer, self.seconds = flight.answer(prompts), flight.seconds
            else:
                answer = ask(prompts)
            if self._coming is not None:
                self._flight = Flight(self._tokenized(self._coming.places), ask)
            return answer

        return answered


class NextBatches:
    """What a GRPOTrainer's generation one step ahead needs to know of it."""

    def __init__(self, trainer: Any, tell: Callable[[Prompts, list[int]], None]) -> None:
        """`tell` is given the prompts of each batch before it is asked for, and their rows."""
        self._trainer = trainer
        self._tell = tell
        self._places = {row: place for place, row in enumerate(trainer.train_dataset["row"])}
        self._order: Order | None = None
        self._ahead = Ahead(
            trainer.vllm_generation,
            main=trainer.accelerator.is_main_process,
            step=lambda: trainer.state.global_step,
            tokenized=self._tokenized,
            wanted=self._comes,
        )

    def log(self, metrics: MutableMapping[str, list[float]], policies: Sequence[int]) -> None:
        """Of a batch: `policies` are the steps whose weights wrote its completions, those of all ranks."""
        metrics[STALENESS].append(self._trainer.state.global_step - sum(policies) / len(policies))
        if self._ahead.seconds is not None:
            metrics[SECONDS].append(self._ahead.seconds)

    def sampled_by(self) -> int:
        return self._ahead.sampled_by()

    def turn_to(self, row: int, *, epochs_done: int) -> None:
        """The next batch to be generated has this row. `epochs_done`: of the checkpoint that was resumed."""
        if self._order is None:
            sampler = self._trainer._get_train_sampler()  # another like the data loader's, which draws the same order
            sampler.mini_repeat_count = sampler.repeat_count = 1
            epochs = (list(sampler) for _ in itertools.count())
            self._order = Order(epochs, size=sampler.batch_size, first_epoch=epochs_done)
        self._ahead.turn_to(*self._order.find(self._places[row]))

    def _tokenized(self, places: Sequence[int]) -> Prompts:
        examples = [self._trainer.train_dataset[place] for place in places]
        ids: Prompts = self._trainer._tokenize_prompts([example["prompt"] for example in examples])[0]
        self._tell(ids, [example["row"] for example in examples])
        return ids

    def _comes(self, batch: Dealt) -> bool:
        """Whether the training reaches this batch before its last step."""
        trainer, args = self._trainer, self._trainer.args
        each = args.steps_per_generation * trainer.num_iterations  # passes over a batch
        batches = len(self._places) // (args.generation_batch_size // trainer.num_generations)
        steps = math.ceil(batches * each / args.gradient_accumulation_steps)  # of an epoch
        first = batch.epoch * steps + batch.number * each // args.gradient_accumulation_steps
        return bool(first < trainer.state.max_steps)
