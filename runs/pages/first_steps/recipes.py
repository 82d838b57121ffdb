"""Recipes: a dataset, rewards, a model and a profile that go together, and fill in the New run page."""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.sources import HubSource
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.shipped import by_slug
from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.platform.accounts.models import User
from runs.engine.hosts.view import host_views
from runs.launch.new_run.facts import host_facts
from runs.launch.preflight.hosts import shortage

TAGS = "Think step by step between <think> and </think>. Then give the answer alone between <answer> and </answer>."
SUMS = 2_000
IN_TAGS: tuple[dict[str, Any], ...] = (
    {"name": "accuracy", "function": "numeric_match", "weight": 1.0, "params": {"source": "answer tag"}},
    {"name": "answers", "function": "answer_tag", "weight": 0.25, "params": {}},
)


@dataclass(frozen=True)
class StarterRecipe:
    slug: str
    title: str
    text: str
    needs: str
    model: str
    profile: str
    dataset: str
    """The name of the dataset, which is created if there is none with that name."""
    source: HubSource | None
    """The dataset's source; None if the dataset is generated here."""
    mapping: ColumnMapping
    rewards: str
    components: tuple[dict[str, Any], ...]

    @property
    def origin(self) -> str:
        return f"from the hub: {self.source.title}" if self.source else f"{SUMS:,} sums"


@dataclass(frozen=True)
class RecipeParts:
    """Those parts of a recipe that already exist."""

    recipe: StarterRecipe
    version: DatasetVersion | None
    rewards: RewardVersion | None
    profile: HardwareProfile | None
    hosts: tuple[str, ...] = ()
    """The names of reachable hosts that have the profile's GPUs."""

    @property
    def fit(self) -> dict[str, str]:
        """CSS class, icon and text that say whether a reachable host fits."""
        if not self.hosts:
            return {"css": "fit noted", "icon": "circle-x", "text": "No reachable host has everything it needs."}
        text = f"Fits {self.hosts[0]}{' and others' if len(self.hosts) > 1 else ''}."
        return {"css": "fit noted fits", "icon": "circle-check", "text": text}

    @property
    def dataset_chip(self) -> tuple[str, str]:
        if self.being_read:
            return "checking", "being read"
        return ("warn", "not ready") if self.blocked else ("ready", "ready")

    @property
    def being_read(self) -> bool:
        return self.version is not None and self.version.status in DatasetVersion.AT_WORK

    @property
    def blocked(self) -> bool:
        """True if the dataset needs a decision or could not be read."""
        return self.version is not None and not self.being_read and self.version.status != DatasetVersion.READY

    @property
    def problem(self) -> str:
        """Reason why the dataset could not be read, or "" if it was read and needs a decision."""
        report = self.version.report if self.version else {}
        error = report.get("file_error") or report.get("mapped", {}).get("file_error") or {}
        return f"{error.get('message', '')} {error.get('advice', '')}".strip()

    @property
    def complete(self) -> bool:
        is_ready = self.version is not None and self.version.status == DatasetVersion.READY
        return is_ready and self.rewards is not None

    @property
    def address(self) -> str:
        parameters = {
            "model": self.recipe.model,
            "dataset_version": self.version.pk if self.version else "",
            "reward_version": self.rewards.pk if self.rewards else "",
            "profile": self.profile.pk if self.profile else "",
        }
        return f"{reverse('new_run')}?{urlencode({name: value for name, value in parameters.items() if value})}"


