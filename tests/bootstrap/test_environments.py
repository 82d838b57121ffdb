from __future__ import annotations

import fcntl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.setup.bootstrap import environments, installers, torch
from controlplane.setup.bootstrap.console import Failed
from controlplane.setup.bootstrap.environments import ROOT, PythonEnvironment, build


class FakeInstaller(installers.Installer):
    """Makes an environment with the interpreter we run in; fails when told to."""

    def __init__(self) -> None:
        self.installed: list[str] = []
        self.failing: BaseException | None = None

    def make_environment(self, folder: Path) -> None:
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "bin" / "python").symlink_to(sys.executable)

    def install(self, python: Path, arguments: list[str], what: str) -> None:
        if self.failing is not None:
            raise self.failing
        self.installed.append(what)

    def would_install(self, python: Path, requirement: str) -> str:
        return requirement


@pytest.fixture
def installer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeInstaller:
    fake = FakeInstaller()
    monkeypatch.setattr(environments, "choose_installer", lambda tools: fake)
    monkeypatch.setattr(environments, "TOOLS", tmp_path / ".tools")
    return fake


@pytest.fixture
def environment(tmp_path: Path) -> PythonEnvironment:
    (tmp_path / "some.lock").write_text("django==5\n")
    return PythonEnvironment("the test", tmp_path / ".venv", tmp_path / "some.lock", needs=("json",))


def test_a_finished_environment_is_not_built_again(installer: FakeInstaller, environment: PythonEnvironment) -> None:
    build(environment)
    build(environment)
    assert installer.installed == ["some.lock"]


def test_a_changed_lock_builds_again(installer: FakeInstaller, environment: PythonEnvironment) -> None:
    build(environment)
    environment.lock.write_text("django==6\n")
    build(environment)
    assert installer.installed == ["some.lock", "some.lock"]


@pytest.mark.parametrize("error", [Failed("no network"), KeyboardInterrupt()])
def test_after_a_failure_or_ctrl_c_the_next_call_goes_on(
    installer: FakeInstaller, environment: PythonEnvironment, error: BaseException
) -> None:
    installer.failing = error
    with pytest.raises(type(error)):
        build(environment)
    assert not environment.is_built()
    installer.failing = None
    build(environment)
    assert environment.is_built()


def test_a_folder_that_somebody_else_made_is_used_and_never_touched(
    installer: FakeInstaller, environment: PythonEnvironment
) -> None:
    installer.make_environment(environment.folder)
    build(environment)
    assert installer.installed == []


def test_a_folder_of_somebody_else_that_lacks_what_is_needed_is_named_not_deleted(
    installer: FakeInstaller, environment: PythonEnvironment
) -> None:
    (environment.folder / "precious").mkdir(parents=True)
    with pytest.raises(Failed, match="was not created by manage"):
        build(environment)
    assert (environment.folder / "precious").exists()


def test_a_stale_lock_file_holds_nobody_up(installer: FakeInstaller, environment: PythonEnvironment) -> None:
    (environments.TOOLS).mkdir()
    (environments.TOOLS / "install.lock").write_text("left by a dead process")
    build(environment)
    assert environment.is_built()


@pytest.mark.processes
def test_a_second_installation_waits_for_the_first(
    installer: FakeInstaller, environment: PythonEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    environments.TOOLS.mkdir()
    lock = environments.TOOLS / "install.lock"
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        flock = fcntl.flock

        def released_while_we_wait(handle: int, operation: int) -> None:
            if operation == fcntl.LOCK_EX:
                holder.communicate()
            flock(handle, operation)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fcntl, "flock", released_while_we_wait)
            build(environment)
    assert "waiting" in capsys.readouterr().err
    assert environment.is_built()


def test_a_folder_that_cannot_be_written_is_a_clear_message(
    installer: FakeInstaller, environment: PythonEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "TOOLS", Path("/proc/nowhere/.tools"))
    with pytest.raises(Failed, match="CONTROLPLANE_BOOTSTRAP=off"):
        build(environment)


