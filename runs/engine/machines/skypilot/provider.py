"""Machines from SkyPilot: each host is a cluster of one machine, wherever SkyPilot's API server can start it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from typing import Any

from controlplane.platform.accounts import vault
from runs.engine.machines import aws
from runs.engine.machines.provider import (
    PRICE,
    EngineError,
    EngineKind,
    MachinePhase,
    MachineShape,
    MachineState,
    Option,
    price_of,
)
from runs.engine.machines.skypilot import task
from runs.engine.machines.skypilot.server import RequestFailed, RequestPending, Server, SkyPilotRequest

CALL_S = 25.0
REMOVAL_WAIT_S = 5.0
"""Seconds to wait for a removal to fail. After that it is assumed to have begun."""
HISTORY_DAYS = 90
LAUNCH, DOWN = "sky.launch", "sky.down"


class SkyPilot:
    """The SkyPilot provider. A handle is the name of a cluster, derived from the host's name, so a repeated request
    finds the cluster of the first one."""

    def __init__(self, control_url: str, options: Mapping[str, str]) -> None:
        self._control_url = control_url
        self._options = options

    def request(self, shape: MachineShape, *, name: str, join: str) -> str:
        if not self._control_url.startswith("https://"):
            raise EngineError(
                "Machines from SkyPilot can join only over https. Change the control plane's address in the source."
            )
        cluster = self._cluster(name)
        server = self._server()
        launches = _requests_named(LAUNCH, server.requests_for(cluster))
        if _cluster_of(server, cluster) or any(launch.active for launch in launches):
            return cluster
        rendered_task = task.render(
            shape,
            self._options,
            control_url=self._control_url,
            name=name,
            join=join,
            hooks=server.api_version >= task.HOOKS_SINCE,
        )
        try:
            # SkyPilot retries while no cloud has such a machine free; a machine that no cloud offers fails at once.
            server.submit(
                "/launch", {"task": task.as_yaml(rendered_task), "cluster_name": cluster, "retry_until_up": True}
            )
        except EngineError as error:
            raise EngineError(str(error).replace(join, "…")) from None
        return cluster

    def state(self, handle: str) -> MachineState:
        server = self._server()
        # In this order: a launch that has ended by now has, or had, its cluster.
        requests, record = server.requests_for(handle), _cluster_of(server, handle)
        launch = next(iter(_requests_named(LAUNCH, requests)), None)
        if record is None:
            return self._state_without_cluster(server, handle, launch)
        if launch and not launch.active and launch.status != "SUCCEEDED":
            _remove(server, handle, requests)
            return MachineState(
                MachinePhase.STARTING, f"{_failure(server, launch)} What is left of it is being removed."
            )
        if launch and launch.active:
            return MachineState(
                MachinePhase.STARTING, _with_reason("SkyPilot is setting up the machine", _reason(record))
            )
        match str(record.get("status")):
            case "UP":
                region = " ".join(str(record[key]) for key in ("cloud", "region") if record.get(key))
                return MachineState(MachinePhase.RUNNING, f"The machine is up{region and f' in {region}'}.")
            case "AUTOSTOPPING":
                return MachineState(MachinePhase.RUNNING, "The host has left, and SkyPilot is removing the machine.")
            case "STOPPED":
                _remove(server, handle, requests)
                return MachineState(MachinePhase.RUNNING, "Somebody stopped the machine. It is being removed.")
            case _:
                return MachineState(
                    MachinePhase.RUNNING,
                    _with_reason("SkyPilot reports that the machine is unhealthy", _reason(record)),
                )

    def release(self, handle: str) -> None:
        server = self._server()
        requests = server.requests_for(handle)
        if launch_ids := [launch.id for launch in _requests_named(LAUNCH, requests) if launch.active]:
            server.outcome(server.submit("/api/cancel", {"request_ids": launch_ids}))
        _remove(server, handle, requests)

    def _cluster(self, name: str) -> str:
        """Build the name of a host's cluster, unique even on a server that several control planes use."""
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
        suffix = sha256(f"{self._control_url} {name}".encode()).hexdigest()[:6]
        return f"grpo-{slug}-{suffix}"

    def _server(self) -> Server:
        try:
            secret, token = vault.engine(self._options["secret"])
        except vault.NotGiven as error:
            raise EngineError(str(error)) from None
        user = sha256(self._control_url.encode()).hexdigest()[:8]
        return Server(secret.address, token, user=user, private_too=secret.private_too, seconds=CALL_S)

    def _state_without_cluster(self, server: Server, cluster: str, launch: SkyPilotRequest | None) -> MachineState:
        if launch is None and not _has_existed(server, cluster):
            return MachineState(MachinePhase.LOST, "SkyPilot doesn't know this machine.")
        if launch and launch.active:
            return MachineState(MachinePhase.QUEUED, _with_reason("SkyPilot is looking for a machine", launch.message))
        if launch and launch.status != "SUCCEEDED":
            return MachineState(MachinePhase.ENDED, _failure(server, launch))
        if self._options.get("spot") == "yes":
            sentence = "The machine is gone: the host left, or the cloud took it back."
            return MachineState(MachinePhase.ENDED, sentence, taken_back=True)
        return MachineState(MachinePhase.ENDED, "The machine is gone.")


def _requests_named(name: str, requests: list[SkyPilotRequest]) -> list[SkyPilotRequest]:
    return [request for request in requests if request.name == name]


def _cluster_of(server: Server, cluster: str) -> dict[str, Any] | None:
    query = {
        "cluster_names": [cluster],
        "refresh": "NONE",  # the server itself looks every minute
        "all_users": True,
        "include_credentials": False,
        "include_handle": False,
        "summary_response": True,
    }
    return _find_record(cluster, server.outcome(server.submit("/status", query)))


