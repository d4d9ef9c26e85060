"""A fleet on disk as Prometheus is to scrape it. No host is asked, and no key is read."""

from __future__ import annotations

from rigup.errors import InputError
from rigup.gateway.inventory import read_gateway
from rigup.monitoring.scrape_config import ScrapeConfig, ScrapedHost, scrape_config_of
from rigup.plan import Plan, plans_by_host
from rigup.project.inventory import HostEntry, Project
from rigup.project.planning import plan_project
from rigup.project.settings import monitoring_of


def scraping_of(project: Project, here: str | None) -> ScrapeConfig:
    """What is to be asked of a project's hosts. here: the host that Prometheus runs on, where it is one of them.

    Raises InputError where that is none of them.
    """
    names = [bare_name(host.name) for host in project.hosts]
    if here is not None and bare_name(here) not in names:
        raise InputError(f'--from: "{here}" is not a host of this inventory', f"choose from: {', '.join(names)}")
    plans = plans_by_host(plan_project(project))
    return scrape_config_of(_scraped(project, host, plans.get(host.name, ()), here) for host in project.hosts)


def bare_name(host: str) -> str:
    """A host's name in an inventory without the user."""
    return host.rpartition("@")[2]


def _scraped(project: Project, host: HostEntry, plans: tuple[Plan, ...], here: str | None) -> ScrapedHost:
    name = bare_name(host.name)
    monitoring = monitoring_of(host.data, plans, project.root, f"{host.origins.get('monitoring')}: monitoring")
    address = str(host.data.get("ssh_hostname") or name)
    on_this_host = here is not None and bare_name(here) == name
    return ScrapedHost(name, address, host.group, plans, monitoring, on_this_host, _gateway(host))


def _gateway(host: HostEntry) -> tuple[str, int] | None:
    if host.data.get("gateway") is None:
        return None
    gateway = read_gateway(host.data["gateway"], f"{host.origins['gateway']}: gateway")
    return gateway.metrics_listen, gateway.metrics_port
