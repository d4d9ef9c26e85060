"""Which steps a host gets for what `monitoring` says, in which order; none of them for a host that never had any."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import rigup.operations.monitoring
import roles.monitoring
import roles.site
from rigup.errors import HostFailed
from rigup.facts.probe import Probe
from rigup.monitoring.exporters import GPU_FILES, GPU_UNITS, NODE_FILES, NODE_UNITS, TEXT_FILE
from rigup.operations.monitoring import OutdatedUnits
from rigup.plan import Monitoring
from rigup.planner.driver_packages import driver_repository
from rigup.settings import HostSettings

REPOSITORY = driver_repository("debian-12", "x86_64")
NODE, GPUS = Monitoring(), Monitoring(node_exporter=False, dcgm_exporter=True)
BOTH = Monitoring(dcgm_exporter=True)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The operations that are called, with their arguments; no unit is outdated, no file is to be changed."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def note(operation: str) -> Any:
        def noted(*arguments: Any, **words: Any) -> Any:
            calls.append((operation, {**words, "arguments": arguments}))
            return SimpleNamespace(will_change=False)

        return noted

    for name in ("removed_part", "text_files", "debian_packages", "running_units"):
        monkeypatch.setattr(roles.monitoring, name, note(name))
    monkeypatch.setattr(rigup.operations.monitoring, "gpu_exporter", note("gpu_exporter"))
    monkeypatch.setattr(roles.monitoring, "host", SimpleNamespace(name="box", get_fact=lambda fact, **words: ()))
    return calls


def told(wanted: Monitoring | None, os: str = "debian-12", alone: bool = False) -> None:
    roles.monitoring.monitoring._inner(wanted, Probe(os=os, architecture="x86_64"), REPOSITORY, alone)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (None, ["removed_part"]),
        (NODE, ["removed_part", "text_files", "debian_packages", "running_units"]),
        (GPUS, ["removed_part", "text_files", "gpu_exporter", "running_units"]),
        (BOTH, ["text_files", "debian_packages", "gpu_exporter", "running_units"]),
    ],
)
def test_the_steps_in_order(
    called: list[tuple[str, dict[str, Any]]], wanted: Monitoring | None, names: list[str]
) -> None:
    told(wanted)
    assert [name for name, _ in called] == names


@pytest.mark.parametrize(("wanted", "own"), [(BOTH, ["prometheus-node-exporter"]), (GPUS, [])])
def test_a_host_that_serves_nothing_has_what_keys_and_lists_are_fetched_with(
    called: list[tuple[str, dict[str, Any]]], wanted: Monitoring, own: list[str]
) -> None:
    told(wanted, alone=True)
    names = [name for name, _ in called]
    assert names.index("debian_packages") < names.index("gpu_exporter")
    (packages,) = (words["arguments"][0] for name, words in called if name == "debian_packages")
    assert sorted(packages) == sorted(["ca-certificates", "curl", "python3", *own])


@pytest.mark.parametrize("serves", [True, False])
def test_what_comes_along_comes_where_nothing_is_served(monkeypatch: pytest.MonkeyPatch, serves: bool) -> None:
    alone: list[bool] = []
    monkeypatch.setattr(roles.site, "_serve", lambda *_: None)
    monkeypatch.setattr(roles.site, "_clean_up", lambda *_: None)
    monkeypatch.setattr(roles.site, "monitoring", lambda *arguments: alone.append(arguments[-1]))
    monkeypatch.setattr(roles.site, "no_gateway", lambda: None)
    settings = HostSettings(monitoring=NODE)
    roles.site.provision((object(),) if serves else (), Probe(), settings)  # type: ignore[arg-type]
    assert alone == [not serves]


def test_only_what_is_not_wanted_is_taken_away(called: list[tuple[str, dict[str, Any]]]) -> None:
    for wanted in (None, NODE, GPUS):
        told(wanted)
    gone = [words["part"] for name, words in called if name == "removed_part"]
    assert [(part.traces, part.units, part.paths) for part in gone] == [
        (NODE_FILES + GPU_FILES, NODE_UNITS + GPU_UNITS, (*NODE_FILES, *GPU_FILES, TEXT_FILE)),
        (GPU_FILES, GPU_UNITS, GPU_FILES),
        (NODE_FILES, NODE_UNITS, (*NODE_FILES, TEXT_FILE)),
    ]


def test_a_system_that_the_probe_shows_to_have_no_package_fails_by_name(
    called: list[tuple[str, dict[str, Any]]],
) -> None:
    with pytest.raises(HostFailed) as caught:
        told(BOTH, "debian-13")
    assert caught.value.message.startswith("box: monitoring.dcgm_exporter: ")
    assert "debian-13" in caught.value.message
    assert called == []


def test_a_unit_older_than_its_file_is_named() -> None:
    asked = OutdatedUnits().command((("/etc/a.conf", "a.service"), ("/etc/b.conf", "b.service")))
    assert asked.count("find ") == 2 and "/etc/b.conf -newer /run/systemd/units/invocation:b.service" in asked
    assert OutdatedUnits().process(["a.service", ""]) == ("a.service",)
