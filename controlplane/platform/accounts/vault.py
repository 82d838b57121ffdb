"""Access to secrets: those of a run's rewards and tools when it is claimed, and single endpoints for trials.

Other modules only check secrets. A decrypted secret goes into one response or one process and is not stored.
"""

import json
from collections.abc import Iterable

from django.db.models import QuerySet
from django.utils import timezone

from controlplane.platform import sealing
from controlplane.platform.accounts.models import HUB_TOKEN, Secret
from controlplane.platform.http import addresses
from workers.contract.run import jobs, sinks
from workers.contract.run.episodes import PartSpec
from workers.contract.run.spec import RewardSpec, RunSpec
from workers.contract.stack.commands import hub_models
from workers.contract.wire.artifacts import STORE, Store, store_of
from workers.contract.wire.documents import ContractError
from workers.environments.library import LIBRARY as ENTRIES
from workers.rewards.library import LIBRARY
from workers.rewards.parameters import Described
from workers.rewards.tools import SECRET_PREFIX, Endpoint, Unavailable

ENTER_ANEW = "An admin must enter its key again under Settings, Secrets."


class NotGiven(Exception):
    """Error for an unavailable secret; the message names the secret, the cause and the remedy."""


def names_in(entries: Iterable[RewardSpec | PartSpec]) -> list[str]:
    """Return the names of the secrets that rewards and environment parts use, without duplicates."""
    secret_names = (name for entry in entries for name in _secret_names(entry))
    return list(dict.fromkeys(secret_names))


def problem(name: str, kind: str = Secret.Kind.ENDPOINT) -> str:
    """Explain why the secret of this name and kind is unavailable; return "" if it is available."""
    try:
        _open(name, kind)
    except NotGiven as error:
        return str(error)
    return ""


def hub_token_problem() -> str:
    return problem(HUB_TOKEN, Secret.Kind.HUB)


def engine_problem(name: str) -> str:
    return problem(name, Secret.Kind.ENGINE)


def for_run(spec: RunSpec) -> dict[str, str]:
    """Return the secrets that a run's spec needs, by environment variable, and record their use. Raises NotGiven if one
    is missing or can't be decrypted."""
    if jobs.kind_of(spec.kind).pushes:
        _, token = _open(HUB_TOKEN, Secret.Kind.HUB)
        note_use([HUB_TOKEN], run=spec.run_id)
        return {HUB_TOKEN: token}
    names = [] if spec.kind in jobs.KINDS else names_in(spec.every_entry)  # a job scores nothing
    variables = {SECRET_PREFIX + name: _as_variable(*_open(name)) for name in names}
    for name in {sink.secret for sink in spec.sinks if sink.secret}:
        variables[sinks.SECRET_PREFIX + name] = _as_variable(*_open(name))
        names.append(name)
    # hub_models: a model or a reward model with a hub id. The download validates the token.
    if hub_models(spec) and (hub_secret := _secrets(HUB_TOKEN, Secret.Kind.HUB).first()):
        variables[HUB_TOKEN] = _key(hub_secret)
        names.append(HUB_TOKEN)
    note_use(names, run=spec.run_id)
    return variables


def endpoint_for_trial(name: str) -> Endpoint:
    """Return the endpoint with this name on the secrets page, and record its use. Raises Unavailable if there is none,
    or if its key can't be decrypted.

    Its `refusal` checks the IP address at connection time: the web is in another network than the trainer, and users
    who try out a reward see the server's responses.
    """
    try:
        secret, key = _open(name)
    except NotGiven as error:
        raise Unavailable(str(error)) from None
    note_use([name])
    return Endpoint(secret.address, key, refusal=addresses.rule_for(secret.address, private_too=secret.private_too))


def has_artifact_store() -> bool:
    return _secrets(STORE, Secret.Kind.STORE).exists()


def artifact_store_address() -> str:
    """Return the artifact store's address without its keys, or "" if there is no store."""
    return _secrets(STORE, Secret.Kind.STORE).values_list("address", flat=True).first() or ""


def artifact_store(*, run: str = "") -> Store | None:
    """Return the artifact store with its keys, or None if no admin has added one. Raises NotGiven if its address or
    keys can't be used."""
    secret = _secrets(STORE, Secret.Kind.STORE).first()
    if secret is None:
        return None
    try:
        store = store_of(secret.address, _key(secret))
    except ContractError as error:
        raise NotGiven(f"The secret {STORE} can't be used: {error}") from error
    if run:
        note_use([STORE], run=run)
    return store


def engine(name: str) -> tuple[Secret, str]:
    """Return the API server of a machine engine with its token, and record its use. Raises NotGiven if there is none,
    or if the token can't be decrypted."""
    secret_and_token = _open(name, Secret.Kind.ENGINE)
    note_use([name])
    return secret_and_token


def engines() -> dict[str, str]:
    """Return the addresses of the engines' API servers by name."""
    return dict(Secret.objects.filter(kind=Secret.Kind.ENGINE).order_by("name").values_list("name", "address"))


def note_use(names: Iterable[str], *, run: str = "") -> None:
    if names := list(names):
        Secret.objects.filter(name__in=names).update(used_at=timezone.now(), used_by=run)


def _secret_names(spec: RewardSpec | PartSpec) -> list[str]:
    entry: Described | None = (LIBRARY if isinstance(spec, RewardSpec) else ENTRIES).get(spec.function)
    params = entry.schema() if entry else []
    values = (spec.params.get(param["name"], param["default"]) for param in params if param["widget"] == "secret")
    return [value for value in values if isinstance(value, str) and value]


MISSING = {
    Secret.Kind.ENDPOINT: "There is no endpoint {name} among the secrets: it was deleted, renamed or never created. "
    "An admin can add it under Settings, Secrets, or you can choose another endpoint where this one is named.",
    Secret.Kind.ENGINE: f"There is no secret {{name}} of the kind “{Secret.Kind.ENGINE.label}”. "
    "An admin can add it under Settings, Secrets.",
    Secret.Kind.HUB: "No token for the model hub is stored. An admin can add one under Settings, Secrets, as {name}; "
    "it needs write access.",
}


def _open(name: str, kind: str = Secret.Kind.ENDPOINT) -> tuple[Secret, str]:
    secret = _secrets(name, kind).first()
    if secret is None:
        raise NotGiven(MISSING[Secret.Kind(kind)].format(name=name))
    return secret, _key(secret)


def _secrets(name: str, kind: str) -> QuerySet[Secret]:
    return Secret.objects.filter(name=name, kind=kind)


def _key(secret: Secret) -> str:
    try:
        return secret.key()
    except sealing.CannotOpen as error:
        cause = str(error)[:1].lower() + str(error)[1:]
        raise NotGiven(f"The secret {secret.name} can't be opened: {cause} {ENTER_ANEW}") from None


def _as_variable(secret: Secret, key: str) -> str:
    return json.dumps({"address": secret.address, "key": key})
