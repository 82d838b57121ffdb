"""Each config's components become its newest version. What runs froze of it before it was edited becomes earlier
versions, the oldest first, so that each run points at what it was scored by."""

import json
from typing import Any

from django.db import migrations


def make_versions(apps: Any, schema_editor: Any) -> None:
    Config, Version = apps.get_model("rewards", "RewardConfig"), apps.get_model("rewards", "RewardVersion")
    Run, Trial = apps.get_model("runs", "Run"), apps.get_model("runs", "ProfileTrial")
    for config in Config.objects.all():
        now = config.components
        taken: dict[str, list[str]] = {}  # what runs froze, in the order of its first use -> their ids
        frozen: dict[str, list[Any]] = {}
        runs = Run.objects.filter(reward_config=config).order_by("created_at", "pk")
        for pk, spec in runs.values_list("pk", "spec").iterator():
            parts = spec.get("rewards") if isinstance(spec, dict) else None
            # A spec that can't be read tells nothing: such a run took the config as it is.
            parts = parts if isinstance(parts, list) and parts else now
            taken.setdefault(_key(parts), []).append(pk)
            frozen[_key(parts)] = parts
        earlier = [key for key in taken if key != _key(now)]
        for number, key in enumerate([*earlier, _key(now)], 1):
            last = key == _key(now)
            version = Version.objects.create(
                config=config,
                number=number,
                components=config.components if last else frozen[key],
                created_by=config.owner if last or number == 1 else None,
                note="" if last else "As runs took it before this config had versions.",
            )
            if number == 1:
                Version.objects.filter(pk=version.pk).update(created_at=config.created_at)
            for first in range(0, len(taken.get(key, ())), 500):
                Run.objects.filter(pk__in=taken[key][first : first + 500]).update(reward_version=version)
        Trial.objects.filter(reward_config=config).update(reward_version=version)


def forget_versions(apps: Any, schema_editor: Any) -> None:
    """Each config is its newest version again; runs point at the config. Versions go with their table."""
    Version = apps.get_model("rewards", "RewardVersion")
    Run, Trial = apps.get_model("runs", "Run"), apps.get_model("runs", "ProfileTrial")
    for version in Version.objects.order_by("config", "number").select_related("config"):
        version.config.components = version.components
        version.config.save(update_fields=["components"])
        for model in (Run, Trial):
            model.objects.filter(reward_version=version).update(reward_config=version.config, reward_version=None)
    Version.objects.all().delete()


def _key(parts: Any) -> str:
    """The same for what scores in the same way: with what the contract's defaults stand for, as a run's spec has it."""
    full = [{"weight": 1.0, "params": {}, **part} if isinstance(part, dict) else part for part in parts]
    for part in full:
        if isinstance(part, dict) and isinstance(part["weight"], int):
            part["weight"] = float(part["weight"])
    return json.dumps(full, sort_keys=True)


class Migration(migrations.Migration):
    dependencies = [("runs", "0019_reward_versions")]

    operations = [migrations.RunPython(make_versions, forget_versions)]
