"""The ladder of quality: levels follow from published figures, each with its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.quality import KLD_LIMITS, LEVELS, LOSS_LIMITS, Quality, published, quality_of
from rigup.errors import InputError

CATALOGUE = load_catalogue()
MODEL = CATALOGUE.models_by_name["MiniMax-M2.5"]
DOCUMENT = (Path(__file__).parents[3] / "docs" / "choice.md").read_text()


def entry(quant: str, bits: float, scheme: str = "gguf", experts: int | None = None) -> CheckpointEntry:
    """A checkpoint of so many bits a weight."""
    size = int(MODEL.parameters * bits / 8)
    return CheckpointEntry.model_validate(
        {"repo": "a/b", "model": MODEL.name, "quant": quant, "scheme": scheme, "bytes": size}
        | {"experts": experts, "minimum_versions": {}}
    )


@pytest.mark.parametrize(
    ("quant", "bits", "level"),
    [
        ("BF16", 16.0, "lossless"),
        ("Q8_0", 8.5, "lossless"),
        ("Q6_K", 6.6, "near"),
        ("UD-Q4_K_XL", 4.6, "near"),
        ("Q3_K_M", 3.8, "good"),
        ("UD-IQ3_XXS", 3.2, "good"),
        ("UD-IQ2_M", 2.7, "degraded"),
        ("IQ1_S", 1.8, "degraded"),
    ],
)
def test_a_mix_has_the_level_of_its_figure(quant: str, bits: float, level: str) -> None:
    found = quality_of(entry(quant, bits), MODEL)
    assert found.level == level
    assert found.source


@pytest.mark.parametrize(
    ("scheme", "bits", "level"),
    [("fp8_block128", 8.0, "lossless"), ("nvfp4", 4.7, "near"), ("int4_g32", 4.8, "near"), ("bf16", 16, "lossless")],
)
def test_a_format_has_the_level_of_its_figure(scheme: str, bits: float, level: str) -> None:
    assert quality_of(entry("x", bits, scheme), MODEL).level == level


def test_the_makers_own_format_loses_nothing() -> None:
    four_bits = MODEL.model_copy(update={"reference_bits": 4.25, "architectures": ("OtherForCausalLM",)})
    found = quality_of(entry("INT4", 4.25, "int4_g128"), four_bits)
    assert (found.level, found.source) == ("lossless", "the maker publishes the model in such a format")
    assert quality_of(entry("MXFP4", 4.3), four_bits).level == "lossless"
    assert quality_of(entry("MXFP4", 4.3), MODEL).level == "degraded"


def test_a_figure_of_the_models_own_architecture_comes_first() -> None:
    other = MODEL.model_copy(update={"architectures": ("OtherForCausalLM",)})
    assert quality_of(entry("UD-IQ3_XXS", 3.2), MODEL).figure == "mean KL divergence 0.12"
    assert quality_of(entry("UD-IQ3_XXS", 3.2), other).figure == "mean KL divergence 0.18"


def test_a_mix_that_nobody_has_measured_counts_as_one_with_no_more_bits() -> None:
    found = quality_of(entry("K_G_3.50", 3.5), MODEL)
    assert (found.level, found.figure) == ("degraded", "mean KL divergence 0.12") or found.level in LEVELS
    assert found.source.startswith("no figure published: counted as IQ3_XXS, which has no more bits a weight (")


def test_what_pruning_loses_is_said_to_be_uncounted() -> None:
    found = quality_of(entry("REAP-NVFP4", 4.7, "nvfp4", experts=154), MODEL)
    assert found.text == "near, not counting the experts that were pruned"


def test_more_loss_is_never_a_better_level() -> None:
    for limits, field in ((KLD_LIMITS, "kld"), (LOSS_LIMITS, "loss_percent")):
        levels = [
            Quality.model_validate({"name": "x", "source": "x", field: figure}).reached
            for figure in sorted((*limits.values(), *(2 * limit for limit in limits.values()), 0.0))
        ]
        assert [LEVELS.index(level) for level in levels] == sorted(LEVELS.index(level) for level in levels)


def test_every_entry_has_one_figure_and_a_source_and_every_checkpoint_a_level() -> None:
    names = [(each.name, each.architecture) for each in published()]
    assert len(names) == len(set(names))
    assert all(len(each.source) > 20 for each in published())
    for checkpoint in CATALOGUE.checkpoints:
        assert quality_of(checkpoint, CATALOGUE.models_by_name[checkpoint.model]).level in LEVELS


def test_an_entry_with_two_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="give one of kld, loss_percent and level"):
        Quality(name="x", kld=0.1, level="near", source="x")


def test_the_limits_of_the_levels_are_documented() -> None:
    for level in LEVELS[:-1]:
        assert f"| `{level}` | {KLD_LIMITS[level]:g} | {LOSS_LIMITS[level]:g} % |" in DOCUMENT


def test_a_fleets_figures_go_before_the_toolkits(tmp_path: Path) -> None:
    folder = tmp_path / "catalogue/qualities"
    folder.mkdir(parents=True)
    (folder / "ours.toml").write_text(
        '[[quality]]\nname = "Q4_K_M"\narchitecture = "MiniMaxM2ForCausalLM"\nkld = 0.3\nsource = "our own texts"\n'
    )
    own = load_catalogue(tmp_path).qualities
    mix = entry("Q4_K_M", 4.8)
    assert quality_of(mix, MODEL).level == "near"
    found = quality_of(mix, MODEL, own)
    assert (found.level, found.source) == ("degraded", "our own texts")
    assert quality_of(entry("Q6_K", 6.6), MODEL, own) == quality_of(entry("Q6_K", 6.6), MODEL)
    (folder / "ours.toml").write_text('[[quality]]\nname = "Q4_K_M"\nkld = 0.3\n')
    with pytest.raises(InputError, match="source: missing"):
        load_catalogue(tmp_path)
