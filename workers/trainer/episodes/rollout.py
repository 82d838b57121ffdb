"""The rollouts of a run with episodes: turns of the model and answers of the environment, until all episodes end.

TRL's own loop for `tools=` runs calls one after another and doesn't support games; this one uses its rollout_func and
env_mask. All live episodes generate their next turn together, then all their calls run concurrently. Prompts and
completions are never tokenized again: an answer's tokens are appended to those that the model generated, so that the
loss is computed on what was sampled.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workers.contract.run.episodes import EpisodeEnd, EpisodeSpec
from workers.environments.entry import without_thinking
from workers.environments.executor import Call, EnvironmentAnswer, Executor, Move, OpenEpisode
from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes.episode import Episode, Message, ModelTurn, Source, as_trl
from workers.trainer.episodes.generation import TurnRequest, TurnResult, generate
from workers.trainer.episodes.templates import Chat

EOS, LENGTH, STOP = "eos", "length", "stop"
EVALUATION_STEP = -1
"""Step number used for evaluations, so that they all play the same episodes."""


def episode_seed(seed: int, step: int, row: int) -> int:
    """Derive an episode's seed from the run's seed; it is the same for all members of a group."""
    digest = hashlib.sha256(f"{seed} {step} {row}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


class Rollouts(Source):
    def __init__(
        self, spec: EpisodeSpec, executor: Executor, chat: Chat, *, rows: Mapping[int, Any], seed: int, context: int
    ) -> None:
        super().__init__(rows, context=context, tools=[tool.name for tool in executor.descriptions])
        self._limits = spec.limits
        self._executor = executor
        self._chat = chat
        self._seed = seed
        self.after_turn: Callable[[], None] = lambda: None
        """Function called after each turn, when some episodes may have ended."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        began = time.monotonic()
        limit, ends = trainer.max_completion_length, frozenset(trainer.eos_token_ids)
        rows = [self._rows[row] for row in self._row_ids]
        seeds = [episode_seed(self._seed, self._step, row) for row in self._row_ids]
        open_episodes = self._executor.begin(rows, seeds)
        try:
            inputs = zip(rows, seeds, prompts, open_episodes, strict=True)
            self.episodes = [self._episode(*values) for values in inputs]
            loop = _TurnLoop(self, open_episodes, limit=limit, ends=ends, deadline=began + self._limits.episode_s)
            loop.run(trainer, began)
        finally:
            self._executor.close(open_episodes)
        logprobs = [episode.logprobs for episode in self.episodes] if loop.has_logprobs else None
        return {**as_trl(self.episodes), "logprobs": logprobs}

    def _episode(self, row: Mapping[str, Any], seed: int, prompt: Any, open_episode: OpenEpisode) -> Episode:
        messages = self._chat.with_opening(prompt, open_episode.opening)
        ids = self._chat.prompt_ids(messages)
        if len(ids) >= self.context and open_episode.opening:
            open_episode.problem = open_episode.problem or "its opening doesn't fit into the model's context."
            messages = list(prompt)
            ids = self._chat.prompt_ids(messages)
        if len(ids) >= self.context:
            raise SpecError(
                f"The prompt of row {row['row']} has {len(ids)} tokens with the tools, but the model's context holds "
                f"only {self.context}."
            )
        return Episode(row, seed, prompt=messages, prompt_ids=ids)


