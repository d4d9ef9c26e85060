"""Runs on a host, as root: pulls one container image by digest and reports progress.

usage: pull_image.py REPOSITORY@sha256:DIGEST FOLDER

FOLDER: podman's image storage.

podman keeps each complete layer, so an interrupted pull continues.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

if __package__:
    from rigup.programs.unit_status import notify_status
else:
    sys.dont_write_bytecode = True
    from unit_status import notify_status  # type: ignore[import-not-found, no-redef]

SECONDS = 1.0


def main(reference: str, folder: str) -> int:
    """Pulls the image; podman's output goes to the journal, where rigup reads it."""
    before = shutil.disk_usage(folder).used
    lines: list[str] = []
    # Without systemd's socket podman does not act as a service.
    environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    words = ["podman", "pull", reference]
    pull = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert pull.stderr is not None
    reader = threading.Thread(target=lambda: lines.extend(line.strip() for line in pull.stderr or ()), daemon=True)
    reader.start()
    while pull.poll() is None:
        layers = sum(line.startswith("Copying blob") for line in lines)
        notify_status(f"{layers} layers begun, {max(0, shutil.disk_usage(folder).used - before) / 1e9:.1f} GB written")
        time.sleep(SECONDS)
    reader.join(10)
    if pull.returncode:
        print("\n".join(lines[-5:]) or "podman pull exited without output", file=sys.stderr)
    return pull.returncode


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
