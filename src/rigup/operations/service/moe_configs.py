"""Folders of tuned fused-MoE kernels on a host: each complete or absent, named by content, outside engines' packages.

A different content has a different folder, so a restored release finds its own. Folders that no release names are
removed after the next release has answered.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Generator, Iterable

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.bounds import count, shown
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.operations.service.start_log import lines_of_start
from rigup.plan import MoeFolder, Plan

SUMS = ".sha256"
OURS, ENGINES, DEFAULT, UNSAID = "ours", "engine's", "default (slower)", "not said"

# The engines' log lines. Source: vLLM 0.12.0 and 0.33.0 fused_moe.py; SGLang 0.5.9 and 0.5.23
# fused_moe_triton_config.py; for another version of Triton it logs "Fallback to ... use MoE kernel config from".
_READ = re.compile(r"(?:Using configuration from|[Uu]s(?:e|ing) MoE kernel config from) (/.+?\.json)")
_NONE_READ = re.compile(r"Using default MoE (?:kernel )?config\.")
# The host filters its log with these words (`grep -E`).
WORDS = "MoE (kernel )?config|MoE layer"


class MoeFolderIntact(FactBase[bool]):
    """Whether a folder contains exactly the files in its list of checksums, and that list contains these lines."""

    default = bool

    def command(self, path: str, lines: tuple[str, ...]) -> str:
        wanted = shlex.quote("\n".join(lines))
        return (
            f"cd {path} 2>/dev/null && sha256sum --check --status --strict {SUMS} 2>/dev/null && "
            f'[ "$(find . -type f ! -path ./{SUMS} | wc -l)" -eq "$(wc -l < {SUMS})" ] && '
            f"! printf '%s\\n' {wanted} | grep -qvxFf {SUMS} && echo intact; true"
        )

    def process(self, output: list[str]) -> bool:
        return "intact" in output


@operation()
def moe_folder(folder: MoeFolder, build: str) -> Generator[FunctionCommand, None, None]:
    """Ensures that a folder of tuned kernels exists, with the build's own copied below it if the engine reads only one.

    + folder: from the plan
    + build: the build's folder
    """
    lines = tuple(f"{hashlib.sha256(text.encode()).hexdigest()}  ./{path}" for path, text in folder.files.items())
    if host.get_fact(MoeFolderIntact, path=folder.path, lines=lines):
        host.noop(f"{folder.path} is up to date")
        return
    yield step(_write, folder, build)


_COPY = """
for folder in "$@"; do
  for packaged in "$build"/lib/python3*/site-packages/"$folder"; do
    [ -d "$packaged" ] && cp -r --no-preserve=all "$packaged" "$to" && echo copied && exit 0
  done
done
"""
_PUBLISH = """
cd "$1"; find . -type f ! -path "./$3.new" -exec sha256sum {} + > "$3.new"; mv "$3.new" "$3"
chown -R root:root .; chmod -R u=rwX,go=rX .; sync -f .
[ ! -e "$2" ] || mv -T "$2" "$1.old"
mv -T "$1" "$2"; rm -rf "$1.old"
"""


def _write(host: Host, folder: MoeFolder, build: str) -> None:
    """Creates the folder under a temporary name, then replaces the old one in one step."""
    staged = f"{layout.MOE_CONFIGS}/.{folder.path.rpartition('/')[2]}"
    remote.script(host, 'rm -rf "$1" "$1.old"; install -d -m 755 "$(dirname "$1")" "$1"', staged)
    if folder.packaged:
        copy = "build=$1; to=$2; shift 2\n" + _COPY
        if "copied" not in remote.script(host, copy, build, f"{staged}/{folder.copied_to}", *folder.packaged):
            looked = " or ".join(folder.packaged)
            raise HostFailed(f"{host.name}: {build} contains no fused-MoE configs (looked for {looked})")
    for path, text in folder.files.items():
        remote.script(host, 'install -d -m 755 "$(dirname "$1")"', f"{staged}/{path}")
        remote.write_file(host, f"{staged}/{path}", text.removesuffix("\n"))
    remote.script(host, _PUBLISH, staged, folder.path, SUMS, doing=f"installing {folder.path}")


_UNNAMED = """
folders=$1; releases=$2; shift 2
for folder in "$folders"/*; do
  [ -d "$folder" ] || continue
  wanted=; for keep in "$@"; do [ "$keep" != "$folder" ] || wanted=yes; done
  [ -n "$wanted" ] || grep -qsF "$folder" "$releases"/*/releases/*/release.json || du -sb "$folder"
done
"""


def unnamed_folders(host: Host, keep: Iterable[str]) -> dict[str, int]:
    """Folders that no retained release of any service names, with their bytes. keep: folders that a plan needs.

    Raises HostFailed if the host lists something else.
    """
    services = f"{layout.CONFIGURATION}/services"
    lines = remote.script(host, _UNNAMED, layout.MOE_CONFIGS, services, *keep).splitlines()
    found = [line.partition("\t") for line in lines]
    odd = next((path for _, _, path in found if not path.startswith(f"{layout.MOE_CONFIGS}/")), None)
    if odd is not None:
        raise HostFailed(f"{host.name}: {shown(odd)} is not a folder below {layout.MOE_CONFIGS}")
    try:
        return {path: count(size) for size, _, path in found}
    except ValueError as error:
        raise HostFailed(f"{host.name}: du {layout.MOE_CONFIGS}: {error}") from None


def after_start(host: Host, plan: Plan, keep: tuple[str, ...]) -> None:
    """After a service has answered: reports which kernels it uses, and removes unneeded folders.

    keep: the folders of this run's plans, some of which may not have a release yet. A failure here does not roll a
    service back.
    """
    try:
        if unnamed := unnamed_folders(host, keep):
            remote.check_output(host, "rm", "-rf", *unnamed)
        logged = lines_of_start(host, plan.service.name, WORDS) if plan.moe_folder else None
        kernels = "" if logged is None else judge(logged, plan.moe_folder)
    except (HostFailed, *remote.CONNECTION_ERRORS) as error:
        kernels = f"unknown: {error}"
    if kernels:
        report(Progress(host.name, "log", text=f"{plan.service.name}: moe config: {kernels}"))


def judge(lines: Iterable[str], folder: MoeFolder | None) -> str:
    """From an engine's log: "ours", "engine's", "default (slower)" or "not said"; several if GPUs differ."""
    found: set[str] = set()
    for line in lines:
        read = _READ.search(line)
        if read:
            own = folder is not None and any(read[1] == f"{folder.path}/{path}" for path in folder.files)
            found.add(OURS if own else ENGINES)
        elif _NONE_READ.search(line):
            found.add(DEFAULT)
    return " and ".join(kind for kind in (OURS, ENGINES, DEFAULT) if kind in found) or UNSAID
