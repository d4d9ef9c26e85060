"""Memory overheads of engines, as measured by a fleet.

The toolkit has none: its constants are in rigup.planner.memory.overhead. `rigup plan --calibrate --write` writes
a fleet's into its `catalogue/overheads/`.
"""

import json
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from rigup.plan import Parallel
from rigup.service import EngineName
from rigup.units import Frozen

FOLDER = "overheads"
TABLE = "overhead"


class MeasuredOverhead(Frozen):
    """One figure, for one engine release on one kind of GPU with one parallelism.

    gpu: NVML's name. gpus: how many the service has. runtime_mib: MiB per GPU, which replace the toolkit's
    constant. sources: for `runtime_mib`: from how many starts it was measured, and when.
    """

    engine: EngineName
    version: str
    gpu: str
    gpus: Annotated[int, Field(ge=1)]
    tensor: Annotated[int, Field(ge=1)] = 1
    pipeline: Annotated[int, Field(ge=1)] = 1
    data: Annotated[int, Field(ge=1)] = 1
    expert: Annotated[int, Field(ge=1)] = 1
    runtime_mib: Annotated[int, Field(ge=0)]
    sources: dict[str, str]

    @property
    def kind(self) -> tuple[str, str, str, int, Parallel]:
        """Its identity: the kind of start that it was measured for."""
        parallel = Parallel(tensor=self.tensor, pipeline=self.pipeline, data=self.data, expert=self.expert)
        return self.engine, self.version, self.gpu, self.gpus, parallel


def measured_overhead(
    known: Iterable[MeasuredOverhead], engine: str, version: str, gpu: str, gpus: int, parallel: Parallel
) -> MeasuredOverhead | None:
    """The figure that was measured for exactly this kind of start; None if there is none."""
    return next((entry for entry in known if entry.kind == (engine, version, gpu, gpus, parallel)), None)


def overheads_toml(entries: Iterable[MeasuredOverhead]) -> str:
    """The text of a catalogue file with these entries; equal entries give equal text."""
    parts = ["# Written by rigup plan --calibrate --write from the records of this fleet's applies. You may delete it."]
    for entry in entries:
        lines = [f"[[{TABLE}]]"]
        for key, value in entry.model_dump(exclude={"sources"}).items():
            lines.append(f"{key} = {json.dumps(value)}")
        sources = ", ".join(f"{key} = {json.dumps(value)}" for key, value in entry.sources.items())
        parts.append("\n".join([*lines, f"sources = {{ {sources} }}"]))
    return "\n\n".join(parts) + "\n"
