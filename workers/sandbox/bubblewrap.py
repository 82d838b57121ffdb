"""bubblewrap's command line: a root of its own with nothing but the interpreter, in namespaces of its own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from workers.sandbox.lockdown import WORK
from workers.sandbox.places import DEVICES, Places

NOBODY = "65534"


def program() -> str | None:
    return shutil.which("bwrap") or shutil.which("bwrap", path="/usr/bin:/usr/local/bin")


def command(bwrap: str, places: Places, inside: Sequence[str]) -> list[str]:
    """Of the zygote `inside`, which is process 1 there. No /proc and no /sys; the network is an empty one.

    The one capability left is for making namespaces and mounts of the evaluations; they drop it. It doesn't ask to die
    with its parent: that means the thread that started it, which may end sooner. The zygote watches its owner instead.
    """
    own = ("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    words = [bwrap, *own, "--as-pid-1", "--new-session", "--uid", NOBODY, "--gid", NOBODY]
    words += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    for folder in places.folders:
        words += ["--ro-bind", folder, folder]
    for where, target in places.links:
        words += ["--symlink", target, where]
    for device in DEVICES:
        words += ["--dev-bind", device, device]
    return [*words, "--dir", WORK, "--chdir", WORK, "--remount-ro", "/", "--", *inside]
