"""Which documents each verb prints with --json, and their JSON schemas, made from the types."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from rigup.cli.output.documents.folders import (
    AddedModelDocument,
    LabGpuDocument,
    LabImageDocument,
    LabMachineDocument,
    LabsDocument,
    LabsDownDocument,
    LockCheckDocument,
    LockDocument,
    MetricsDocument,
)
from rigup.cli.output.documents.measurements import (
    BenchComparison,
    BenchDocument,
    EvalComparison,
    EvalDocument,
    TuneDocument,
)
from rigup.cli.output.documents.plans import (
    CalibrationDocument,
    InitDocument,
    ModelDocument,
    PlanDocument,
    RigsDocument,
    UpDocument,
)
from rigup.cli.output.documents.runs import (
    ApplyDocument,
    CompareDocument,
    DiffDocument,
    FileDocument,
    HostsDocument,
    LogDocument,
    PruneDocument,
    ReleasesDocument,
    StatusDocument,
    UninstallDocument,
)
from rigup.cli.output.documents.services import (
    ChatDocument,
    ExecDocument,
    KeyRotationDocument,
    KeysDocument,
    LogLine,
    TunnelDocument,
    VerifyDocument,
)
from rigup.cli.output.documents.shared import ErrorDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: dict[str, Any] = {
    "up": UpDocument,
    "init": InitDocument,
    "plan": PlanDocument | CalibrationDocument,
    "fit": RigsDocument | ModelDocument,
    "model": AddedModelDocument,
    "lock": LockDocument | LockCheckDocument,
    "diff": DiffDocument,
    "apply": ApplyDocument,
    "prune": PruneDocument,
    "status": StatusDocument,
    "releases": ReleasesDocument,
    "rollback": HostsDocument,
    "log": LogDocument,
    "report": FileDocument,
    "bench": BenchDocument | BenchComparison,
    "eval": EvalDocument | EvalComparison,
    "metrics": MetricsDocument,
    "tune": TuneDocument,
    "chat": ChatDocument,
    "tunnel": TunnelDocument,
    "key": KeysDocument | KeyRotationDocument,
    "logs": LogLine,
    "stop": HostsDocument,
    "start": HostsDocument,
    "restart": HostsDocument,
    "verify": VerifyDocument,
    "compare": CompareDocument,
    "uninstall": UninstallDocument,
    "exec": ExecDocument,
    "lab": LabsDocument | LabsDownDocument | LabImageDocument | LabMachineDocument | LabGpuDocument,
}
"""By verb, its documents if it succeeds or refuses; every verb also has ErrorDocument."""


def adapter_of(verb: str) -> TypeAdapter[Any]:
    """Checks documents of a verb; an unknown key is not an error, since keys are added within a schema."""
    return TypeAdapter(DOCUMENTS[verb] | ErrorDocument)


def schema_of(verb: str) -> dict[str, Any]:
    """The JSON schema of everything that a verb prints with --json."""
    return {
        "$schema": DIALECT,
        "title": f"rigup {verb} --json",
        **adapter_of(verb).json_schema(mode="serialization"),
    }
