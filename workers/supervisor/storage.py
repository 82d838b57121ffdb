"""Control of the process that uploads an attempt's checkpoints, during training and after the end."""

import logging
import os

from workers.settings import HostSettings
from workers.supervisor import commands
from workers.supervisor.processes.child import STORING, Children
from workers.supervisor.processes.folder import AttemptFolder

log = logging.getLogger(__name__)

RESTART_S = 30.0


class Storage:
    """The uploads of one attempt. Only the main thread may use it; nothing here waits. `token`: the attempt's token, or
    "" if there is no store."""

    def __init__(self, folder: AttemptFolder, settings: HostSettings, children: Children, *, token: str) -> None:
        self._folder = folder
        self._settings = settings
        self._children = children
        self._token = token
        self._next_at = float("-inf")
        self._gave_up = False

    @property
    def stores(self) -> bool:
        return bool(self._token)

    @property
    def is_idle(self) -> bool:
        return STORING not in self._children.running()

    def tick(self, now: float) -> None:
        """Start the upload process if it isn't running. Called while the trainer runs."""
        if self._token and self.is_idle and now >= self._next_at:
            self._next_at = now + RESTART_S
            self._start(finish=False)

    def finish(self) -> None:
        """Start to upload the remaining checkpoints, after the teardown has ended the upload process with all
        others."""
        if self._token:
            self._start(finish=True)

    def give_up(self) -> None:
        if not self.is_idle and not self._gave_up:
            self._gave_up = True
            log.warning("not all checkpoints were uploaded in time")
            self._children.kill_started()

    def _start(self, *, finish: bool) -> None:
        argv = commands.storing_argv(self._folder.path, finish=finish)
        environment = commands.storing_environment(self._settings, os.environ)
        try:
            self._children.start(STORING, argv, environment, stdin=self._token.encode())
        except OSError:
            log.exception("the uploads could not be started")
