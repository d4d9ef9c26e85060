"""A checkpoint that lies on the host already: locked by its hash, shown to its service read-only, never copied."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.checkpoints.tensor import Tensor
from rigup.lab.hub.sparse_files import write_gguf
from rigup.lock import load_lock
from tests.lab.fleet import UNIT, WEIGHTS, Fleet

pytestmark = pytest.mark.lab

FOLDER = "/home/keeper/models"
MODEL = f"{FOLDER}/Tiny-Q8_0.gguf"
METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.context_length": 4096,
    "llama.feed_forward_length": 96,
    "tokenizer.ggml.tokens": ["x"] * 100,
}


def tiny(path: Path) -> bytes:
    """A file of a model of two layers, with nothing in its tensors."""
    shapes = {"attn_q": ("Q8_0", (64, 64), 4352), "ffn_up": ("Q8_0", (96, 64), 6528), "attn_norm": ("F32", (64,), 256)}
    tensors = [Tensor("token_embd.weight", "Q8_0", (100, 64), 6800)]
    for layer in range(2):
        tensors += [Tensor(f"blk.{layer}.{name}.weight", *shape) for name, shape in shapes.items()]
    write_gguf(path, METADATA, tensors)
    return path.read_bytes()


@pytest.fixture
def kept(fleet: Fleet, tmp_path: Path) -> Iterator[Fleet]:
    """The fleet, its host with a model in a folder that only its keeper may enter, and a service that names it."""
    fleet.host.machine.ssh(f"rm -rf {FOLDER}; mkdir -p {FOLDER}; chmod 700 {FOLDER} /home/keeper")
    put = fleet.host.machine.ssh(
        f"base64 -d > {MODEL}; chmod 644 {MODEL}", input=base64.b64encode(tiny(tmp_path / "model.gguf")).decode()
    )
    assert put.returncode == 0, put.stderr
    fleet.describe(model=None, checkpoint=MODEL, context=2048)
    lock = (fleet.root / "rigup.lock").read_bytes()
    yield fleet
    (fleet.root / "rigup.lock").write_bytes(lock)  # other tests share the fleet
    shutil.rmtree(fleet.root / "catalogue", ignore_errors=True)


def test_it_is_locked_served_and_watched(kept: Fleet) -> None:
    host = kept.host
    asked = kept.rigup("plan", expect=2)
    assert f"services.chat.checkpoint: {MODEL} " in asked.text
    kept.rigup("lock")
    (entry,) = [each for each in load_lock(kept.root / "rigup.lock").checkpoints if each.location]
    assert (entry.repo, entry.quant, entry.location) == ("local/Tiny-Q8_0", "Q8_0", MODEL)
    assert entry.files[0].sha256 == host.tell(f"sha256sum {MODEL}").split()[0]

    result = kept.apply().json["hosts"][0]
    assert (result["state"], result["errors"]) == ("changed", [])
    assert host.answers()
    shown = f"{WEIGHTS}/{entry.repo}/{entry.revision}"
    inside = f"nsenter -t $(systemctl show {UNIT} -P MainPID) -m"
    assert host.tell(f"{inside} sha256sum {shown}/Tiny-Q8_0.gguf").split()[0] == entry.files[0].sha256
    assert not host.says(f"{inside} sh -c ': >> {shown}/Tiny-Q8_0.gguf'")
    assert not host.says(f"{inside} test -e {FOLDER}")
    assert host.tell(f"stat -c %s {shown}/Tiny-Q8_0.gguf") == "0"  # nothing is copied

    assert kept.apply().json["hosts"][0]["state"] == "unchanged"
    assert kept.rigup("diff", "--deep", "--json").json["hosts"][0]["changes"] == []


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (f"rm {MODEL}", f"{MODEL}: does not exist"),
        (f"truncate -s +4096 {MODEL}", "bytes, but"),
        (f"printf x | dd of={MODEL} bs=1 seek=5000 conv=notrunc status=none", f"{MODEL}: sha256 is "),
        (f"chmod 600 {MODEL}; touch {MODEL}", f"{MODEL}: services may not read it; on the host: chmod o+r {MODEL}"),
        (f"ln -sf /etc/shadow {MODEL}", f"{MODEL}: is at /etc/shadow, where rigup does not accept weights"),
        (f"rm {MODEL}; mkfifo {MODEL}", f"{MODEL}: not a regular"),
    ],
    ids=["missing", "longer", "changed", "unreadable", "link", "fifo"],
)
def test_what_is_not_as_locked_is_refused_and_the_service_goes_on(kept: Fleet, damage: str, says: str) -> None:
    kept.rigup("lock")
    kept.apply()
    kept.host.tell(damage)
    failed = kept.apply(expect=1).json["hosts"][0]
    assert says in failed["errors"][0]["message"]
    assert kept.host.answers()