def test_a_cpu_machine_takes_the_cpu_build_from_find_links(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeInstaller()
    monkeypatch.setattr(fake, "would_install", lambda python, requirement: f" + {requirement}+cpu")
    torch.install_cpu(fake, Path("python"))
    assert fake.installed == ["torch"]


def test_a_cpu_machine_asks_uv_for_the_cpu_index_when_find_links_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    uv = installers.Uv("uv")
    monkeypatch.setattr(uv, "would_install", lambda python, requirement: f" + {requirement}")
    monkeypatch.setattr(uv, "install", lambda python, arguments, what: asked.append(arguments))
    torch.install_cpu(uv, Path("python"))
    assert asked == [["--torch-backend", "cpu", "--no-deps", "torch==2.13.0"]]


def test_a_cpu_machine_with_pip_alone_never_fetches_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeInstaller()
    with pytest.raises(Failed, match="gigabytes of CUDA"):
        torch.install_cpu(fake, Path("python"))
    assert fake.installed == []


@pytest.mark.parametrize(("gpus", "driver", "usable"), [(True, 580, True), (True, 535, False), (False, None, False)])
def test_cuda_is_used_where_a_gpu_with_a_recent_driver_answers(
    monkeypatch: pytest.MonkeyPatch, gpus: bool, driver: int | None, usable: bool
) -> None:
    monkeypatch.setattr(torch, "has_gpu", lambda: gpus)
    monkeypatch.setattr(torch, "driver_version", lambda: driver)
    assert torch.gpu_usable() is usable


@pytest.mark.parametrize(("usable", "installed"), [(True, ["gpu.lock"]), (False, ["some.lock", "torch"])])
def test_the_trainer_comes_from_the_lock_of_gpus_where_one_answers(
    installer: FakeInstaller,
    environment: PythonEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    usable: bool,
    installed: list[str],
) -> None:
    monkeypatch.setattr(torch, "gpu_usable", lambda: usable)
    monkeypatch.setattr(torch, "install_cpu", lambda installer, python: installer.install(python, [], "torch"))
    gpu_lock = environment.lock.with_name("gpu.lock")
    gpu_lock.write_text("torch==2\n")
    trainer = replace(environment, gpu_lock=gpu_lock)
    build(trainer)
    build(trainer)
    assert installer.installed == installed


@pytest.fixture
def no_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pip nor uv is told by this machine's environment where packages come from."""
    for name in ("UV_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_INSECURE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for option in installers.PIP_OPTIONS:
        monkeypatch.delenv("PIP_" + option.upper().replace("-", "_"), raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


@pytest.mark.usefixtures("no_sources")
def test_pips_find_links_mirror_and_certificates_are_handed_to_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = "global.find-links='/a /b'\nglobal.index-url='https://mirror.test/simple'\n:env:.cert='/c.pem'\n"
    monkeypatch.setattr(installers, "ask", lambda argv, env=None: listing)
    env = installers.Uv("uv").env
    assert env["UV_FIND_LINKS"] == "/a,/b"
    assert env["UV_DEFAULT_INDEX"] == "https://mirror.test/simple"
    assert env["SSL_CERT_FILE"] == "/c.pem"
    assert "UV_INDEX" not in env


@pytest.mark.usefixtures("no_sources")
def test_pips_further_indexes_and_trusted_hosts_are_handed_to_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = "global.extra-index-url='\\nhttps://a.test\\nhttps://b.test'\nglobal.trusted-host='a.test\\nb.test:84'\n"
    monkeypatch.setattr(installers, "ask", lambda argv, env=None: listing)
    env = installers.Uv("uv").env
    assert env["UV_INDEX"] == "https://a.test https://b.test"
    assert env["UV_INSECURE_HOST"] == "a.test b.test:84"


@pytest.mark.usefixtures("no_sources")
def test_uv_asks_no_index_where_pip_may_ask_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(installers, "ask", lambda argv, env=None: "global.no-index='true'\n")
    monkeypatch.setattr(installers, "run", lambda argv, env: ran.append(argv))
    uv = installers.Uv("echo")
    uv.install(Path("python"), ["some"], "some")
    assert "--no-index" in ran[0]
    monkeypatch.setattr(subprocess, "run", lambda argv, **k: subprocess.CompletedProcess(ran.append(argv), 0, "", ""))
    uv.would_install(Path("python"), "some")
    assert "--no-index" in ran[1]


def test_without_uv_and_pip_the_one_line_that_fixes_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installers, "ask", lambda argv, env=None: None)
    with pytest.raises(Failed, match="apt-get install -y python3-pip"):
        installers.choose_installer(tmp_path)


def test_the_bootstrap_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import controlplane.setup.bootstrap\n"
        "names = {m.partition('.')[0] for m in set(sys.modules) - before} - {'controlplane', 'workers'}\n"
        "print(sorted(names - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_named_interpreter_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from controlplane.setup import bootstrap

    def refuse(environment: PythonEnvironment) -> None:
        raise AssertionError("nothing may be built")

    monkeypatch.setenv("CONTROLPLANE_BOOTSTRAP", "off")
    monkeypatch.setenv("GRPO_TRAINER_PYTHON", sys.executable)
    monkeypatch.setenv(bootstrap.STARTED, "0")
    monkeypatch.setattr(bootstrap, "build", refuse)
    bootstrap.ensure(["manage.py", "demo"])