RECIPES: tuple[StarterRecipe, ...] = (
    StarterRecipe(
        slug="gsm8k",
        title="GSM8K with a small Qwen",
        text="The usual first GRPO run: grade-school word problems, scored by the number in the answer.",
        needs="one GPU with vLLM, and access to the hub for the data and the model.",
        model="Qwen/Qwen2.5-0.5B-Instruct",
        profile="one-gpu-colocate",
        dataset="GSM8K",
        source=HubSource("openai/gsm8k", "main"),
        mapping=ColumnMapping(prompt="question", answer="answer", system_prompt=TAGS),
        rewards="Number in answer tags",
        components=IN_TAGS,
    ),
    StarterRecipe(
        slug="code",
        title="Code that passes its tests",
        text="Short Python functions from MBPP. Each completion runs in the sandbox against the tests of its row.",
        needs="one GPU with vLLM, a host with a sandbox, and access to the hub for the data and the model.",
        model="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        profile="one-gpu-colocate",
        dataset="MBPP",
        source=HubSource("google-research-datasets/mbpp", "full"),
        mapping=ColumnMapping(
            prompt="text",
            test_cases="test_list",
            template="{prompt}\nIt must pass these tests:\n{test_list}\nAnswer with one block of Python code.",
        ),
        rewards="Tests passed",
        components=(
            {"name": "tests", "function": "tests_passed", "weight": 1.0, "params": {}},
            {"name": "syntax", "function": "python_syntax", "weight": 0.1, "params": {}},
        ),
    ),
    StarterRecipe(
        slug="sums",
        title="Sums on the CPU",
        text="A model with 135 million parameters learns to answer sums in tags. The dataset is generated here.",
        needs="a CPU, and access to the hub for the model.",
        model="HuggingFaceTB/SmolLM2-135M-Instruct",
        profile="cpu",
        dataset="Sums",
        source=None,
        mapping=ColumnMapping(prompt="question", answer="answer", system_prompt=TAGS),
        rewards="Number in answer tags",
        components=IN_TAGS,
    ),
)


def find(slug: str) -> StarterRecipe | None:
    return next((recipe for recipe in RECIPES if recipe.slug == slug), None)


def all_recipes() -> list[RecipeParts]:
    return sorted(with_fitting_hosts(parts(recipe) for recipe in RECIPES), key=lambda parts: not parts.hosts)


def with_fitting_hosts(recipes: Iterable[RecipeParts]) -> list[RecipeParts]:
    """Return the recipes, each with the reachable hosts that have what it needs."""
    hosts = [host_facts(view, {}, {}) for view in host_views() if view.fresh]
    fitting = []
    for recipe in recipes:
        needs = by_slug(recipe.recipe.profile).spec
        fitting.append(replace(recipe, hosts=tuple(host.name for host in hosts if not shortage(host, needs))))
    return fitting


def parts(recipe: StarterRecipe) -> RecipeParts:
    """Find the existing parts of a recipe. A ready version of its dataset is preferred to a newer one."""
    versions = DatasetVersion.objects.filter(dataset__name=recipe.dataset, dataset__deleted_at=None).order_by("number")
    config = RewardConfig.objects.filter(name=recipe.rewards).first()
    return RecipeParts(
        recipe,
        versions.filter(status=DatasetVersion.READY).last() or versions.last(),
        config.newest() if config else None,
        HardwareProfile.objects.filter(name=by_slug(recipe.profile).name).first(),
    )


def prepare(recipe: StarterRecipe, user: User) -> None:
    """Create a recipe's rewards and dataset if missing. Raises DatasetError if the dataset can't be created, for
    example because another user is creating it."""
    existing = parts(recipe)
    if existing.rewards is None:
        saving.make(recipe.rewards, recipe.components, owner=user, description=f"For the recipe “{recipe.title}”.")
    if existing.version is None and not Dataset.objects.filter(name=recipe.dataset).exists():
        if recipe.source is not None:
            actions.create_from_source(user, recipe.dataset, recipe.source, must_be_new=True, mapping=recipe.mapping)
            return
        file = BytesIO(sums(count=SUMS, seed=1).encode())
        actions.create_from_upload(user, recipe.dataset, file, "sums.jsonl", must_be_new=True, mapping=recipe.mapping)


def sums(*, count: int, seed: int) -> str:
    """Return JSON Lines with distinct questions about sums and differences of two numbers up to 99."""
    exercises = [(a, sign, b) for a in range(100) for b in range(100) for sign in ("+", "−") if sign == "+" or b <= a]
    sampled_exercises = random.Random(seed).sample(exercises, count)  # noqa: S311  exercises, not secrets
    return "".join(
        json.dumps({"question": f"What is {a} {sign} {b}?", "answer": str(a + b if sign == "+" else a - b)}) + "\n"
        for a, sign, b in sampled_exercises
    )
