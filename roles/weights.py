"""The files of a checkpoint, from hub or wheelhouse, verified against the lock."""

from __future__ import annotations

from pathlib import Path

from pyinfra.api import deploy

from rigup import layout
from rigup.operations.service.secrets import no_secret_file, secret_file
from rigup.operations.weights.checkpoint import checkpoint_files, step_name
from rigup.plan import Checkpoint


@deploy("weights")
def weights(
    checkpoint: Checkpoint,
    hub: str,
    token: str | None,
    wheelhouse: Path | None = None,
    hub_bytes_per_second: int = 0,
    lan_bytes_per_second: int = 0,
) -> None:
    """Fetch every locked file, or verify those that lie on the host already.

    The token of a gated repository is readable by root and the worker only.

    wheelhouse: a folder of the controlling machine whose files take precedence over the hub's. Limits are in bytes per
    second, 0 for none; see `checkpoint_files`.
    """
    if checkpoint.host_folder is not None:
        from rigup.operations.weights.host_files import files_on_host  # most checkpoints come from a hub

        files_on_host(name=step_name(checkpoint), checkpoint=checkpoint)
        return
    if token:
        secret_file(name="hub token", path=layout.HUB_TOKEN, value=token, group=layout.WORKER_USER)
    checkpoint_files(
        name=step_name(checkpoint),
        checkpoint=checkpoint,
        hub=hub,
        token_file=layout.HUB_TOKEN if token else None,
        wheelhouse=wheelhouse,
        hub_bytes_per_second=hub_bytes_per_second,
        lan_bytes_per_second=lan_bytes_per_second,
    )


@deploy("hub token")
def no_hub_token() -> None:
    """Delete the hub token: the inventory no longer has one, or no service of the host needs it."""
    no_secret_file(name="no hub token", path=layout.HUB_TOKEN)
