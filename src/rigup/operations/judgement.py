"""An engine that was just installed judges a plan on the cards of its host, before the release is changed.

The judge is rigup's (docs/judges.md): the engine's own code in the build's own environment, without computing on a card
or taking memory of one. Of the checkpoint it reads the small files, so that a plan is refused while its weights are
still on their way.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.bounds import Unreadable
from rigup.facts.engine_kernels import WORDS
from rigup.facts.judgement import USAGE, Judgement, parse
from rigup.facts.probe import Probe, ProbedGpu, read_probe
from rigup.host import Host
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.operations.service.gpu_binding import VISIBLE, bind, cards_of
from rigup.operations.service.releases import CurrentRelease, is_current
from rigup.operations.weights.checkpoint import fetch_small_files
from rigup.plan import BoundPlan, Plan
from rigup.planner.rules.rule import ENGINE_JUDGEMENT
from rigup.programs import judge
from rigup.systemd.release import ServiceRelease

STEP = "judgement"
_ARCHIVE = f"{layout.PROGRAMS}/judge.zip"
_TOKEN_SECONDS = 60
QUIET_SECONDS = 180.0
"""Without computing: it waits for nothing but its disk, from which it reads some GB of libraries."""
_RUN = 'exec "$0" -m "$1" < "$2" > "$3"'
_AWAIT = 'i=0; while [ ! -e "$1" ] && [ "$i" -lt "$2" ]; do sleep 1; i=$((i+1)); done'
# Where the engine would keep what it compiles: the job's own /tmp.
_KEPT = ("HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
# What to do where an engine says this: a template of the match's groups.
_HINTS = (
    (r"estimated maximum model length is (\d+)", "set context = {0} for the service"),
    (r"max_num_seqs \(\d+\) exceeds available .* blocks \((\d+)\)", 'add "--max-num-seqs": "{0}" to its flags'),
    (r"Free memory on device", "stop what holds memory of the cards: nvidia-smi names it"),
)


@dataclass(frozen=True)
class FileSource:
    """Where a checkpoint's small files come from; as for `checkpoint_files`."""

    hub: str
    token_file: str | None = None
    wheelhouse: Path | None = None


def can_judge(plan: Plan) -> bool:
    """Whether the engine of a plan has a judge: one that was installed as an environment for GPUs, on one host."""
    build, checkpoint = plan.build, plan.checkpoint
    if build is None or checkpoint is None or checkpoint.revision is None or checkpoint.location or plan.nodes:
        return False
    return build.engine in judge.ENGINES and build.method == "wheel" and build.variant == "cuda"


def step_name(plan: Plan) -> str:
    """The name of the step that asks about a plan."""
    return f"ask {_engine(plan)} about {plan.service.name}"


@operation()
def judged(
    plan: BoundPlan,
    build_name: str,
    wanted: ServiceRelease,
    free_mib: Callable[[Probe], int | None],
    source: FileSource,
) -> Generator[FunctionCommand, None, None]:
    """Has the engine judge a plan whose release the host does not have yet. A refusal ends the run.

    + build_name: of the build, which is on the host when this is executed
    + wanted: the release that the plan makes
    + free_mib: the least that a card of the plan has free, by the probe
    + source: of the checkpoint's small files
    """
    if is_current(host.get_fact(CurrentRelease, service=wanted.service), wanted):
        host.noop(f"{wanted.service} is at this release")
        return
    yield step(_judge, plan.offline, build_name, free_mib, source)


def _judge(
    host: Host, plan: Plan, build_name: str, free_mib: Callable[[Probe], int | None], source: FileSource
) -> None:
    probe = read_probe(host)
    judgement = ask(host, probe, plan, build_name, free_mib(probe), source)
    name = plan.service.name
    if judgement.refusal and ENGINE_JUDGEMENT not in plan.service.allow:
        message, hint = refusal(plan, judgement)
        raise HostFailed(f"{host.name}: {message}", hint)
    report(Progress(host.name, "log", text=f"{name}: {text_of(plan, judgement)}"))


def refusal(plan: Plan, judgement: Judgement) -> tuple[str, str]:
    """The message and the hint about a plan that its engine refuses."""
    found = ((re.search(pattern, judgement.refusal), text) for pattern, text in _HINTS)
    hint = next((text.format(*match.groups()) for match, text in found if match), "change what it names")
    against = f'to start it all the same: allow = ["{ENGINE_JUDGEMENT}"]'
    return f"{_engine(plan)} refuses {plan.service.name}: {judgement.refusal}", f"{hint}; {against}"


def text_of(plan: Plan, judgement: Judgement) -> str:
    """What an engine said of a plan, in a sentence."""
    if judgement.refusal:
        return f"{_engine(plan)} refuses the plan, which allow has started all the same: {judgement.refusal}"
    if judgement.failed:
        return f"{_engine(plan)} could not be asked about the plan: {judgement.failed}"
    said = []
    if judgement.weights_mib is not None:
        said.append(f"{judgement.weights_mib / 1024:.1f} GiB of weights on a GPU")
    if judgement.tokens is not None:
        planned = f" (planned: {plan.kv_tokens:,})" if plan.kv_tokens else ""
        said.append(f"{judgement.tokens:,} tokens of KV cache{planned}")
    said += [f"{part} {', '.join(names)}" for part, names in judgement.kernels.items()]
    return f"{_engine(plan)} takes the plan" + (f": {'; '.join(said)}" if said else "")


