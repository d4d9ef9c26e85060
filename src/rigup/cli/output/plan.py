"""Shows plans as text: a block per rig with memory bars, the command and findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from rigup.cli.output.console import show_findings, show_indented
from rigup.cli.output.gateways import show_gateways
from rigup.cli.output.memory_bars import bars
from rigup.gateway_settings import GatewayPlan
from rigup.plan import Alternative, GpuMemory, Plan, Swap
from rigup.planner.kernels import kernels_text
from rigup.planner.multinode.nodes import NodeCommand, named
from rigup.units import bytes_text, seconds_text

SHOWN_HOSTS = 3
SHOWN_OTHERS = 8


def show(
    plans: Iterable[Plan],
    console: Console,
    explain: bool = False,
    idle: Sequence[str] = (),
    gateways: Sequence[GatewayPlan] = (),
    disabled: Sequence[tuple[str, str]] = (),
) -> None:
    """Prints every plan once, with equal hosts of a group together, what gateways offer, and a final count.

    idle: hosts that neither serve anything nor are gateways. disabled: hosts with services that are to stay stopped.
    """
    plans = tuple(plans)
    for index, (plan, hosts) in enumerate(alike(plans)):
        if index:
            console.print()
        _show_heading(plan, hosts, console)
        if plan.verdict == "ok":
            _show_decided(plan, _together(plan, plans), console)
        show_findings("refused", plan.refusals, console)
        show_findings("warning", plan.warnings, console)
        if plan.silenced:
            console.print(f"  silenced: {', '.join(plan.silenced)}", soft_wrap=True)
        _show_alternatives(plan, console)
        if explain:
            _show_figures(plan, console)
    if gateways:
        show_gateways(gateways, console)
    if idle:
        console.print("\n" * bool(plans) + f"{', '.join(idle)}: serves nothing (services is empty)", soft_wrap=True)
        console.print("  rigup apply --remove removes earlier services", soft_wrap=True)
    if disabled:
        console.print()
    for host, service in disabled:
        console.print(f"{host}: {service}: stays stopped (enabled = False)", soft_wrap=True)
    services = [plan for plan in plans if not plan.rank]
    refused = sum(plan.verdict == "refused" for plan in services)
    planned = len(services) - refused
    count = f"{planned or 'no'} service{'' if planned == 1 else 's'} planned"
    console.print(f"\n{count}, {refused} refused" if refused else f"\n{count}, none refused")


def alike(plans: Sequence[Plan]) -> list[tuple[Plan, list[str]]]:
    """Groups plans that differ only in the host; a service over several hosts appears as its head's plan."""
    found: dict[str, tuple[Plan, list[str]]] = {}
    ranks = {(plan.service.name, plan.host) for plan in plans}
    for plan in plans:
        if plan.rank and (plan.service.name, plan.nodes[0].host) in ranks:
            continue
        _, hosts = found.setdefault(plan.model_dump_json(exclude={"host", "nodes"}), (plan, []))
        hosts.append(" + ".join(node.host for node in plan.nodes) or plan.host)
    return list(found.values())


def _together(plan: Plan, plans: Sequence[Plan]) -> list[Plan]:
    """This plan, followed by those of the hosts in the same node group."""
    others = (other for other in plans if other.service.name == plan.service.name and other.nodes == plan.nodes)
    return [plan, *(other for other in others if plan.nodes and other.host != plan.host)]


def _show_heading(plan: Plan, hosts: list[str], console: Console) -> None:
    names = ", ".join(hosts[:SHOWN_HOSTS]) + (", ..." if len(hosts) > SHOWN_HOSTS else "")
    several = f"{len(hosts)} times {len(plan.nodes)} hosts" if plan.nodes else f"{len(hosts)} hosts"
    where = names if len(hosts) == 1 else f"{several}: {names}"
    verdict = Text(" REFUSED", "bold red") if plan.verdict == "refused" else Text("")
    console.print(
        Text.assemble((f"{plan.group} / {plan.service.name}", "bold"), verdict, f"  ({where})"), soft_wrap=True
    )
    console.print(f"  {plan.rig.text}", soft_wrap=True)


