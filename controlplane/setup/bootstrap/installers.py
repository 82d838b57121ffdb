"""The installers: uv if available (on PATH, fetched earlier, or installable with pip), otherwise pip with venv."""

import os
import shutil
import sys
from pathlib import Path

from controlplane.setup.bootstrap.console import Failed, ask, run, say

UV = "uv==0.13.8"

DOWNLOAD_FAILED = (
    "The installation of {title} failed (the lines above say why).\n"
    "Check the network, the disk's free space, and a proxy or mirror if you use one (HTTPS_PROXY, PIP_INDEX_URL or "
    "UV_DEFAULT_INDEX, PIP_FIND_LINKS).\nThen run the same command again; downloads are kept."
)
NO_PIP = (
    "This Python has neither uv nor pip, so nothing can be installed. One line fixes it:\n"
    "  sudo apt-get install -y python3-pip      (Debian, Ubuntu; elsewhere install pip or uv)"
)


class Installer:
    """The pip of this interpreter, used for environments without a pip: Debian's python3 has the venv module without
    ensurepip, and its pip refuses to install into its own environment."""

    def make_environment(self, folder: Path) -> None:
        if run([sys.executable, "-m", "venv", "--without-pip", str(folder)]):
            raise Failed(f"Python could not create {folder}.")

    def install(self, python: Path, arguments: list[str], title: str) -> None:
        if run([sys.executable, "-m", "pip", "--python", str(python), "install", *arguments]):
            raise Failed(DOWNLOAD_FAILED.format(title=title))

    def would_install(self, python: Path, requirement: str) -> str:
        """Return the installer's dry-run output for a requirement, without its dependencies."""
        argv = [sys.executable, "-m", "pip", "--python", str(python), "install", "--dry-run", "--no-deps", requirement]
        return ask(argv) or ""

    def install_lock(self, python: Path, lock: Path) -> None:
        self.install(python, ["--require-hashes", "--no-deps", "-r", str(lock)], lock.name)


class Uv(Installer):
    def __init__(self, program: str) -> None:
        self.program = program
        pip = pip_settings()
        self.env = uv_environment(pip)
        # uv has no variable for pip's no-index. An index that is configured for uv takes precedence.
        no_index = pip.get("no-index", "").strip().lower() in ("1", "true", "t", "yes", "y", "on")
        self.sources = ["--no-index"] if no_index and not os.environ.get("UV_DEFAULT_INDEX") else []

    def make_environment(self, folder: Path) -> None:
        argv = [self.program, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)]
        if run(argv, self.env):
            raise Failed(f"uv could not create {folder}.")

    def install(self, python: Path, arguments: list[str], title: str) -> None:
        if run([self.program, "pip", "install", "--python", str(python), *self.sources, *arguments], self.env):
            raise Failed(DOWNLOAD_FAILED.format(title=title))

    def would_install(self, python: Path, requirement: str) -> str:
        import subprocess

        argv = [self.program, "pip", "install", "--python", str(python), *self.sources]
        argv += ["--dry-run", "--no-deps", requirement]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True).stderr


def choose_installer(tools: Path) -> Installer:
    """Return the best installer that this machine has or can fetch. Raises Failed if there is none."""
    fetched_uv = tools / "bin" / "uv"
    for program in (shutil.which("uv"), str(fetched_uv)):
        if program and _runs(program):
            return Uv(program)
    if ask([sys.executable, "-m", "pip", "--version"]) is None:
        raise Failed(NO_PIP)
    say("Fetching the installer uv …")
    run([sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(tools), UV])
    if _runs(str(fetched_uv)):
        return Uv(str(fetched_uv))
    say("uv isn't available here; using pip instead, which takes a little longer.")
    return Installer()


def _runs(program: str) -> bool:
    return ask([program, "--version"]) is not None


PIP_OPTIONS = ("find-links", "index-url", "extra-index-url", "no-index", "trusted-host", "cert")
UV_VARIABLES = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "trusted-host": "UV_INSECURE_HOST"}


def uv_environment(pip: dict[str, str]) -> dict[str, str]:
    """Return an environment that passes pip's configuration to uv, which doesn't read it: indexes, find-links,
    certificates and trusted hosts. uv's own settings take precedence."""
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    # uv would install into the caller's VIRTUAL_ENV.
    env.pop("VIRTUAL_ENV", None)
    if "find-links" in pip:
        env.setdefault("UV_FIND_LINKS", ",".join(pip["find-links"].split()))
    for option, variable in UV_VARIABLES.items():
        if option in pip:
            env.setdefault(variable, " ".join(pip[option].split()))
    if "extra-index-url" in pip:
        # As pip does. By default uv stops at the first index that has the name, even without the pinned version.
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    if "cert" in pip:
        env.setdefault("SSL_CERT_FILE", pip["cert"])
    return env


def pip_settings() -> dict[str, str]:
    """Return pip's configuration from its files, overridden by PIP_* variables."""
    settings: dict[str, str] = {}
    config_lines = ask([sys.executable, "-m", "pip", "config", "list"]) or ""
    environment: dict[str, str] = {}
    for line in config_lines.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        target = environment if section == ":env:" else settings
        target[name.strip()] = _unquoted(value)
    for name in PIP_OPTIONS:
        # Read the variables here as well: pip may be missing and can't list them then.
        if override := os.environ.get("PIP_" + name.upper().replace("-", "_")):
            environment[name] = override
    return {**settings, **environment}


def _unquoted(value: str) -> str:
    import ast

    try:
        return str(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return value
