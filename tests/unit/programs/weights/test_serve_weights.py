"""What nginx is told: to serve files by hash and states, to the fleet's addresses, and nothing else."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rigup.programs.weights import serve_weights
from rigup.programs.weights.serve_weights import ServingConfig, load, nginx_configuration, offer
from rigup.programs.weights.weights_folder import FetchError, FetchJob, File, Receipt

ALLOWED = ("10.0.0.2", "fd00::2")


def config(folder: Path, **more: object) -> ServingConfig:
    return ServingConfig("h1", folder, 8791, ("10.0.0.1", "fd00::1"), ALLOWED, **more)  # type: ignore[arg-type]


def test_only_the_fleet_may_ask_and_only_for_files_by_hash(tmp_path: Path) -> None:
    lines = [line.strip() for line in nginx_configuration(config(tmp_path)).splitlines()]

    assert "listen 10.0.0.1:8791; listen [fd00::1]:8791;" in lines
    allow = lines.index("allow 10.0.0.2; allow fd00::2;")
    assert lines[allow + 1 : allow + 5] == [
        "deny all;",
        "location / { return 404; }",
        'location ~ "^/files/[0-9a-f]{64}$" { limit_except GET { deny all; } limit_conn files 4; }',
        'location ~ "^/state/[0-9a-z-]+[.]json$" { limit_except GET { deny all; } }',
    ]


def test_of_a_complete_checkpoint_what_the_receipt_vouches_for_is_offered(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    files = []
    for name in ("good", "touched", "missing"):
        (folder / name).write_bytes(name.encode())
        files.append(File(name, len(name), hashlib.sha256(name.encode()).hexdigest()))
    receipt = Receipt(folder)
    for file in files:
        receipt.add(file)
    receipt.write(FetchJob(folder, tuple(files)))
    (folder / "missing").unlink()
    (folder / "touched").write_bytes(b"TOUCHED")
    checkpoint = {"key": "k1", "folder": str(folder), "files": [vars(file) for file in files]}

    offer(config(tmp_path / "sharing", checkpoints=(checkpoint,)))

    (link,) = (tmp_path / "sharing/files").iterdir()
    assert (link.name, link.read_bytes()) == (files[0].sha256, b"good")
    state = json.loads((tmp_path / "sharing/state/k1.json").read_text())
    assert state == {
        "host": "h1", "have": [files[0].sha256], "fetching": {}, "hashing": [], "claims": [], "hub_bytes": 0
    }  # fmt: skip


@pytest.mark.parametrize("allow", [["all"], ["10.0.0.1; allow all"], ["0.0.0.0/0"], ["10.0.0.0/8"], [""], "x"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, allow: object) -> None:
    path = tmp_path / "serve.json"
    path.write_text(json.dumps({"host": "h", "folder": str(tmp_path), "port": 1, "listen": [], "allow": allow}))

    with pytest.raises(FetchError, match="not a configuration"):
        load(path)


def test_a_host_without_nginx_says_so(tmp_path: Path) -> None:
    path = tmp_path / "serve.json"
    told = {"host": "h", "folder": str(tmp_path / "f"), "port": 1, "listen": ["127.0.0.1"], "allow": []}
    path.write_text(json.dumps(told))
    (tmp_path / "f").mkdir()
    program = f"""
import sys
from rigup.programs.weights import serve_weights
serve_weights.shutil.which = lambda *a, **k: "{tmp_path}/no-nginx"
sys.exit(serve_weights.main([{str(path)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, "error: nginx: No such file or directory\n")


def test_what_runs_on_a_host_needs_the_standard_library_alone() -> None:
    programs = [str(Path(serve_weights.__file__).parents[depth]) for depth in (0, 1)]
    for name in ("serve_weights", "swarm", "swarm_turns", "peers", "hub_pace"):
        words = [sys.executable, "-S", "-I", "-c", f"import sys; sys.path[:0] = {programs!r}; import {name}"]
        assert subprocess.run(words, capture_output=True, text=True).stderr == ""
