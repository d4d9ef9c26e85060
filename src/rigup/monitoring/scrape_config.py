"""What Prometheus is to ask, from a fleet's plans: its configuration, with what it cannot reach named in it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rigup.catalogue.monitoring import exporter_facts
from rigup.monitoring.exporters import address
from rigup.plan import Monitoring, Plan
from rigup.systemd.api_key import is_loopback, wants_key

# Prometheus allows no dot where the engines' own metrics have none either.
JOBS = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llamacpp"}
ANY = ("0.0.0.0", "::")  # noqa: S104  compared with, not bound


@dataclass(frozen=True)
class ScrapedHost:
    """A host as it is to be scraped. address: where others reach it. here: whether Prometheus runs on it."""

    name: str
    address: str
    group: str
    plans: tuple[Plan, ...]
    monitoring: Monitoring | None
    here: bool = False


@dataclass(frozen=True)
class ScrapeTarget:
    """One /metrics. address: HOST:PORT. key_file: holds the key that it wants, relative to the configuration; or ""."""

    job: str
    address: str
    labels: dict[str, str]
    key_file: str = ""


@dataclass(frozen=True)
class SkippedTarget:
    """One /metrics that is not asked, and why; hint: what helps."""

    host: str
    what: str
    why: str
    hint: str


@dataclass(frozen=True)
class ScrapeConfig:
    """All of a fleet's."""

    targets: tuple[ScrapeTarget, ...] = ()
    left_out: tuple[SkippedTarget, ...] = ()


def scrape_config_of(hosts: Iterable[ScrapedHost]) -> ScrapeConfig:
    """What is to be asked of these hosts, and what cannot be."""
    found = [part for host in hosts for part in (*_engines(host), *_exporters(host))]
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
            continue  # of a service that spans hosts, the first one answers for all
        engine = plan.build.engine
        labels = {"host": host.name, "group": host.group, "service": service.name, "engine": engine}
        guarded = wants_key(service) and engine in exporter_facts().engines.key_wanted
        key_file = f"keys/{host.name}.{service.name}.key" if guarded else ""
        yield _target(host, JOBS[engine], service.name, service.listen, service.port, labels, key_file)


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
    host: ScrapedHost, job: str, what: str, listen: str, port: int, labels: dict[str, str], key_file: str = ""
) -> ScrapeTarget | SkippedTarget:
    """Where Prometheus reaches what listens there, if it does."""
    if is_loopback(listen):
        if host.here:
            return ScrapeTarget(job, address(listen, port), labels, key_file)
        hint = f'set listen = "0.0.0.0" or an address; or run Prometheus on that host: --from {host.name}'
        return SkippedTarget(host.name, what, f"listens on {address(listen, port)}, for that host only", hint)
    reached = ("127.0.0.1" if host.here else host.address) if listen in ANY else listen
    return ScrapeTarget(job, address(reached, port), labels, key_file)


def prometheus_yml(scraped: ScrapeConfig, source: str, interval_s: int = 15, rules: str = "alerts.yml") -> str:
    """The configuration. source: what it was made from, for its first line. rules: a file beside it.

    A target with a key is a job of its own, since a key belongs to a job; its label `job` is that of the others.
    """
    lines = [
        f"# Written by rigup metrics from {source}",
        "global:",
        f"  scrape_interval: {interval_s}s",
        f"  evaluation_interval: {interval_s}s",
        f"rule_files: {json.dumps([rules])}",
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
        labels: dict[str, Any] = {**target.labels, **(more or {})}
        yield f"      - targets: {json.dumps([target.address])}"
        yield f"        labels: {json.dumps(labels)}"
