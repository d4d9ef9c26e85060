"""Prometheus' configuration from a fleet's plans, with a list of targets that Prometheus cannot reach. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rigup.catalogue.tools.monitoring import exporter_facts
from rigup.plan import Monitoring, Plan
from rigup.systemd.api_key import is_loopback, wants_key
from rigup.units import with_port

# Prometheus does not allow a dot here; the engines' own metrics do not have one either.
JOBS = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llamacpp"}
# Each service that takes turns has it: the first of its group, which their unit has its name from.
SWAP_GROUP = "swap_group"
ANY = ("0.0.0.0", "::")  # noqa: S104  compared, not bound


@dataclass(frozen=True)
class ScrapedHost:
    """A host to scrape. address: the one at which others reach it. here: whether Prometheus runs on it.

    gateway: where its gateway's metrics are, address and port; None for a host without.
    """

    name: str
    address: str
    group: str
    plans: tuple[Plan, ...]
    monitoring: Monitoring | None
    here: bool = False
    gateway: tuple[str, int] | None = None


@dataclass(frozen=True)
class ScrapeTarget:
    """One /metrics. address: HOST:PORT. key_file: the API key's file, relative to the configuration; "" without.

    parameters: of its query.
    """

    job: str
    address: str
    labels: dict[str, str]
    key_file: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SkippedTarget:
    """One /metrics that Prometheus cannot scrape, and why. hint: how to change that."""

    host: str
    what: str
    why: str
    hint: str


@dataclass(frozen=True)
class ScrapeConfig:
    """The targets of a fleet. left_out: targets that Prometheus cannot scrape."""

    targets: tuple[ScrapeTarget, ...] = ()
    left_out: tuple[SkippedTarget, ...] = ()


def scrape_config_of(hosts: Iterable[ScrapedHost]) -> ScrapeConfig:
    """The targets of these hosts, and those that Prometheus cannot scrape."""
    found = [part for host in hosts for part in (*_engines(host), *_gateway(host), *_exporters(host))]
    return ScrapeConfig(
        tuple(part for part in found if isinstance(part, ScrapeTarget)),
        tuple(part for part in found if isinstance(part, SkippedTarget)),
    )


def _engines(host: ScrapedHost) -> Iterator[ScrapeTarget | SkippedTarget]:
    for plan in host.plans:
        service = plan.service
        if plan.build is None:
            yield SkippedTarget(host.name, service.name, "its plan is refused", "see why: rigup plan")
            continue
        if plan.rank:
            continue  # in a node group, only the head serves /metrics
        engine = plan.build.engine
        labels = {"host": host.name, "group": host.group, "service": service.name, "engine": engine}
        labels |= {SWAP_GROUP: plan.swap.first} if plan.swap else {}
        guarded = wants_key(service) and engine in exporter_facts().engines.key_wanted
        key_file = f"keys/{host.name}.{plan.swap.first if plan.swap else service.name}.key" if guarded else ""
        found = _target(host, JOBS[engine], service.name, service.listen, service.port, labels, key_file)
        if plan.swap and isinstance(found, ScrapeTarget):
            # the router answers for the model that is named if it is loaded, and is not to load it for that
            found = replace(found, parameters={"model": plan.served_name, "autoload": "false"})
        yield found


def _gateway(host: ScrapedHost) -> Iterator[ScrapeTarget | SkippedTarget]:
    if host.gateway is not None:
        labels = {"host": host.name, "group": host.group}
        yield _target(host, "gateway", "gateway", *host.gateway, labels, key="metrics_listen")


def _exporters(host: ScrapedHost) -> Iterator[ScrapeTarget | SkippedTarget]:
    wanted, labels = host.monitoring, {"host": host.name, "group": host.group}
    if wanted is None:
        yield SkippedTarget(
            host.name, "the machine itself", "no exporter runs there", "set monitoring = {} in group_data"
        )
        return
    for job, key in (("node", "port"), ("dcgm", "dcgm_port")):
        if key in wanted.listeners:
            yield _target(host, job, f"{job} exporter", wanted.listen, wanted.listeners[key], labels)


def _target(
    host: ScrapedHost,
    job: str,
    what: str,
    listen: str,
    port: int,
    labels: dict[str, str],
    key_file: str = "",
    key: str = "listen",
) -> ScrapeTarget | SkippedTarget:
    """The target for a listener, if Prometheus can reach it. key: of the inventory that says where it listens."""
    if is_loopback(listen):
        if host.here:
            return ScrapeTarget(job, with_port(listen, port), labels, key_file)
        hint = f'set {key} = "0.0.0.0" or an address; or run Prometheus on that host: --from {host.name}'
        return SkippedTarget(host.name, what, f"listens on {with_port(listen, port)}, for that host only", hint)
    reached = ("127.0.0.1" if host.here else host.address) if listen in ANY else listen
    return ScrapeTarget(job, with_port(reached, port), labels, key_file)


def prometheus_yml(scraped: ScrapeConfig, source: str, interval_s: int = 15) -> str:
    """The text of the configuration. source: what it was made from, for the first line.

    A target with a key gets its own job, because a key belongs to a job; the label `job` stays the same.
    """
    lines = [
        f"# Written by rigup metrics from {source}",
        "global:",
        f"  scrape_interval: {interval_s}s",
        f"  evaluation_interval: {interval_s}s",
        'rule_files: ["alerts.yml"]',
        "scrape_configs:" if scraped.targets else "scrape_configs: []",
    ]
    jobs = dict.fromkeys(target.job for target in scraped.targets)
    for job in jobs:
        lines += _job(job, [target for target in scraped.targets if target.job == job and not target.key_file])
        for target in (target for target in scraped.targets if target.job == job and target.key_file):
            name = f"{job} {target.labels['host']} {target.labels['service']}"
            lines += _job(name, [target], {"job": job}, target.key_file)
    if scraped.left_out:
        lines += ["", "# Left out because Prometheus could not reach it:"]
        lines += [f"#   {out.host}: {out.what}: {out.why}; {out.hint}" for out in scraped.left_out]
    return "".join(f"{line}\n" for line in lines)


def _job(
    name: str, targets: list[ScrapeTarget], more: dict[str, str] | None = None, key_file: str = ""
) -> Iterator[str]:
    if not targets:
        return
    yield f"  - job_name: {json.dumps(name)}"
    if key_file:
        yield "    authorization:"
        yield f"      credentials_file: {json.dumps(key_file)}"
    yield "    static_configs:"
    for target in targets:
        parameters = {f"__param_{name}": value for name, value in target.parameters.items()}
        labels: dict[str, Any] = {**target.labels, **(more or {}), **parameters}
        yield f"      - targets: {json.dumps([target.address])}"
        yield f"        labels: {json.dumps(labels)}"
