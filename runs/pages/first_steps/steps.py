"""The four things that a run needs, and which of them are there."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse
from django.utils import timezone

from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.rewards.models import RewardConfig
from runs.engine.models import Run
from runs.engine.sentences import counted


@dataclass(frozen=True)
class FirstStep:
    title: str
    own_icon: str
    done: bool
    text: str
    """The existing object, or the purpose of the step."""
    address: str
    act: str

    @property
    def css(self) -> str:
        return "first-step done" if self.done else "first-step"

    @property
    def icon(self) -> str:
        return "circle-check" if self.done else self.own_icon

    @property
    def before_title(self) -> str:
        """Words for screen readers, which can't see the icon."""
        return "Done" if self.done else ""


def steps() -> list[FirstStep]:
    datasets = Dataset.objects.filter(versions__status=DatasetVersion.READY).distinct().count()
    configs, runs = RewardConfig.objects.count(), Run.objects.count()
    ready = _ready_hosts()
    return [
        FirstStep(
            "Data",
            "database",
            datasets > 0,
            f"{counted(datasets, 'dataset')} to train on." if datasets else "The prompts to learn from, with answers.",
            reverse("datasets") if datasets else reverse("dataset_upload"),
            "Datasets" if datasets else "Add a dataset",
        ),
        FirstStep(
            "Rewards",
            "scale",
            configs > 0,
            f"{counted(configs, 'reward config')}." if configs else "What makes one completion better than another.",
            reverse("reward_configs") if configs else reverse("reward_config_new"),
            "Rewards" if configs else "Compose rewards",
        ),
        FirstStep(
            "Hardware",
            "cpu",
            bool(ready),
            f"Ready to train: {', '.join(ready[:3])}{' …' if len(ready) > 3 else ''}."
            if ready
            else "No host is ready to train. Its card under Hardware says why.",
            reverse("hardware"),
            "Hardware",
        ),
        FirstStep(
            "Launch",
            "circle-play",
            runs > 0,
            f"{counted(runs, 'run')} so far." if runs else "Preflight checks the run before it takes a GPU.",
            reverse("new_run"),
            "New run",
        ),
    ]


def _ready_hosts() -> list[str]:
    now = timezone.now()
    hosts = [host for host in Host.objects.all() if host.is_fresh(now)]
    return [host.name for host in hosts if host.inventory.get("trainer") == "ready"]
