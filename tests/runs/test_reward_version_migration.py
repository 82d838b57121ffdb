"""Existing configs, runs and trials come over to versions, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = [("rewards", "0001_initial"), ("runs", "0018_count_stored_completions")]
AFTER = [("rewards", "0003_drop_components"), ("runs", "0021_drop_reward_config")]
NOW = [{"name": "long", "function": "length", "weight": 2}]
ONCE = [{"name": "tags", "function": "think_tags", "weight": 1.0, "params": {}}]


@pytest.fixture
def to() -> Iterator[Any]:
    """Migrates to a state and answers the models of it; leaves the newest."""

    def migrate(state: list[tuple[str, str]]) -> Any:
        MigrationExecutor(connection).migrate(state)
        loader = MigrationExecutor(connection).loader
        others = [leaf for leaf in loader.graph.leaf_nodes() if leaf[0] in ("accounts", "datasets", "hardware")]
        return loader.project_state([*state, *others]).apps

    yield migrate
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


def a_catalogue(apps: Any) -> Any:
    """A config that two runs took before it was edited and one after; a config nobody took; a trial."""
    user = apps.get_model("accounts", "User").objects.create(username="olga")
    dataset = apps.get_model("datasets", "Dataset").objects.create(name="sums")
    version = apps.get_model("datasets", "DatasetVersion").objects.create(dataset=dataset, number=1)
    Config, Run = apps.get_model("rewards", "RewardConfig"), apps.get_model("runs", "Run")
    config = Config.objects.create(name="edited", components=NOW, owner=user)
    Config.objects.create(name="untouched", components=ONCE)
    for name, spec in {
        "first": {"rewards": ONCE},
        "second": {"rewards": [dict(reversed(ONCE[0].items()))]},
        "third": {"rewards": [{**NOW[0], "weight": 2.0, "params": {}}]},
        "unreadable": {"rewards": "?"},
    }.items():
        Run.objects.create(
            id=name, name=name, owner=user, spec=spec, dataset_version_id=version.pk, reward_config=config
        )
    apps.get_model("runs", "ProfileTrial").objects.create(owner=user, model="m", reward_config=config)


def test_each_run_points_at_what_it_was_scored_by(to: Any) -> None:
    a_catalogue(to(BEFORE))
    apps = to(AFTER)
    versions = apps.get_model("rewards", "RewardVersion").objects.filter(config__name="edited").order_by("number")
    assert [version.components for version in versions] == [ONCE, NOW]
    runs = apps.get_model("runs", "Run").objects
    taken = dict(runs.values_list("name", "reward_version__number"))
    assert taken == {"first": 1, "second": 1, "third": 2, "unreadable": 2}
    assert apps.get_model("runs", "ProfileTrial").objects.get().reward_version_id == versions[1].pk
    untouched = apps.get_model("rewards", "RewardVersion").objects.get(config__name="untouched")
    assert (untouched.number, untouched.components) == (1, ONCE)


def test_the_way_back_gives_each_config_its_newest_components(to: Any) -> None:
    a_catalogue(to(BEFORE))
    to(AFTER)
    apps = to(BEFORE)
    configs = dict(apps.get_model("rewards", "RewardConfig").objects.values_list("name", "components"))
    assert configs == {"edited": NOW, "untouched": ONCE}
    runs = apps.get_model("runs", "Run").objects
    assert set(runs.values_list("reward_config__name", flat=True)) == {"edited"}
    assert apps.get_model("runs", "ProfileTrial").objects.get().reward_config.name == "edited"
