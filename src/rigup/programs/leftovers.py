"""Runs on a host: prints, as one line of JSON, its builds and weights and which of them are needed.

usage: leftovers.py BUILDS WEIGHTS SERVICES PACKAGES CACHE

{"builds": {name: {"bytes", "image"}}, "unfinished": {path: bytes}, "packages": bytes, "caches": {path: bytes},
"weights": {folder: bytes},
"needed_builds", "needed_weights": those of every retained release, "running": builds that a process runs from,
"jobs": rigup units that are active}. Fails if a release cannot be read, so that nothing is taken for unneeded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

# Names that rigup gives to work folders, and to builds (with their hash). If a disk is mounted there, the folder also
# contains other names, such as lost+found.
OWN = re.compile(r"^\.(work|result|packed|unpacked)-|^\w[\w.+-]*-[0-9a-f]{12}\Z", re.ASCII)


def size(path: Path) -> int:
    """Bytes on disk below a path; hard links count once."""
    words = ["du", "-s", "--block-size=1", str(path)]
    found = subprocess.run(words, capture_output=True, text=True).stdout.split()
    return int(found[0]) if found else 0


def image_of(build: Path) -> str:
    """The image reference of a build, "" if it is not an image."""
    image = json.loads((build / "manifest.json").read_text()).get("build", {}).get("image") or {}
    return f"{image['repository']}@{image['digest']}" if image else ""


def running(builds: Path) -> list[str]:
    """Builds that a process runs from, by its command line or executable."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            words.append(os.readlink(process / "exe").encode())
        except OSError:
            continue
        for word in words:
            if word.startswith(f"{builds}/".encode()):
                found.add(word.decode(errors="replace").removeprefix(f"{builds}/").split("/")[0])
    return sorted(found)


def jobs() -> list[str]:
    """Active rigup units that build, download or pull."""
    words = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,deactivating"]
    listed = subprocess.run([*words, "rigup-build-*", "rigup-weights-*"], capture_output=True, text=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def released(services: Path, weights: Path) -> tuple[set[str], set[str]]:
    """The builds and weights folders of all retained releases."""
    builds, folders = set(), set()
    for note in services.glob("*/releases/[0-9]*/release.json"):
        if not note.parent.name.isdecimal():  # a copy made by hand
            continue
        release = json.loads(note.read_text())
        builds.add(release["build"])
        for loaded in (release, *(release.get("members") or {}).values()):
            for checkpoint in filter(None, (loaded.get("checkpoint"), loaded.get("draft"))):
                folders.add(f"{weights}/{checkpoint['repo']}/{checkpoint['revision']}")
    return builds, folders


def main(builds: Path, weights: Path, services: Path, packages: Path, cache: Path) -> dict[str, Any]:
    """Collects the content of the printed line."""
    finished = [build for build in builds.glob("[!.]*") if (build / "manifest.json").is_file()]
    unfinished = [path for path in builds.glob("*") if path not in finished and OWN.search(path.name)]
    needed_builds, needed_weights = released(services, weights)
    whole = [path for path in weights.glob("*/*/*") if path.is_dir() and (path / ".rigup-receipt.json").is_file()]
    return {
        "builds": {build.name: {"bytes": size(build), "image": image_of(build)} for build in finished},
        "unfinished": {str(path): size(path) for path in unfinished},
        "packages": size(packages) if packages.is_dir() else 0,
        "caches": {str(path): size(path) for path in cache.glob("[!.]*/[!.]*") if OWN.search(path.name)},
        "weights": {str(path): size(path) for path in whole},
        "incoming": {str(path): size(path) for path in weights.glob("*/*/*.incoming")},
        "needed_builds": sorted(needed_builds),
        "needed_weights": sorted(needed_weights),
        "running": running(builds),
        "jobs": jobs(),
    }


if __name__ == "__main__":
    print(json.dumps(main(*(Path(word) for word in sys.argv[1:6]))))
