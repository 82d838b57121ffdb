"""The file that passes the turns of a served model's chat from the control plane's responses to the serving program."""

import logging
import os
from dataclasses import replace
from pathlib import Path

from workers.contract.reports.chat import ChatNews
from workers.contract.wire.documents import to_json

log = logging.getLogger(__name__)


class ChatFile:
    """The writer of chat.jsonl, used by the sync thread only. A turn that can't be written is requested again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = ChatNews()
        self.last_turn = 0

    @property
    def is_open(self) -> bool:
        """True if somebody has the chat open."""
        return self._written.present

    def write(self, news: ChatNews) -> None:
        news = replace(news, turns=tuple(turn for turn in news.turns if turn.number > self.last_turn))
        if not news.turns and replace(news, turns=()) == self._written:
            return
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(to_json(news).encode(errors="replace") + b"\n")
        except OSError as error:
            log.warning("a turn of the chat could not be written: %s", error)
            return
        self._written = replace(news, turns=())
        self.last_turn = max([self.last_turn, *(turn.number for turn in news.turns)])