def _show_decided(plan: Plan, together: Sequence[Plan], console: Console) -> None:
    assert plan.build is not None
    if plan.checkpoint is not None:
        checkpoint = f"{plan.checkpoint.repo} {plan.checkpoint.quant} ({bytes_text(plan.checkpoint.bytes)})"
        _show_line(console, "serves", checkpoint)
    _show_line(
        console, "with", f"{plan.build.engine} {plan.build.version} ({plan.build.method}), {parallel_text(plan)}"
    )
    if plan.build.method == "image":
        _show_line(console, "image", plan.build.image.reference if plan.build.image else "not locked; run rigup lock")
    _show_line(console, "context", context_text(plan))
    if plan.decode_tokens_per_second is not None:
        _show_line(console, "estimate", speed_text(plan))
    if plan.kernels:
        _show_line(console, "kernels", kernels_text(plan))
    if plan.quality:
        _show_line(console, "quality", plan.quality)
    for sentence in plan.traded:
        _show_line(console, "traded", sentence)
    if plan.speculative:
        _show_line(console, "drafts", plan.speculative)
    if plan.host_memory_mib:
        _show_line(console, "host", host_memory_text(together))
    if plan.swap is not None:
        _show_line(console, "swaps", swap_text(plan, plan.swap))
    _show_line(console, "stops", stop_text(plan))
    for hosts, part in _alike_in_memory(together):
        _show_memory(part, hosts, console)
    if plan.moe_config is not None:
        _show_line(console, "kernel", f"{plan.moe_config.file} ({plan.moe_config.status})")
    for part in together:
        console.print()
        if plan.nodes:
            console.print(f"  on {part.host}" + ("" if part.command else ": Ray only; the engine runs on the head"))
        if part.command and (plan.swap is None or plan.swap.resident):
            _show_command(named(part), console)
    if plan.swap is not None:
        console.print("\n" * plan.swap.resident, end="")
        for line in plan.swap.preset.splitlines():
            console.print(Text(f"  {line}"), soft_wrap=True)


def host_memory_text(together: Sequence[Plan]) -> str:
    """Host memory use, once if it is the same on all hosts."""
    sizes = {part.host: f"{(part.host_memory_mib or 0) / 1024:.1f} GiB" for part in together}
    if len(set(sizes.values())) == 1:
        each = " on each host" if len(together) > 1 else ""
        return f"{sizes[together[0].host]} of host memory{each}"
    return ", ".join(f"{size} on {host}" for host, size in sizes.items())


def _alike_in_memory(together: Sequence[Plan]) -> list[tuple[list[str], Plan]]:
    found: dict[tuple[GpuMemory, ...], tuple[list[str], Plan]] = {}
    for part in together:
        hosts, _ = found.setdefault(part.memory, ([], part))
        hosts.append(part.host)
    return list(found.values())


def _show_memory(plan: Plan, hosts: Sequence[str], console: Console) -> None:
    if not plan.memory:
        return
    names = {index: gpu.name for index, gpu in enumerate(plan.rig.gpus)}
    console.print(f"\n  on {', '.join(hosts)}" if plan.nodes else "")
    for line in bars(plan.memory, names, _ascii_only(console)):
        console.print(Text("  ").append_text(line), soft_wrap=True)


def _show_line(console: Console, label: str, text: str) -> None:
    console.print(Text.assemble(("  " + label.ljust(9), "dim"), text), soft_wrap=True)


def parallel_text(plan: Plan) -> str:
    """Text for the model's distribution: "tensor parallel 4", "layers over 3 GPUs", "on the CPU"."""
    hosts = f" over {len(plan.nodes)} hosts" if plan.nodes else ""
    sizes = {kind: size for kind, size in plan.parallel.model_dump().items() if size > 1} if plan.parallel else {}
    if sizes and (plan.rig.gpus or hosts):
        return ", ".join(f"{kind} parallel {size}" for kind, size in sizes.items()) + hosts
    if not plan.rig.gpus:
        return f"layers{hosts}, on their CPUs" if hosts else "on the CPU"
    gpus = f"{len(plan.memory)} GPUs" if len(plan.memory) > 1 else "one GPU"
    if hosts:
        return f"layers{hosts}, {gpus} each"
    return f"layers over {gpus}" if len(plan.memory) > 1 else "on one GPU"


