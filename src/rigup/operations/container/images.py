"""A build that is a container image: pulled by digest, verified, and recorded under a name like any other build.

The record, a folder with only a manifest that names the image, is for probes, `rigup status` and `rigup prune`; podman
stores the image.
"""

from __future__ import annotations

import json
from collections.abc import Generator

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup import layout
from rigup.artifacts import LockedImage
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.builds.source import publish, result_folder
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.plan import Build
from rigup.units import bytes_text

# All folders that podman writes to during a pull.
WRITABLE = ("/var/lib/containers", "/run/containers", "/run/libpod", "/run/lock")
# The owner of the ids that container users get on the host; podman-run(1) proposes these ranges for --userns=auto.
OWNER = "containers"
IDS = f"{OWNER}:2147483647:2147483648"
_OWNED = f"grep -qs ^{OWNER}: /etc/subuid && grep -qs ^{OWNER}: /etc/subgid"


class ImageProvided(FactBase[bool]):
    """Whether the build's record exists, podman has its image, and subordinate ids are configured."""

    default = bool

    def command(self, build_name: str, reference: str) -> str:
        note = f"{layout.BUILDS}/{build_name}/manifest.json"
        return f"{{ test -f {note} && {_OWNED} && podman image exists {reference} && echo yes; }} 2>/dev/null; true"

    def process(self, output: list[str]) -> bool:
        return any(line.strip() == "yes" for line in output)


@operation()
def image_build(build: Build, build_name: str) -> Generator[FunctionCommand, None, None]:
    """Ensures that a container image exists, by digest, and is recorded under the builds root.

    + build: the plan's build, with its locked image
    + build_name: from `builds.name_of`
    """
    reference = build.image.reference if build.image else ""
    if reference and host.get_fact(ImageProvided, build_name=build_name, reference=reference):
        host.noop(f"image {reference} exists")
        return
    yield step(_provide, build, build_name)


def _provide(host: Host, build: Build, name: str) -> None:
    if build.image is None:
        raise HostFailed(
            f"{host.name}: the image of {build.engine} {build.version} is not in rigup.lock", "run rigup lock"
        )
    reference = build.image.reference
    remote.script(host, 'mkdir -p "$@"', *WRITABLE)
    for file in ("/etc/subuid", "/etc/subgid"):
        remote.script(host, 'grep -qs "^$2:" "$1" || echo "$3" >>"$1"', file, OWNER, IDS)
    if not remote.run(host, "podman", "image", "exists", reference).ok:
        _check_space(host, build.image)
        report(Progress(host.name, "engine", text=f"pulling {reference}"))
        command = ("python3", f"{layout.PROGRAMS}/pull_image.py", reference, WRITABLE[0])
        unit = layout.job_unit("build", name)
        largest = max(jobs.LARGEST_FILE, 2 * build.image.bytes)
        jobs.run(host, jobs.Job(unit, "engine", command, WRITABLE, as_root=True, largest_file=largest))
    found = remote.run(host, "podman", "image", "inspect", "--format", "{{.Digest}}", reference)
    if not found.ok:
        raise HostFailed(f"{host.name}: podman does not have {reference}: {found.last_line}", "run rigup apply again")
    if found.stdout.strip() != build.image.digest:
        raise HostFailed(
            f"{host.name}: podman has {found.stdout.strip()} for {build.image.repository}, "
            f"rigup.lock says {build.image.digest}",
            "check for a proxy between the host and the registry; rigup does not use this image",
        )
    _note(host, build, name)


def _check_space(host: Host, image: LockedImage) -> None:
    """Raises HostFailed if even the compressed layers do not fit on the disk."""
    free = remote.free_bytes(host, WRITABLE[0])
    if free < image.bytes:
        raise HostFailed(
            f"{host.name}: the image of {image.engine} {image.version} is {bytes_text(image.bytes)} packed, "
            f"only {bytes_text(free)} free in {WRITABLE[0]}",
            "free disk space, or mount a larger disk there",
        )


def _note(host: Host, build: Build, name: str) -> None:
    result = result_folder(name)
    remote.script(host, 'rm -rf "$1" "$2"; mkdir "$1"', result, f"{layout.BUILDS}/{name}", doing=f"making {result}")
    manifest = json.dumps({"name": name, "build": build.model_dump(mode="json")})
    remote.write_file(host, f"{result}/manifest.json", manifest)
    publish(host, name)
