"""Shows which models fit a rig, and which rigs hold a model: as tables or as JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from rigup.catalogue.gpu_names import short_name
from rigup.catalogue.model import Model
from rigup.cli.output.json_documents.shared import CheckpointName
from rigup.cli.output.table import Column, Table
from rigup.project.fit_table import Fit, FitFilter
from rigup.rig import Rig

SCHEMA = 1
ON_HOST = "* keeps weights in host memory"
_COLUMNS = (
    *(Column("quality"), Column("quant", rank=2), Column("engine", rank=3), Column("spread", rank=1)),
    *(Column("context", right=True), Column("tokens/s", right=True)),
)


def show_rigs(
    tables: Sequence[tuple[str, Rig, list[Fit]]], wanted: FitFilter, console: Console, everything: bool
) -> None:
    """Prints a table for each rig. tables: groups, rig, and its models in order. everything: what does not fit, too."""
    for index, (groups, rig, fits) in enumerate(tables):
        if index:
            console.print()
        _print_wrapped(f"{groups}: {rig_text(rig)}" if groups else rig_text(rig), console, "bold")
        listed = [fit for fit in fits if wanted.accepts(fit)]
        if listed:
            console.print()
            _show_table("model", [(fit.model.name, fit) for fit in listed], console)
        console.print()
        lacking = [fit for fit in fits if fit.decision is None]
        if everything:
            _show_reasons([(fit.model.name, fit) for fit in lacking], console, wanted)
        unlicensed = (
            sum(bool(fit.decision) and fit.model.commercial is None for fit in fits) if wanted.commercial else 0
        )
        _print_wrapped(_count(len(listed), len(lacking), len(fits), unlicensed, everything), console)


def show_choices(rig: Rig, fits: Sequence[Fit], of: int, console: Console) -> None:
    """Prints a numbered table of models to choose from. of: how many fit."""
    _print_wrapped(rig_text(rig), console, "bold")
    console.print()
    _show_table("  model", [(f"{number} {fit.model.name}", fit) for number, fit in enumerate(fits, 1)], console)
    console.print()
    if of > len(fits):
        _print_wrapped(f"{of - len(fits)} more fit: list them with rigup fit, then write a name", console)


def show_model(
    model: Model,
    named: Sequence[tuple[str, Fit]],
    found: Sequence[Fit],
    wanted: FitFilter,
    console: Console,
    everything: bool,
) -> None:
    """Prints the rigs that serve a model: those of the inventory, then the fewest of each GPU that does.

    named: groups and the model on their rig. found: the model on the smallest rig of each GPU, or on the largest.
    """
    console.print(Text(f"{model.name}: {license_text(model)}", "bold"))
    for line in about(model):
        _print_wrapped(line, console)
    own = [(name or rig_text(fit.rig), fit) for name, fit in named]
    for head, pairs in (("rig", own), ("the fewest of each GPU", [(gpus_text(fit.rig), fit) for fit in found])):
        if not pairs:
            continue
        console.print()
        if listed := [(name, fit) for name, fit in pairs if wanted.accepts(fit)]:
            _show_table(head, listed, console)
        lacking = [(name, fit) for name, fit in pairs if not wanted.accepts(fit)]
        if lacking and (everything or pairs is own):
            _show_reasons(lacking, console, wanted)
        elif lacking:
            console.print(
                f"\n{len(lacking)} of {len(pairs)} GPUs do not hold it, up to 8 of them: list them with --all"
            )


def rigs_as_json(
    tables: Sequence[tuple[str, Rig, list[Fit]]], wanted: FitFilter, everything: bool = False
) -> dict[str, Any]:
    """The same as data. docs/fit.md lists the keys."""
    return {
        "schema": SCHEMA,
        "rigs": [
            {
                "groups": groups.split(", ") if groups else [],
                "rig": rig.text,
                "models": [_row(fit) for fit in fits if wanted.accepts(fit) or (everything and fit.decision is None)],
                "do_not_fit": sum(fit.decision is None for fit in fits),
                "filtered": sum(fit.decision is not None and not wanted.accepts(fit) for fit in fits),
            }
            for groups, rig, fits in tables
        ],
    }


def model_as_json(
    model: Model, named: Sequence[tuple[str, Fit]], found: Sequence[Fit], wanted: FitFilter
) -> dict[str, Any]:
    """The rigs of one model as data. docs/fit.md lists the keys."""

    def rows(pairs: Iterable[tuple[str, Fit]]) -> list[dict[str, Any]]:
        return [
            {
                "groups": name.split(", ") if name else [],
                "rig": fit.rig.text,
                "gpus": fit.gpu_count,
                "hosts": fit.rig.hosts_per_service,
                "accepted": wanted.accepts(fit),
                **_row(fit),
            }
            for name, fit in pairs
        ]

    return {"schema": SCHEMA, "model": model.name, "rigs": rows(named), "least": rows(("", fit) for fit in found)}


def _row(fit: Fit) -> dict[str, Any]:
    found: dict[str, Any] = {
        "model": fit.model.name,
        "fits": fit.decision is not None,
        "reason": fit.reason,
        "license": fit.model.license,
        "commercial": fit.model.commercial,
    }
    if fit.decision is None:
        return found
    candidate = fit.decision.candidate
    return found | {
        "quality": fit.quality.level if fit.quality else None,
        "checkpoint": CheckpointName.of(candidate.checkpoint),
        "engine": {"name": candidate.engine.name, "version": candidate.version},
        "parallel": candidate.parallel.model_dump(),
        "gpus_used": len(candidate.gpu_indices),
        "context": fit.context,
        "kv_cache_type": candidate.kv_cache_type,
        "decode_tokens_per_second": fit.speed.model_dump(),
        "weights_in_host_memory": fit.needs_host_memory,
    }


def _show_table(head: str, pairs: Sequence[tuple[str, Fit]], console: Console) -> None:
    """Prints one line for each pair of name and fit."""
    table = Table((Column(head, narrowest=1, own_line=True), *_COLUMNS))
    for name, fit in pairs:
        table.add(name, *cells(fit))
    console.print(table, soft_wrap=True)
    if any(fit.needs_host_memory for _, fit in pairs):
        console.print(Text(ON_HOST), soft_wrap=True)


def cells(fit: Fit) -> tuple[str, ...]:
    """Level, quantisation, engine, spread, context and estimated speed of a model that fits, as text."""
    assert fit.decision is not None and fit.quality is not None
    candidate = fit.decision.candidate
    return (
        fit.quality.level,
        candidate.checkpoint.quant,
        candidate.engine.name,
        fit.spread + "*" * fit.needs_host_memory,
        f"{fit.context:,}",
        f"{fit.speed.low:.0f}-{fit.speed.high:.0f}",
    )


def _show_reasons(pairs: Sequence[tuple[str, Fit]], console: Console, wanted: FitFilter) -> None:
    for name, fit in pairs:
        _print_wrapped(f"{name}: {fit.reason or wanted.missed_by(fit)}", console)
    if pairs:
        console.print()


def _print_wrapped(text: str, console: Console, style: str = "") -> None:
    lines = textwrap.wrap(text, console.width, subsequent_indent="  ", break_on_hyphens=False)
    console.print(Text("\n".join(lines), style), soft_wrap=True)


def _count(listed: int, lacking: int, models: int, unlicensed: int, everything: bool) -> str:
    filtered = models - listed - lacking
    parts = [f"{listed} of {models} models listed"]
    are = "is" if unlicensed == 1 else "are"
    why = f" ({unlicensed} {are} not known to allow commercial use)" if unlicensed else ""
    parts += (
        [f"{filtered} fit{'s' if filtered == 1 else ''} but {'are' if filtered > 1 else 'is'} filtered out{why}"]
        if filtered
        else []
    )
    parts += (
        [f"{lacking} {'do' if lacking > 1 else 'does'} not fit" + ("" if everything else ": list them with --all")]
        if lacking
        else []
    )
    return ", ".join(parts)


def license_text(model: Model) -> str:
    """The license of a model and whether it allows commercial use."""
    uses = {True: "", False: ", not for commercial use", None: ", commercial use not known"}[model.commercial]
    return model.license + uses if model.license else "license not known"


def about(model: Model) -> Iterator[str]:
    """What somebody who serves it should know: the maker's advice, flags of the chat template, warnings."""
    if model.sampling:
        yield "sampling: " + ", ".join(f"{name} {value:g}" for name, value in model.sampling.items())
    for name, values in model.template_flags.items():
        yield f"chat_template_kwargs: {name}: {', '.join(values)}"
    if model.eagle_heads:
        yield f"EAGLE heads: {', '.join(model.eagle_heads)}"
    yield from filter(None, (model.license_note, *model.notes))


def rig_text(rig: Rig) -> str:
    """A rig in a headline."""
    return rig.text if rig.hosts_per_service == 1 else f"{rig.hosts_per_service} hosts, each {rig.text}"


def gpus_text(rig: Rig) -> str:
    """ "4x RTX 3090"; of GPUs on hosts of their own "2x GB10 (2 hosts)"."""
    counts = Counter(short_name(gpu.name) for gpu in rig.gpus)
    hosts = rig.hosts_per_service
    text = ", ".join(f"{count * hosts}x {name}" for name, count in counts.items())
    return f"{text} ({hosts} hosts)" if hosts > 1 else text
