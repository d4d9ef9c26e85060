"""The files of a checkpoint, from the hub, verified."""

from __future__ import annotations

from pathlib import Path

from pyinfra.api import deploy

from rigup import layout
from rigup.operations.secrets import secret_file
from rigup.operations.weights import checkpoint_files, step_name
from rigup.plan import Checkpoint

TOKEN = f"{layout.CONFIGURATION}/hub-token"


@deploy("weights")
def weights(
    checkpoint: Checkpoint,
    hub: str,
    token: str | None,
    wheelhouse: Path | None = None,
    hub_bytes_per_second: int = 0,
    lan_bytes_per_second: int = 0,
) -> None:
    """Have every locked file. The token, where the repository is gated, is readable by root and the worker only.

    wheelhouse: a folder of the controlling machine, whose files go before the hub's. The rest: see `checkpoint_files`.
    """
    if token:
        secret_file(name="hub token", path=TOKEN, value=token, group=layout.WORKER_USER)
    checkpoint_files(
        name=step_name(checkpoint),
        checkpoint=checkpoint,
        hub=hub,
        token_file=TOKEN if token else None,
        wheelhouse=wheelhouse,
        hub_bytes_per_second=hub_bytes_per_second,
        lan_bytes_per_second=lan_bytes_per_second,
    )
