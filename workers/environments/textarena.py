"""TextArena's games for one player: the model's text is a move, to which the game replies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.contract.run.episodes import ToolError
from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result
from workers.packages import arena
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Cost
from workers.rewards.tools import Unavailable
from workers.sandbox.pool import Sandbox

RESET_S = 60.0
_LINES = "; ".join(f"{game}: {about}" for game, about in arena.GAMES.items())


@dataclass(frozen=True)
class TextArenaParams(Params):
    game: str = param("GuessTheNumber-v0", f"The game. {_LINES}.", choices=tuple(arena.GAMES))
    moves: int = param(20, "Number of the model's messages after which the game is over.", min=1, max=200)
    unfinished: float = param(0.0, "Reward for a game that isn't finished by then.", min=-1.0, max=1.0)


class _Game(EpisodeSession):
    """A game in which each move replays all moves from the seed in a new process, so that no model-written text can
    affect later processes."""

    def __init__(self, params: TextArenaParams, sandbox: Sandbox) -> None:
        self._params, self._sandbox = params, sandbox
        self._seed = 0
        self._moves: list[str] = []

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        self._seed, self._moves = seed, []
        try:
            return arena.play(self._params.game, seed, (), self._sandbox, seconds=RESET_S).text
        except arena.MoveFailed as error:
            raise Unavailable(f"{self._params.game} did not begin: {error}") from None

    def answer(self, text: str, seconds: float) -> Result:
        moves = [*self._moves, text]
        try:
            state = arena.play(self._params.game, self._seed, moves, self._sandbox, seconds=seconds)
        except arena.MoveFailed as error:
            kind = ToolError.TIMEOUT if error.late else ToolError.RAISED
            return Result(f"The game could not play this move: {error}", error=kind)
        self._moves = moves
        if state.done:
            return Result(state.text, reward=state.reward, done=True)
        if len(moves) >= self._params.moves:
            ending = f"{state.text}\nThe game is over: {self._params.moves} moves were made.".strip()
            return Result(ending, reward=self._params.unfinished, done=True)
        return Result(state.text)


ENTRY = Entry(
    key="textarena",
    title="TextArena",
    help="A text game for one player, such as number guessing, Mastermind or Sokoban.",
    params=TextArenaParams,
    kind=EntryKind.GAME,
    open=lambda name, params, tools: _Game(params, tools.package(arena.MODULE)),
    cost=Cost.SANDBOX,
    package="textarena",
    use="For learning over several turns without your own data: the dataset's prompt precedes the game's rules, and "
    "the row's seed determines the game. The reward, usually 1 for a win, is given at the end.",
)
