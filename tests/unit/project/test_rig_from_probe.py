"""A probed host becomes group_data that a person could have written, and that plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.errors import InputError, Refused
from rigup.facts.probe import Nvidia, PciGpu, Probe, ProbedGpu
from rigup.lock import Lock
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.rig_from_probe import check_known, group_data, group_name, rig_of, suggestions
from tests.unit.planner.asking import decided

RTX_3090, PRO_6000 = "NVIDIA GeForce RTX 3090", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
BOX = Probe(os="debian-12", memory_kib=int(125.6 * 2**20))


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def cards(*names: str) -> Probe:
    return replace(
        BOX, gpus=tuple(ProbedGpu(name, 0, 24576, 40, index=i, uuid=f"GPU-{i}") for i, name in enumerate(names))
    )


@pytest.mark.parametrize(
    ("probe", "gpus", "group"),
    [
        (cards(*[RTX_3090] * 4), "4x RTX 3090", "quad_3090"),
        (cards("NVIDIA GB10"), "1x GB10", "single_gb10"),
        (cards(*[RTX_3090] * 5), "5x RTX 3090", "rig_of_5_3090"),
        (
            cards(PRO_6000, RTX_3090, RTX_3090),
            ["RTX PRO 6000 Blackwell Workstation Edition", "RTX 3090", "RTX 3090"],
            "single_pro_6000_blackwell_workstation_edition_and_dual_3090",
        ),
        (BOX, [], "cpu"),
    ],
)
def test_the_rig_and_a_name_for_it(probe: Probe, gpus: object, group: str, catalogue: Catalogue) -> None:
    rig = rig_of("box", probe)
    assert rig == {"gpus": gpus, "host_memory_gib": 125, "os": "debian-12"}
    read = read_rig(rig, "test", catalogue)
    assert [gpu.name for gpu in read.gpus] == [gpu.name for gpu in probe.gpus]
    assert group_name(read) == group


def test_little_memory_is_told_finely() -> None:
    assert rig_of("box", replace(BOX, memory_kib=int(3.86 * 2**20)))["host_memory_gib"] == 3.9


def test_a_card_that_does_not_answer_is_not_part_of_a_description() -> None:
    probe = cards(RTX_3090, RTX_3090)
    broken = replace(probe, gpus=(probe.gpus[0], replace(probe.gpus[1], error="GPU is lost")))
    with pytest.raises(Refused) as refused:
        rig_of("box", broken)
    assert refused.value.message == "box: GPU 1 (NVIDIA GeForce RTX 3090, GPU-1) does not respond: GPU is lost"


@pytest.mark.parametrize(
    ("nvidia", "why"),
    [
        (Nvidia(), "no NVIDIA driver is loaded"),
        (Nvidia(nouveau=True), "nouveau drives them"),
        (Nvidia(error="Unknown Error"), "Unknown Error"),
    ],
)
def test_cards_that_nobody_can_name_must_be_named_by_the_user(nvidia: Nvidia, why: str) -> None:
    probe = replace(BOX, nvidia=nvidia, pci_gpus=(PciGpu("0000:01:00.0"), PciGpu("0000:02:00.0")))
    with pytest.raises(Refused) as refused:
        rig_of("box", probe)
    assert refused.value.message == f"box: found 2 NVIDIA GPUs on the PCI bus but could not identify them: {why}"
    assert "--gpus" in (refused.value.hint or "")
    assert rig_of("box", probe, "2x RTX 3090")["gpus"] == "2x RTX 3090"
    assert rig_of("box", probe, "RTX 3090, RTX 4090")["gpus"] == ["RTX 3090", "RTX 4090"]


def test_a_card_that_the_catalogue_lacks_comes_with_its_entry(catalogue: Catalogue) -> None:
    probe = replace(BOX, gpus=(ProbedGpu("NVIDIA Titan Z", 0, 6144, 40, uuid="GPU-z", compute_capability="3.5"),))
    with pytest.raises(InputError) as error:
        check_known("box", probe, catalogue)
    assert error.value.message == "box: GPU 0 (NVIDIA Titan Z, GPU-z) is not in the catalogue"
    assert 'name = "NVIDIA Titan Z"' in (error.value.hint or "")
    assert 'compute_capability = "3.5"' in (error.value.hint or "")
    check_known("box", cards(RTX_3090), catalogue)


@pytest.mark.parametrize(
    "probe", [cards(*[RTX_3090] * 4), cards(PRO_6000, RTX_3090), BOX], ids=["quad", "mixed", "cpu"]
)
def test_what_is_written_plans(probe: Probe, catalogue: Catalogue) -> None:
    rig = rig_of("box", probe)
    found = suggestions("box", "boxes", rig, catalogue, Lock())
    assert found
    assert all(suggestion.plan.verdict == "ok" for suggestion in found)
    assert len({suggestion.service["model"] for suggestion in found}) == len(found)
    written: dict[str, object] = {}
    exec(group_data("box", rig, found[0].service, {"hub": "http://hub"}, found[1:]), written)
    assert (written["rig"], written["hub"]) == (rig, "http://hub")
    read = read_rig(written["rig"], "test", catalogue)
    (service,) = read_services(written["services"], "test", read)
    assert service.model == found[0].plan.service.model


def test_what_fits_in_gpu_memory_comes_first(catalogue: Catalogue) -> None:
    found = suggestions("box", "boxes", rig_of("box", cards(*[RTX_3090] * 4)), catalogue, Lock())
    assert all(suggestion.plan.quality != "degraded" for suggestion in found)
    sizes = [catalogue.models_by_name[suggestion.service["model"]].parameters for suggestion in found]
    assert sizes == sorted(sizes, reverse=True)


def test_a_degraded_quantisation_comes_after_all_that_are_not(catalogue: Catalogue) -> None:
    """Four cards of 24 GB hold DeepSeek V4 Flash and MiniMax M2 in 2 bits."""
    rig = rig_of("box", cards(*[RTX_3090] * 4))
    held = decided("4x RTX 3090", {"model": "MiniMax-M2.5", "offload": "none"}, 64)
    assert (held.verdict, held.quality) == ("ok", "degraded")
    found = suggestions("box", "boxes", rig, catalogue, Lock())
    assert not [one for one in found if one.service["model"].startswith(("MiniMax", "DeepSeek"))]
