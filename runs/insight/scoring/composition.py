"""The reward config in the editor's form, saved or not, which the playground and replays score with."""

from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest

from controlplane.catalogue.rewards.forms import components_from
from controlplane.catalogue.rewards.models import AGGREGATIONS, RewardVersion
from controlplane.catalogue.versioned import saving
from controlplane.platform.accounts.roles import person
from workers.contract.run.spec import RewardSpec


@dataclass(frozen=True)
class EditorState:
    specs: list[RewardSpec]
    problems: list[tuple[str, list[str]]]
    aggregation: str
    positions: list[int] = field(default_factory=list)
    """The position of each spec among all rows of the form, counting from 0. It determines the colour."""


def posted_state(request: HttpRequest) -> EditorState:
    specs: list[RewardSpec] = []
    problems: list[tuple[str, list[str]]] = []
    positions = []
    for position, form in enumerate(components_from(request.POST)):
        name = str(form["name"].value() or form.reward.title)
        if not form.is_valid():
            problems.append((name, _sentences(form.errors)))
        elif any(spec.name == form.spec().name for spec in specs):
            problems.append((name, ["Another component has this name."]))
        elif not saving.may_use_part(RewardVersion, person(request), form.spec()):
            problems.append((name, [saving.code_refused(RewardVersion)]))
        else:
            specs.append(form.spec())
            positions.append(position)
    aggregation = request.POST.get("aggregation", "")
    return EditorState(specs, problems, aggregation if aggregation in AGGREGATIONS else AGGREGATIONS[0], positions)


def _sentences(errors: Any) -> list[str]:
    """Return a form's errors as sentences that start with the field's name unless they concern the whole form."""
    return [
        error if field == "__all__" else f"{field.removeprefix('p_').replace('_', ' ')}: {error}"
        for field, list_ in errors.items()
        for error in list_
    ]