def _has_existed(server: Server, cluster: str) -> bool:
    """Return whether this cluster is in the server's history, which is kept longer than requests are."""
    query = {"days": HISTORY_DAYS, "cluster_names": [cluster]}
    return _find_record(cluster, server.outcome(server.submit("/cost_report", query))) is not None


def _find_record(cluster: str, records: Any) -> dict[str, Any] | None:
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise EngineError("The SkyPilot API server sent an invalid list of clusters.")
    return next((record for record in records if record.get("name") == cluster), None)


def _remove(server: Server, cluster: str, requests: list[SkyPilotRequest]) -> None:
    """Start the removal of a cluster, unless it has already started or the cluster is gone."""
    if any(removal.active for removal in _requests_named(DOWN, requests)):
        return
    try:
        server.outcome(server.submit("/down", {"cluster_name": cluster}), seconds=REMOVAL_WAIT_S)
    except RequestPending:
        pass
    except RequestFailed as error:
        if error.kind != "ClusterDoesNotExist":
            raise EngineError(f"SkyPilot can't remove the machine: {error}") from None


def _failure(server: Server, launch: SkyPilotRequest) -> str:
    if launch.status == "CANCELLED":
        return "The request was withdrawn."
    try:
        server.outcome(launch.id)
    except RequestFailed as error:
        return f"SkyPilot couldn't get a machine: {error}"
    return "SkyPilot couldn't get a machine."


def _reason(record: Mapping[str, Any]) -> str:
    reason = record.get("init_status_reason")
    return " ".join(reason.split())[:300] if isinstance(reason, str) else ""


def _with_reason(fact: str, reason: str) -> str:
    return f"{fact}: {reason.rstrip('.')}." if reason else f"{fact}."


def _check(options: Mapping[str, str]) -> Mapping[str, str]:
    problem = vault.engine_problem(options["secret"])
    return {"secret": problem} if problem else {}


def _shape_fields(options: Mapping[str, str]) -> Mapping[str, int | str]:
    instance = aws.INSTANCES.get(options.get("instance_type", ""))
    if instance is None:
        return {}
    return {name: getattr(instance, name) for name in ("gpus", "gpu_kind", "gpu_memory_gib", "cpus", "memory_gib")}


def _gpu_hour_usd(options: Mapping[str, str]) -> Decimal | None:
    """Return the source's own price, or else AWS's list price if it applies: on demand, in the list's region."""
    if (own_price := price_of(options)) is not None:
        return own_price
    instance = aws.INSTANCES.get(options.get("instance_type", ""))
    is_in_region = f"{options.get('infra', '')}/".lower().startswith(f"aws/{aws.REGION}/")
    return instance.usd_per_hour / instance.gpus if instance and is_in_region and options.get("spot") != "yes" else None


OPTIONS = (
    Option(
        "secret",
        "API server secret",
        "A secret of the kind “API server of SkyPilot” from Settings, Secrets, with the server's address and a token.",
        pattern=r"[A-Z0-9_]+",
        hint="the name of a secret",
        required=True,
        suggestions=vault.engines,
    ),
    Option(
        "image",
        "GPU image",
        "Image built from docker/gpu.Dockerfile, in a registry from which the machines can pull.",
        pattern=r"[A-Za-z0-9][\w.:/@-]*",
        hint="an image's name, such as registry.example.org/grpo-gpu:1.0",
        required=True,
    ),
    Option(
        "infra",
        "Where",
        "A cloud with region and zone, or a Kubernetes context, such as aws/us-east-1 or kubernetes/NAME. Leave empty "
        "for the cheapest place that the API server knows.",
        pattern=r"[A-Za-z0-9*][\w.*:/@-]*",
        hint="a place, such as aws/us-east-1",
    ),
    Option(
        "instance_type",
        "Instance type",
        "Leave empty to choose by the GPUs, cores and memory below. A listed AWS type sets them. "
        f"Prices: {aws.SOURCE}.",
        pattern=r"[A-Za-z0-9][\w.-]*",
        hint="an instance type, such as p5.48xlarge",
        suggestions={instance.type: instance.sentence for instance in aws.INSTANCES.values()},
    ),
    Option(
        "spot",
        "Spot",
        "Spot machines are cheaper, but may be taken back with at most two minutes' warning. Runs then continue "
        "elsewhere from their last stored checkpoint.",
        pattern=r"yes|no",
        hint="yes or no",
        initial="no",
        choices={"no": "No, on demand", "yes": "Yes, spot"},
    ),
    Option(
        "disk_gib",
        "Disk (GiB)",
        "For the image, models and checkpoints. Leave empty for SkyPilot's default.",
        pattern=r"[1-9][0-9]{1,4}",
        hint="a whole number from 10",
        initial="512",
    ),
    Option(
        "most_usd",
        "Maximum USD per hour",
        "More expensive machines are not used. Leave empty for any price.",
        pattern=r"(?=.*[1-9])[0-9]{1,4}(\.[0-9]{1,4})?",
        hint="an amount, such as 12.50",
    ),
    replace(
        PRICE, help=f"{PRICE.help} Defaults to the list price of a listed instance type, on demand in {aws.REGION}."
    ),
)

KIND = EngineKind(
    name="skypilot",
    label="SkyPilot",
    help="Clouds and Kubernetes, through SkyPilot's API server (0.14). The machines must reach the control plane and "
    "its Redis over TLS, with a certificate from a public authority.",
    options=OPTIONS,
    make=SkyPilot,
    check=_check,
    settles=_shape_fields,
    requires_gpu_kind=True,
    gpu_hour_usd=_gpu_hour_usd,
)
