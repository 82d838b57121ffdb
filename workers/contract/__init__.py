"""What the control plane and the hosts agree on: the run spec, file names, and the lines that travel.

Standard library only, imported by all three programs. Every name here is also the name used in the
database, the API and the pages.
"""

from workers.contract.documents import (
    ContractError,
    from_dict,
    to_dict,
    to_json,
)
from workers.contract.hardware import (
    ZERO,
    HardwareSpec,
    Offload,
    Optimizer,
    Precision,
    Quantization,
    Rollout,
    ServerSpec,
    Strategy,
    WeightSync,
)
from workers.contract.lines import (
    ClaimAnswer,
    GpuReceipt,
    OutboxLine,
    Receipt,
    SyncAnswer,
)
from workers.contract.names import (
    LOG_NAMES,
    MAX_SERVERS,
    METRIC_KINDS,
    SCHEMA,
    SERVER_ROLES,
    EventKind,
    FileName,
    Phase,
    StopMode,
    Task,
    broker_url,
)
from workers.contract.spec import (
    AttemptSpec,
    DataSpec,
    LoraSpec,
    ModelSpec,
    Placement,
    RewardSpec,
    RunSpec,
    ServerPlace,
    is_address,
    servers_of,
)

__all__ = [
    "LOG_NAMES",
    "MAX_SERVERS",
    "METRIC_KINDS",
    "SCHEMA",
    "SERVER_ROLES",
    "ZERO",
    "AttemptSpec",
    "ClaimAnswer",
    "ContractError",
    "DataSpec",
    "EventKind",
    "FileName",
    "GpuReceipt",
    "HardwareSpec",
    "LoraSpec",
    "ModelSpec",
    "Offload",
    "Optimizer",
    "OutboxLine",
    "Phase",
    "Placement",
    "Precision",
    "Quantization",
    "Receipt",
    "RewardSpec",
    "Rollout",
    "RunSpec",
    "ServerPlace",
    "ServerSpec",
    "StopMode",
    "Strategy",
    "SyncAnswer",
    "Task",
    "WeightSync",
    "broker_url",
    "from_dict",
    "is_address",
    "servers_of",
    "to_dict",
    "to_json",
]
