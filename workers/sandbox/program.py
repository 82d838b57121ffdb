"""The process that becomes a trusted program: it learns which one over its channel, and is locked in by then."""

from __future__ import annotations

import os

from workers.sandbox.messages import Channel

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp"}  # noqa: S108  inside the sandbox


def run(channel: Channel) -> None:
    """Never returns but by an exception."""
    argv = channel.receive()["argv"]
    os.set_inheritable(channel.fd, False)
    try:
        os.execve(argv[0], argv, ENVIRONMENT)  # noqa: S606  what it runs is the caller's, never the model's
    except OSError as error:
        said = {"kind": "error", "value": None, "message": f"{argv[0]}: {error.strerror}", "traceback": ""}
        channel.send(said)
        os._exit(127)
