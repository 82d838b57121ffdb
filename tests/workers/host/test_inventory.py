"""What a host tells of itself: whole on a good one, as much as there is on one in trouble."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from workers.host import inventory
from workers.host.inventory import Gpus, Inventory
from workers.settings import HostSettings
from workers.supervisor.processes import gpulinks, gpus
from workers.supervisor.processes.gpulinks import Link
from workers.supervisor.processes.gpus import GpuError, GpuReading


def reading(index: int, **changes: Any) -> GpuReading:
    values = {"index": index, "uuid": f"GPU-{index}", "name": "H200", "memory_mib": 143_771, "used_mib": 500}
    values |= {"util_percent": 3, "power_w": 70.5, "temperature_c": 31, "driver": "580.1"}
    return GpuReading(**{**values, **changes})


def settings_in(folder: Path) -> HostSettings:
    return HostSettings(runs_dir=folder, control_url="http://127.0.0.1:1", trainer_python="/opt/python")


def test_an_inventory_has_disk_ports_programs_and_the_driver(tmp_path: Path) -> None:
    made = Inventory(settings_in(tmp_path), read_gpus=lambda: [reading(0)])
    with socket.create_server(("127.0.0.1", 0)) as server:
        told = made.read()
        assert server.getsockname()[1] in told["listening"]
    assert told["disk_total_mib"] >= told["disk_free_mib"] > 0
    assert told["programs"]["trainer"] == ["/opt/python", "-m", "workers.trainer"]
    assert told["programs"]["vllm"][:2] == ["/opt/python", "-m"]
    assert (told["driver"], told["gpu_error"], told["gpus"][0]["links"]) == ("580.1", "", [])


def test_hosts_that_share_a_runs_folder_announce_the_same_id(tmp_path: Path) -> None:
    for name in ("shared", "own"):
        (tmp_path / name).mkdir()
    ids = [Inventory(settings_in(tmp_path / name)).read()["runs_folder"] for name in ("shared", "shared", "own")]
    assert ids[0] == ids[1] != ids[2]
    assert all(len(each) == 32 for each in ids)
    assert [path.name for path in (tmp_path / "own").iterdir()] == [inventory.FOLDER_ID]


def test_the_runs_folder_is_announced_as_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Inventory(replace(settings_in(tmp_path), runs_dir=Path("."))).read()["runs_dir"] == str(tmp_path)


def test_a_host_says_that_it_converts_models_only_while_the_script_is_there(tmp_path: Path) -> None:
    assert Inventory(settings_in(tmp_path)).read()["converts_to_gguf"] is False
    made = Inventory(replace(settings_in(tmp_path), llama_cpp_dir=tmp_path / "llama.cpp"))
    assert made.read()["converts_to_gguf"] is False
    (tmp_path / "llama.cpp").mkdir()
    (tmp_path / "llama.cpp/convert_hf_to_gguf.py").touch()
    assert made.read()["converts_to_gguf"] is True


def test_links_are_told_and_asked_for_once() -> None:
    asked = Counter[str]()

    def links() -> dict[int, list[Link]]:
        asked["links"] += 1
        return {0: [Link(1, "NVLink", 18, "NODE")], 1: [Link(0, "NVLink", 18, "NODE")]}

    made = Gpus(lambda: [reading(0), reading(1)], links)
    for _ in range(3):
        found, error = made.read()
    assert found[1]["links"] == [{"gpu": 0, "kind": "NVLink", "lanes": 18, "path": "NODE"}]
    assert (error, asked["links"]) == ("", 1)


def test_a_gpu_in_trouble_is_named_and_the_others_stay() -> None:
    lost = reading(1, used_mib=None, memory_mib=0, trouble="GPU is lost")
    found, error = Gpus(lambda: [reading(0), lost, reading(2)], dict).read()
    assert [gpu["index"] for gpu in found] == [0, 2]
    assert error == "GPU 1: GPU is lost"


def test_nvml_that_fails_is_told_with_its_words() -> None:
    def broken() -> list[GpuReading]:
        raise GpuError("Driver/library version mismatch")

    assert Gpus(broken, dict).read() == ([], "NVML isn't responding: Driver/library version mismatch")


def test_nvml_that_hangs_does_not_silence_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "GPU_TIMEOUT_S", 0.05)
    released, calls = threading.Event(), Counter[str]()

    def hanging() -> list[GpuReading]:
        calls["read"] += 1
        released.wait(30)
        return [reading(0)]

    made = Gpus(hanging, dict)
    assert made.read() == ([], "NVML isn't responding.")
    assert made.read() == ([], "NVML isn't responding.")
    assert calls["read"] == 1  # no thread is lost for each announcement
    job = made._job
    released.set()
    assert job is not None
    assert job.wait(30)
    found, error = made.read()
    assert ([gpu["index"] for gpu in found], error) == ([0], "")


def test_a_host_that_has_only_some_of_the_gpus_tells_of_no_others() -> None:
    made = Gpus(lambda: [reading(index) for index in range(4)], dict, own=frozenset({1, 3}))
    assert [gpu["index"] for gpu in made.read()[0]] == [1, 3]


# --- NVML itself, behind its Python binding -------------------------------------------------------------------


class Nvml:
    """Cards as NVML shows them; a missing entry is an error, as it is there."""

    def __init__(self, cards: list[dict[str, Any]], pairs: dict[tuple[int, int], tuple[int, int | None]]) -> None:
        self.cards, self.pairs = cards, pairs

    def put_in_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: dict[str, Any] = {
            "nvmlInit": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "580.1",
            "nvmlDeviceGetCount": lambda: len(self.cards),
            "nvmlDeviceGetHandleByIndex": lambda index: self._of(index, "index"),
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetUUID": lambda card: self._of(card, "uuid"),
            "nvmlDeviceGetName": lambda card: self._of(card, "name"),
            "nvmlDeviceGetUtilizationRates": lambda card: SimpleNamespace(gpu=self._of(card, "util")),
            "nvmlDeviceGetPowerUsage": lambda card: self._of(card, "power"),
            "nvmlDeviceGetTemperature": lambda card, _: self._of(card, "heat"),
            "nvmlDeviceGetPciInfo": lambda card: SimpleNamespace(busId=self._of(card, "bus")),
            "nvmlDeviceGetNvLinkState": lambda card, link: self._remote(card, link) and 1,
            "nvmlDeviceGetNvLinkRemotePciInfo": lambda card, link: SimpleNamespace(busId=self._remote(card, link)),
            "nvmlDeviceGetTopologyCommonAncestor": lambda a, b: self.pairs[min(a, b), max(a, b)][0],
            "nvmlDeviceGetP2PStatus": lambda a, b, _: self._p2p(a, b),
        }
        monkeypatch.setattr(gpus, "_initialised_in", None)
        for name, call in calls.items():
            monkeypatch.setattr(pynvml, name, call)

    def _memory(self, card: int, version: int | None = None) -> Any:
        """The first version counts the driver's reserve as used; old drivers have no other."""
        if version is not None and self.cards[card].get("old_driver"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        reserve = 0 if version is not None else 615 << 20
        return SimpleNamespace(total=80 << 30, used=self._of(card, "used") + reserve)

    def _of(self, card: int, what: str) -> Any:
        if what not in self.cards[card]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self.cards[card][what]

    def _remote(self, card: int, link: int) -> Any:
        remotes = self.cards[card].get("nvlinks", [])
        if link >= len(remotes):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return remotes[link]

    def _p2p(self, a: int, b: int) -> int:
        status = self.pairs[min(a, b), max(a, b)][1]
        if status is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return status


def card(index: int, **more: Any) -> dict[str, Any]:
    return {
        "index": index,
        "used": 1 << 30,
        "uuid": f"GPU-{index}",
        "name": "H200",
        "bus": f"00000000:{index:02X}:00.0",
        **more,
    }


def test_one_field_that_nvml_refuses_costs_that_field_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Nvml([card(0, util=7, power=70_500, heat=30), card(1)], {}).put_in_place(monkeypatch)
    first, second = gpus.read()
    assert (first.util_percent, first.power_w, first.temperature_c) == (7, 70.5, 30)
    assert (second.util_percent, second.power_w, second.used_mib, second.trouble) == (None, None, 1024, "")


def test_a_gpu_that_fell_off_the_bus_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    Nvml([card(0), {}, card(2)], {}).put_in_place(monkeypatch)
    assert [bool(gpu.trouble) for gpu in gpus.read()] == [False, True, False]
    assert gpus.used_mib(gpus.read()) == {0: 1024, 2: 1024}


def test_lanes_are_counted_between_neighbours_and_through_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = "00000000:FF:00.0"
    cards = [
        card(0, nvlinks=["0000:01:00.0", "0000:01:00.0", switch, switch]),
        card(1, nvlinks=["0000:00:00.0", "0000:00:00.0", 0]),
        card(2, nvlinks=[switch, switch, switch]),
    ]
    node, system = pynvml.NVML_TOPOLOGY_NODE, pynvml.NVML_TOPOLOGY_SYSTEM
    pairs = {(0, 1): (node, None), (0, 2): (node, 0), (1, 2): (system, 1)}
    Nvml(cards, pairs).put_in_place(monkeypatch)
    found = gpulinks.read()
    assert found[0] == [Link(1, "NVLink", 2, "NODE"), Link(2, "NVLink", 2, "NODE")]
    assert found[2] == [Link(0, "NVLink", 2, "NODE"), Link(1, "PCIe", None, "SYS")]


@pytest.mark.parametrize(("old_driver", "used"), [(False, 0), (True, 615)])
def test_the_drivers_own_reserve_is_not_in_use(monkeypatch: pytest.MonkeyPatch, old_driver: bool, used: int) -> None:
    Nvml([{"index": 0, "used": 0, "old_driver": old_driver}], {}).put_in_place(monkeypatch)
    assert [gpu.used_mib for gpu in gpus.read()] == [used]
