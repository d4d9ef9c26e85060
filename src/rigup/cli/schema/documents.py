"""Which documents each verb prints with --json, and their JSON schemas, made from the types."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from rigup.cli.output.json_documents import folders, measurements, plans, runs, services
from rigup.cli.output.json_documents.shared import ErrorDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: dict[str, Any] = {
    "up": plans.UpDocument,
    "init": plans.InitDocument,
    "plan": plans.PlanDocument | plans.CalibrationDocument | plans.JudgementDocument,
    "fit": plans.RigsDocument | plans.ModelDocument,
    "model": folders.AddedModelDocument,
    "lock": folders.LockDocument | folders.LockCheckDocument,
    "diff": runs.DiffDocument,
    "apply": runs.ApplyDocument,
    "prune": runs.PruneDocument,
    "status": runs.StatusDocument,
    "releases": runs.ReleasesDocument,
    "rollback": runs.HostsDocument,
    "log": runs.LogDocument,
    "report": runs.FileDocument,
    "bench": measurements.BenchDocument | measurements.BenchComparison,
    "eval": measurements.EvalDocument | measurements.EvalComparison,
    "metrics": folders.MetricsDocument,
    "tune": measurements.TuneDocument,
    "chat": services.ChatDocument,
    "tunnel": services.TunnelDocument,
    "key": services.KeysDocument | services.KeyRotationDocument,
    "logs": services.LogLine,
    "stop": runs.HostsDocument,
    "start": runs.HostsDocument,
    "restart": runs.HostsDocument,
    "verify": services.VerifyDocument,
    "compare": runs.CompareDocument,
    "uninstall": runs.UninstallDocument,
    "exec": services.ExecDocument,
    "lab": folders.LabsDocument
    | folders.LabsDownDocument
    | folders.LabImageDocument
    | folders.LabMachineDocument
    | folders.LabGpuDocument,
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
