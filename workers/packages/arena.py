"""TextArena: the single-player games that work offline, and a function to play them."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.sandbox.outcomes import Job, Kind, Limits
from workers.sandbox.pool import Sandbox

MODULE = "arena"
MAX_MOVE_LENGTH = 4_000
_SOURCE = "from workers.packages.inside import arena\nplay, games = arena.play, arena.games"
_MEMORY_MB = 1024

GAMES = {
    "2048-v0-easy": "slide tiles until one shows the goal",
    "Bandit-v0": "find the button with the best reward",
    "Blackjack-v0": "hit or stand, over several hands",
    "Crosswords-v0": "fill a crossword, letter by letter",
    "FifteenPuzzle-v0": "slide tiles into order",
    "FrozenLake-v0": "cross a lake around its holes",
    "FrozenLake-v0-random": "the same on a random lake",
    "GuessTheNumber-v0": "guess a number from 1 to 20 by higher and lower",
    "GuessTheNumber-v0-hardcore": "the same from 1 to 50",
    "LogicPuzzle-v0": "mark which things belong together, from clues",
    "Mastermind-v0": "break a code of four digits by its pegs",
    "Mastermind-v0-hard": "the same with a longer code",
    "Minesweeper-v0-small": "uncover a small field without its mines",
    "Minesweeper-v0": "the same on a field of 8 × 8",
    "PegJump-v0": "jump pegs until one is left",
    "RushHour-v0": "free the red car",
    "Secretary-v0": "stop at the best of a series",
    "Sokoban-v0": "push boxes to their goals",
    "Sudoku-v0-very-easy": "fill a nearly full sudoku",
    "Sudoku-v0-easy": "fill a sudoku",
    "TowerOfHanoi-v0": "move three disks from peg to peg",
    "TowerOfHanoi-v0-medium": "the same with four disks",
}
"""What the player does in each game, by TextArena's id. A test plays a move in each. Other games fetch word lists or
use a model, or return a reason instead of a reward in this version."""


@dataclass(frozen=True)
class GameReply:
    text: str
    done: bool = False
    reward: float | None = None


class MoveFailed(Exception):
    """Failure of a game, with a message for people. `late`: whether it took too long."""

    def __init__(self, message: str, *, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


def play(game: str, seed: int, moves: Sequence[str], sandbox: Sandbox, *, seconds: float) -> GameReply:
    """Play all moves so far, and return the reply to the last, or the rules without moves. Raises MoveFailed if the
    game fails or takes too long."""
    limits = Limits(seconds=max(seconds, 0.001), memory_mb=_MEMORY_MB)
    truncated = [move[:MAX_MOVE_LENGTH] for move in moves]
    [outcome] = sandbox.run([Job(_SOURCE, "play", (f"{game}-raw", seed, truncated))], limits)
    if outcome.kind is not Kind.OK:
        late = outcome.kind is Kind.TIMEOUT
        raise MoveFailed(outcome.message or f"The game ended as {outcome.kind}.", late=late)
    reply = outcome.value
    text = "\n".join(part for part in (reply["text"], reply["reason"]) if part)
    return GameReply(text, reply["done"], reply["reward"])