class _TurnLoop:
    def __init__(
        self, rollouts: Rollouts, episodes: Sequence[OpenEpisode], *, limit: int, ends: frozenset[int], deadline: float
    ) -> None:
        self._limits, self._executor, self._chat = rollouts._limits, rollouts._executor, rollouts._chat
        self._after_turn = rollouts.after_turn
        self._context = rollouts.context
        self._pairs = list(zip(rollouts.episodes, episodes, strict=True))
        self._limit, self._ends, self._deadline = limit, ends, deadline
        self.has_logprobs = True

    def run(self, trainer: Any, began: float) -> None:
        while True:
            live_episodes = [(episode, open_episode) for episode, open_episode in self._pairs if episode.is_live]
            results = generate(trainer, [self._request(episode) for episode, _ in live_episodes])
            if results is None:
                return
            for (episode, _), result in zip(live_episodes, results, strict=True):
                self._add_turn(episode, result)
            self._answer(live_episodes)
            for episode, _ in live_episodes:
                episode.seconds = time.monotonic() - began
            self._after_turn()

    # --- the model's turn ---------------------------------------------------------------------------------------------

    def _request(self, episode: Episode) -> TurnRequest:
        room = self._context - len(episode.prompt_ids) - len(episode.ids)
        return TurnRequest([*episode.prompt_ids, *episode.ids], min(self._allowance(episode), room), room)

    def _allowance(self, episode: Episode) -> int:
        return self._limit - (len(episode.ids) if self._limits.count_outputs else sum(episode.own))

    def _add_turn(self, episode: Episode, result: TurnResult) -> None:
        ids = result.ids
        start, tokens_before = len(episode.ids), [*episode.prompt_ids, *episode.ids]
        episode.ids += ids
        episode.own += [1] * len(ids)
        if result.logprobs is None:
            self.has_logprobs = False
        else:
            episode.logprobs += result.logprobs
        message = {**self._chat.parse(ids, tokens_before), "tokens": len(ids)}
        episode.turns.append(ModelTurn(start, len(episode.ids), message))
        if not self._has_ended(episode) and result.full:
            episode.end = LENGTH

    def _has_ended(self, episode: Episode) -> bool:
        return bool(episode.ids) and episode.ids[-1] in self._ends

    # --- the environment's turn -----------------------------------------------------------------------------------

    def _answer(self, live_episodes: Sequence[tuple[Episode, OpenEpisode]]) -> None:
        moves, moving_episodes = [], []
        for episode, open_episode in live_episodes:
            move = self._next_move(episode, open_episode) if episode.is_live else None
            if move is not None:
                moves.append(move)
                moving_episodes.append(episode)
        for episode, move, answers in zip(moving_episodes, moves, self._executor.carry_out(moves), strict=True):
            self._append(episode, move, answers)

    def _next_move(self, episode: Episode, open_episode: OpenEpisode) -> Move | None:
        """Return the model's move in an episode; if the episode ends here, set its `end` and return None."""
        turn = episode.turns[-1]
        calls = self._calls(episode, turn)
        is_last = len(episode.turns) >= self._limits.turns
        if open_episode.problem:
            episode.end = EpisodeEnd.FAILED
        elif not calls and not self._executor.has_game:
            episode.end = EOS if self._has_ended(episode) else STOP
        elif time.monotonic() >= self._deadline:
            episode.end = EpisodeEnd.TIME
        elif calls and is_last and not self._executor.keeps_state:
            episode.end = EpisodeEnd.TURNS
        else:
            text = "" if calls else without_thinking(turn.message["content"])
            return Move(open_episode, calls, text, self._deadline)
        return None

    def _calls(self, episode: Episode, turn: ModelTurn) -> list[Call]:
        functions = [call["function"] for call in turn.message.get("tool_calls", ())]
        if not functions and self._chat.begins_call(episode.ids[turn.start : turn.stop]):
            return [Call("", None, unreadable=True)]
        return [Call(function["name"], function["arguments"]) for function in functions]

    def _append(self, episode: Episode, move: Move, answers: Sequence[EnvironmentAnswer]) -> None:
        turn = episode.turns[-1]
        calls: Sequence[Call | None] = move.calls or [None]
        turn.answers = [self._message(call, answer) for call, answer in zip(calls, answers, strict=True)]
        if any(answer.failed for answer in answers):
            episode.end = EpisodeEnd.FAILED
        elif any(answer.done for answer in answers):
            episode.end = EpisodeEnd.DONE
        elif len(episode.turns) >= self._limits.turns:
            episode.end = EpisodeEnd.TURNS
        elif time.monotonic() >= self._deadline:
            episode.end = EpisodeEnd.TIME
        else:
            self._continue(episode, turn)

    def _message(self, call: Call | None, answer: EnvironmentAnswer) -> Message:
        """Convert an environment's answer to a message. `call`: the answered call; None for a game's answer."""
        text = self._chat.shorten(answer.text, self._limits.output_tokens)
        message: Message = {"role": "user"}
        if call is not None:
            message = {"role": "tool", "name": self._chat.break_special_tokens(call.name[:100])}
        message |= {"content": text, "tokens": 0, "seconds": round(answer.seconds, 4), "error": answer.error}
        return message if answer.reward is None else {**message, "reward": answer.reward}

    def _continue(self, episode: Episode, turn: ModelTurn) -> None:
        """Append the tokens of the answers if there is room for another turn, else end the episode."""
        plain_messages: list[Message] = [
            {key: answer[key] for key in ("role", "name", "content") if key in answer} for answer in turn.answers
        ]
        try:
            ids = self._chat.answer_ids(plain_messages, ended=self._has_ended(episode))
        except SpecError:  # the tokens of this answer merge with those before it, unlike those that `choose` tried
            episode.end = EpisodeEnd.FAILED
            return
        counted_tokens = len(ids) if self._limits.count_outputs else 0
        room = self._request(episode).room
        if self._allowance(episode) - counted_tokens < 1 or room - len(ids) < 1:
            episode.end = LENGTH
            return
        episode.ids += ids
        episode.own += [0] * len(ids)
        if self.has_logprobs:
            episode.logprobs += [0.0] * len(ids)
        self._chat.count(turn.answers, len(ids))
