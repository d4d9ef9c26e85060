"""Which code writes to files of a host by itself, past `remote.write_file`: a list that is not to grow."""

from __future__ import annotations

import re
from pathlib import Path

from rigup import layout

SOURCE = Path(layout.__file__).parent
# sh that writes into a file, makes a folder, or changes whose something is
WRITES = re.compile(
    r'(?<![<>&0-9])>>?\s*"?\$|cat >|\btee\b|\binstall -d|"install", "-d"|\bmkdir\b |"mkdir"|chown|chmod'
)
# By file: why what it writes lies where root alone can change things.
KNOWN = {
    "connection/handshake.py": "/var/cache/rigup, which systemd makes root's",
    "connection/lease.py": "/run/rigup",
    "run/audit_log.py": "/var/log/rigup, checked by the script itself",
    "project/settings.py": "a hint, about a file of this machine",
    "connection/login_shell.py": "what `remote.send_file` has checked",
    "tuning/run.py": "gives a folder to the worker once all is in it",
    "operations/builds/source.py": "/opt/rigup/builds",
    "operations/builds/python.py": "/opt/rigup/builds, and folders that it gives to the worker",
    "operations/container/images.py": "podman's folders and /etc",
    "operations/service/moe_configs.py": "/etc/rigup/moe_configs",
    "operations/apt/foreign_sources.py": "/etc/apt",
    "operations/primitives/root_files.py": "what `remote.send_file` has checked",
    "operations/service/releases.py": "/etc/rigup/services and /etc/systemd/system",
    "operations/primitives/remote.py": "checks the folder first",
    "operations/service/secrets.py": "checks the folder first",
    "operations/judgement.py": "the worker's folder: as the worker",
    "operations/weights/upload.py": "the worker's folders: as the worker",
    "operations/weights/sharing.py": "/run/rigup",
    "operations/builds/wheels.py": "what `remote.send_file` has checked",
}


def test_nothing_else_writes_to_a_host_by_itself() -> None:
    files = [path for folder in ("operations", "fleet") for path in sorted((SOURCE / folder).glob("*.py"))]
    writers = {str(path.relative_to(SOURCE)) for path in files if WRITES.search(_sh(path.read_text()))}
    assert writers - KNOWN.keys() == set(), "write with remote.write_file and remote.make_folders"


def _sh(text: str) -> str:
    """Without what is Python of the controlling machine: methods and keyword arguments of those names."""
    return re.sub(r"\.(mkdir|chmod|chown)\(|os\.\w+\(|copymode", "", text)


def test_those_above_come_before_those_below() -> None:
    roots = list(layout.ROOTS)
    for number, folder in enumerate(roots):
        above = folder.rpartition("/")[0]
        assert above in (*roots[:number], "/opt", "/etc", "/var/lib")


def test_what_jobs_are_told_lies_in_roots_folder() -> None:
    path = layout.job_file(layout.job_unit("weights", "org/a.model"))
    assert path == "/var/lib/rigup/jobs/rigup-weights-org-a-model.json"
    assert path.rpartition("/")[0] in layout.ROOTS
