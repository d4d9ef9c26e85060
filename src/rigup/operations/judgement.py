"""An engine that was just installed judges a plan on the cards of its host, before the release is changed.

The judge is rigup's (docs/judges.md): the engine's own code, without computing on a card or taking memory of one. Of
the checkpoint it reads the small files or the beginnings of the large ones, so that a plan is refused while its weights
are still on their way.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.bounds import Unreadable
from rigup.facts.judgement import Judgement
from rigup.facts.probe import Probe, read_probe
from rigup.host import Host
from rigup.operations.judges import judge_of
from rigup.operations.judges.question import Question
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.operations.service.gpu_binding import bind, cards_of
from rigup.operations.service.releases import CurrentRelease, is_current
from rigup.operations.weights.checkpoint import FileSource
from rigup.plan import BoundPlan, Plan
from rigup.planner.rules.rule import ENGINE_JUDGEMENT
from rigup.systemd.release import ServiceRelease

STEP = "judgement"
QUIET_SECONDS = 180.0
"""Without computing: it waits for nothing but its disk, from which it reads some GB of libraries."""
# What to do where an engine says this: a template of the match's groups.
_HINTS = (
    (r"estimated maximum model length is (\d+)", "set context = {0} for the service"),
    (r"max_num_seqs \(\d+\) exceeds available .* blocks \((\d+)\)", 'add "--max-num-seqs": "{0}" to its flags'),
    (r"Free memory on device", "stop what holds memory of the cards: nvidia-smi names it"),
    (r"^GPU \d+ needs", "set a smaller context, or stop what holds memory of the cards: nvidia-smi names it"),
)


def can_judge(plan: Plan) -> bool:
    """Whether the engine of a plan has a judge: a build for GPUs, not an image, on one host, of files from a hub."""
    files = plan.checkpoints
    if plan.build is None or plan.nodes or plan.swap or plan.members or not files:
        return False
    pinned = all(checkpoint.revision is not None and not checkpoint.location for checkpoint in files)
    return pinned and judge_of(plan.build) is not None


def step_name(plan: Plan) -> str:
    """The name of the step that asks about a plan."""
    return f"ask {_engine(plan)} about {plan.service.name}"


@operation()
def judged(
    plan: BoundPlan,
    build_name: str,
    wanted: ServiceRelease,
    free_mib: Callable[[Probe], tuple[int, ...]],
    source: FileSource,
) -> Generator[FunctionCommand, None, None]:
    """Has the engine judge a plan whose release the host does not have yet. A refusal ends the run.

    + build_name: of the build, which is on the host when this is executed
    + wanted: the release that the plan makes
    + free_mib: what each card of the plan has free, by the probe
    + source: of the checkpoint's small files
    """
    if is_current(host.get_fact(CurrentRelease, service=wanted.service), wanted):
        host.noop(f"{wanted.service} is at this release")
        return
    yield step(_judge, plan.offline, build_name, free_mib, source)


def _judge(
    host: Host, plan: Plan, build_name: str, free_mib: Callable[[Probe], tuple[int, ...]], source: FileSource
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
    if judgement.fullest:
        most = max(row.weights_mib + row.kv_cache_mib + row.overhead_mib for row in plan.memory)
        said.append(f"{judgement.fullest.text} on the fullest GPU (planned: {most / 1024:.1f} GiB)")
    elif judgement.weights_mib is not None:
        said.append(f"{judgement.weights_mib / 1024:.1f} GiB of weights on a GPU")
    if judgement.tokens is not None:
        planned = f" (planned: {plan.kv_tokens:,})" if plan.kv_tokens else ""
        said.append(f"{judgement.tokens:,} tokens of KV cache{planned}")
    said += [f"{part} {', '.join(names)}" for part, names in judgement.kernels.items()]
    return f"{_engine(plan)} takes the plan" + (f": {'; '.join(said)}" if said else "")


def ask(
    host: Host, probe: Probe, plan: Plan, build_name: str, free_mib: tuple[int, ...], source: FileSource
) -> Judgement:
    """Asks the engine of a build on the host about a plan. `failed` says what kept the judge from its work.

    probe: of the host now. free_mib: what each card of the plan has free; () if that is not known.
    """
    assert plan.build is not None
    judge = judge_of(plan.build)
    assert judge is not None
    folder = f"{layout.JUDGED}/{plan.service.name}"
    unit = layout.job_unit("build", f"judge-{plan.service.name}")
    try:
        (bound,) = bind((plan,), probe)
        cards = tuple(card for _, card in cards_of(bound, probe))
        if len(cards) < len(plan.memory) or not all(card.compute_capability for card in cards):
            return Judgement(failed="not every card of the plan responds")
        free = free_mib if len(free_mib) == len(cards) else ()
        question = Question(plan, cards, free, f"{layout.BUILDS}/{build_name}", folder, layout.job_file(unit), source)
        remote.make_folders(host, layout.CACHE, layout.JUDGED)
        remote.make_folders(host, folder, owner=layout.WORKER_USER)
        command = judge.prepare(host, question)
        report(Progress(host.name, STEP, text=f"asking {_engine(plan)} about {plan.service.name}"))
        jobs.run(host, _job(unit, command, folder, judge.SEES_CARDS))
        found: Judgement = judge.read(remote.read_workers_file(host, question.answer) or "", question)
        return found
    except jobs.Cancelled:
        raise
    except HostFailed as error:
        return Judgement(failed=error.message)
    except Unreadable as error:
        return Judgement(failed=str(error))
    finally:
        with contextlib.suppress(HostFailed, *remote.CONNECTION_ERRORS):
            remote.run(host, "rm", "-rf", "--", folder, layout.job_file(unit))


def _job(unit: str, command: tuple[str, ...], folder: str, sees_cards: bool) -> jobs.Job:
    return jobs.Job(
        unit=unit,
        step=STEP,
        command=command,
        writable=(folder,),
        private_network=True,
        gpus=sees_cards,
        quiet_seconds=QUIET_SECONDS,
        expendable=True,
    )


def _engine(plan: Plan) -> str:
    assert plan.build is not None
    return f"{plan.build.engine} {plan.build.version}"
