"""Which releases run built-in draft layers."""

from __future__ import annotations

from rigup.catalogue.data_files import DATA, read_file
from rigup.catalogue.draft_layers import DraftLayers, runs_draft_layers
from tests.unit.planner.rules.builder import CATALOGUE


def test_every_class_of_draft_layers_is_one_that_some_release_has() -> None:
    for entry in read_file(DATA / "draft_layers.toml", "draft_layers", DraftLayers):
        releases = CATALOGUE.engines_by_name[entry.engine].versions
        for names in entry.classes.values():
            for name in names:
                assert any(release.abilities.has("architectures", name) for release in releases), (entry.engine, name)


def test_a_release_runs_the_layers_since_it_has_their_class() -> None:
    model, engine = CATALOGUE.models_by_name["Qwen3.6-27B"], CATALOGUE.engines_by_name["vllm"]
    assert [runs_draft_layers(release, model) for release in engine.versions].index(True) == [
        release.version for release in engine.versions
    ].index("0.17.0")


def test_draft_layers_that_take_memory_are_known_to_the_model() -> None:
    known = CATALOGUE
    unknown = [
        each.label
        for each in known.checkpoints
        if each.tensors and each.tensors.mtp and not known.models_by_name[each.model].mtp_attention
    ]
    assert unknown == []