def context_text(plan: Plan) -> str:
    """Context length, cache type and token capacity."""
    text = f"{plan.context:,} tokens, KV cache {plan.kv_cache_type}"
    return f"{text}, room for {plan.kv_tokens:,} tokens" if plan.kv_tokens else text


def speed_text(plan: Plan) -> str:
    """The estimated decode speed of one request, with its context empty and full, and at the service's concurrency."""
    alone, full, together = plan.decode_tokens_per_second, plan.decode_with_full_context, plan.decode_at_concurrency
    text = f"{alone.low:.0f} to {alone.high:.0f} tokens/s for one request" if alone else ""
    if full is not None:
        text += f", {full.low:.0f} to {full.high:.0f} with its context full"
    if together is not None:
        text += f", {together.low:.0f} to {together.high:.0f} for {plan.service.concurrency} together"
    return f"{text}; slower for {alone.note}" if alone and alone.note else text


def swap_text(plan: Plan, swap: Swap) -> str:
    """With which services it takes turns, and what loading it costs."""
    when = "loaded at the start" if swap.resident else "loaded on its first request"
    cost = f"{bytes_text(swap.bytes)} in {seconds_text(swap.low)} to {seconds_text(swap.high)}"
    names = [
        *swap.others[:SHOWN_OTHERS],
        *([f"{len(swap.others) - SHOWN_OTHERS} others"] if len(swap.others) > SHOWN_OTHERS else []),
    ]
    return f"takes turns with {', '.join(names)} on port {plan.service.port}; {when}: {cost}"


def stop_text(plan: Plan) -> str:
    """What becomes of the requests in flight when the service stops."""
    seconds = plan.service.drain_timeout
    return f"after the requests in flight, within {seconds} s" if seconds else "at once: requests in flight are cut"


def _show_command(words: NodeCommand, console: Console) -> None:
    variables = [f"{name}={shlex.quote(value)}" for name, value in words.environment.items()]
    argv = [shlex.quote(word) for word in words.command]
    for line in command_lines([*variables, *argv], console.width - 4):
        console.print(Text(f"  {line}"), soft_wrap=True)


def command_lines(words: Sequence[str], width: int) -> list[str]:
    """Wraps argv into lines of a shell command, keeping an option with its value."""
    pieces: list[str] = []
    for word in words:
        if pieces and pieces[-1].startswith("-") and " " not in pieces[-1] and not word.startswith("-"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    lines: list[str] = []
    for piece in pieces:
        if lines and len(lines[-1]) + len(piece) + 3 <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece if not lines else f"  {piece}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _show_alternatives(plan: Plan, console: Console) -> None:
    if not plan.alternatives:
        return
    console.print("  alternatives that fit:" if plan.verdict == "refused" else "  alternatives:")
    for other in plan.alternatives:
        show_indented(Text(f"- {alternative_text(other, plan.verdict)}"), 4, console)


def alternative_text(other: Alternative, verdict: str) -> str:
    """Text of one alternative. After a refusal, `why` already names engine and context."""
    if verdict == "refused":
        return f"{other.checkpoint.partition(' ')[0]}, {other.why}"
    return f"{other.checkpoint} on {other.engine}, {other.context:,} tokens: {other.why}"


def _show_figures(plan: Plan, console: Console) -> None:
    if plan.figures:
        console.print("  based on:")
    for figure in plan.figures:
        text = Text.assemble(f"{figure.subject}: {figure.figure} = {figure.value}", (f"  ({figure.source})", "dim"))
        show_indented(text, 4, console)
    for finding in (*plan.refusals, *plan.warnings):
        if finding.source:
            show_indented(Text.assemble(f"rule {finding.rule}", (f"  ({finding.source})", "dim")), 4, console)


def _ascii_only(console: Console) -> bool:
    return not console.encoding.lower().startswith("utf")