def ask(host: Host, probe: Probe, plan: Plan, build_name: str, free_mib: int | None, source: FileSource) -> Judgement:
    """Asks the engine of a build on the host about a plan. `failed` says what kept the judge from its work.

    probe: of the host now. free_mib: the least that a card of the plan has free; None if that is not known.
    """
    assert plan.build is not None
    folder = f"{layout.JUDGED}/{plan.service.name}"
    unit = layout.job_unit("build", f"judge-{plan.service.name}")
    job = jobs.Job(
        unit=unit,
        step=STEP,
        command=_command(f"{layout.BUILDS}/{build_name}/bin/python", plan.build.engine, unit, folder),
        writable=(folder,),
        private_network=True,
        gpus=True,
        quiet_seconds=QUIET_SECONDS,
        expendable=True,
    )
    try:
        (bound,) = bind((plan,), probe)
        cards = [card for _, card in cards_of(bound, probe)]
        if len(cards) < len(plan.memory) or not all(card.compute_capability for card in cards):
            return Judgement(failed="not every card of the plan responds")
        remote.make_folders(host, layout.CACHE, layout.JUDGED)
        remote.make_folders(host, folder, owner=layout.WORKER_USER)
        case = case_of(plan, cards, free_mib) | {"folder": _files(host, plan, folder, source)}
        remote.write_file(host, _ARCHIVE, judge.archive())
        remote.write_file(host, layout.job_file(unit), json.dumps(case) + "\n", "640", layout.WORKER_USER)
        report(Progress(host.name, STEP, text=f"asking {_engine(plan)} about {plan.service.name}"))
        jobs.run(host, job)
        text = remote.read_workers_file(host, f"{folder}/answer.json") or ""
        return parse(text, plan.build.engine)
    except jobs.Cancelled:
        raise
    except HostFailed as error:
        return Judgement(failed=error.message)
    except Unreadable as error:
        return Judgement(failed=str(error))
    finally:
        with contextlib.suppress(HostFailed, *remote.CONNECTION_ERRORS):
            remote.run(host, "rm", "-rf", "--", folder, layout.job_file(unit))


def _command(python: str, engine: str, unit: str, folder: str) -> tuple[str, ...]:
    own = [f"{name}=/tmp/{name.lower()}" for name in _KEPT]
    words = ("sh", "-c", _RUN, python, f"rigup.programs.judge.{engine}", layout.job_file(unit), f"{folder}/answer.json")
    return ("env", *own, "CUDA_DEVICE_ORDER=PCI_BUS_ID", f"PYTHONPATH={_ARCHIVE}", *words)


def _files(host: Host, plan: Plan, folder: str, source: FileSource) -> str:
    """The folder with the checkpoint's small files: where its weights are, or with those alone. Raises HostFailed."""
    checkpoint = plan.checkpoint
    assert checkpoint is not None and checkpoint.revision is not None
    complete = layout.weights_folder(checkpoint.repo, checkpoint.revision)
    if remote.run(host, "test", "-d", complete).ok:
        return complete
    if source.token_file:  # the step that downloads the weights writes it, beside this one
        remote.script(host, _AWAIT, source.token_file, str(_TOKEN_SECONDS), timeout=_TOKEN_SECONDS + 30)
    small = f"{folder}/files"
    fetch_small_files(host, checkpoint, small, source.hub, source.token_file, source.wheelhouse)
    return small


def case_of(plan: Plan, cards: list[ProbedGpu], free_mib: int | None) -> dict[str, Any]:
    """The case of a judge on a host, but for its folder. cards: of the plan. free_mib: as for `ask`. Pure."""
    given = next(place for place, word in enumerate(plan.command) if word.startswith(f"{layout.WEIGHTS}/"))
    least = min(cards, key=lambda card: card.memory_total_mib or 0)
    memory = (least.memory_total_mib or 0) - (least.memory_reserved_mib or 0)
    return {
        "id": plan.service.name,
        "gpu": {
            "index": cards[0].index,
            "name": cards[0].name,
            "capability": [int(part) for part in cards[0].compute_capability.split(".")],
            "memory_mib": memory,
            "free_mib": memory if free_mib is None else min(memory, free_mib),
            "nvlink": bool(cards[0].nvlinks),
            "unified": cards[0].memory_of_host,
        },
        "gpus": len(cards),
        "environment": {name: value for name, value in plan.environment.items() if name not in (VISIBLE, *_KEPT)},
        "arguments": list(plan.command[given + 1 :]),
        **_room(plan, least.memory_reserved_mib or 0),
        "words": f"{WORDS}|{USAGE}",
    }


def _room(plan: Plan, reserved_mib: int) -> dict[str, int]:
    """What the plan has for the cache, or what it counts beside cache and weights, for a judge that weighs these."""
    assert plan.build is not None
    if plan.build.engine in judge.WEIGHING:
        return {"beside_mib": max(row.overhead_mib for row in plan.memory) - reserved_mib}
    return {"cache_mib": max(row.kv_cache_mib for row in plan.memory)}


def _engine(plan: Plan) -> str:
    assert plan.build is not None
    return f"{plan.build.engine} {plan.build.version}"
