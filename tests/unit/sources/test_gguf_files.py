"""Which files of a repository make a checkpoint: names as they are on the hub."""

from __future__ import annotations

import json

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.errors import InputError
from rigup.sources.gguf_files import MOST_NAMED, GgufSet, gguf_files
from rigup.sources.safetensors_files import safetensors_files

REPO = "org/model"


def shards(stem: str, count: int, first: int = 1, suffix: str = "gguf") -> list[str]:
    return [f"{stem}-{number:05}-of-{count:05}.{suffix}" for number in range(first, first + count)]


UNSLOTH = [
    ".gitattributes",
    "README.md",
    "config.json",
    "imatrix_unsloth.gguf_file",
    "mmproj-F16.gguf",
    "MiniMax-M2.1-mmproj-BF16.gguf",
    "imatrix.gguf",
    *shards("UD-IQ2_M/MiniMax-M2.1-UD-IQ2_M", 2),
    *shards("UD-Q4_K_XL/MiniMax-M2.1-UD-Q4_K_XL", 3),
    *shards("Q4_K_M/MiniMax-M2.1-Q4_K_M", 4),
    *shards("IQ4_XS/MiniMax-M2.1-IQ4_XS", 3),
    "MiniMax-M2.1-Q2_K.gguf",
    "MiniMax-M2.1-Q2_K_L.gguf",
    *shards("BF16/MiniMax-M2.1-BF16", 10),
]


@pytest.mark.parametrize(
    ("quant", "files"),
    [
        ("UD-IQ2_M", shards("UD-IQ2_M/MiniMax-M2.1-UD-IQ2_M", 2)),
        ("ud-iq2_m", shards("UD-IQ2_M/MiniMax-M2.1-UD-IQ2_M", 2)),
        ("Q4_K_M", shards("Q4_K_M/MiniMax-M2.1-Q4_K_M", 4)),
        ("Q2_K", ["MiniMax-M2.1-Q2_K.gguf"]),
        ("BF16", shards("BF16/MiniMax-M2.1-BF16", 10)),
    ],
)
def test_all_shards_of_one_quantisation_and_nothing_else(quant: str, files: list[str]) -> None:
    assert list(gguf_files(REPO, quant, "", UNSLOTH)) == files


def test_names_of_other_people() -> None:
    paths = ["SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_0.gguf", "smollm2_q8_0.gguf"]
    assert gguf_files(REPO, "Q4_1", "", paths) == ("SmolLM2-135M-Instruct.Q4_1.gguf",)
    assert gguf_files(REPO, "Q8_0", "", paths) == ("smollm2_q8_0.gguf",)


def test_a_quantisation_that_is_not_there_is_told_with_those_that_are() -> None:
    for quant in ("IQ2_M", "Q4_K_XL", "K_M", "Q9_9"):
        with pytest.raises(InputError) as error:
            gguf_files(REPO, quant, "", UNSLOTH)
        assert error.value.message == f"org/model: the repository has no GGUF of quantisation {quant}"
        assert error.value.hint == "choose from: BF16, IQ4_XS, Q2_K, Q2_K_L, Q4_K_M, UD-IQ2_M, UD-Q4_K_XL"
    with pytest.raises(InputError) as error:
        gguf_files(REPO, "Q4_K_M", "", ["config.json"])
    assert error.value.hint == "choose from: none"


def test_an_incomplete_split_names_the_missing_shard() -> None:
    without = [path for path in UNSLOTH if not path.endswith("M-00003-of-00004.gguf")]
    with pytest.raises(InputError) as error:
        gguf_files(REPO, "Q4_K_M", "", without)
    assert error.value.message == (
        "org/model: Q4_K_M is incomplete: 3 of 4 shards exist; missing: Q4_K_M/MiniMax-M2.1-Q4_K_M-00003-of-00004.gguf"
    )


def test_the_file_that_the_catalogue_names_decides() -> None:
    twice = [*UNSLOTH, "old/MiniMax-M2.1-Q2_K.gguf"]
    with pytest.raises(InputError, match=r"the repository has Q2_K more than once: MiniMax-M2.1-Q2_K.gguf, old/"):
        gguf_files(REPO, "Q2_K", "", twice)
    assert gguf_files(REPO, "Q2_K", "old/MiniMax-M2.1-Q2_K.gguf", twice) == ("old/MiniMax-M2.1-Q2_K.gguf",)
    assert gguf_files(REPO, "any", "weights.gguf", ["weights.gguf", "other.gguf"]) == ("weights.gguf",)


def test_a_repository_that_was_split_again_is_found_by_name() -> None:
    assert list(gguf_files(REPO, "Q8_0", shards("Q8_0/m-Q8_0", 6)[0], shards("Q8_0/m-Q8_0", 7))) == shards(
        "Q8_0/m-Q8_0", 7
    )


def test_every_gguf_of_the_catalogue_is_found_by_name_alone() -> None:
    entries = [entry for entry in load_catalogue().checkpoints if entry.scheme == "gguf"]
    assert len(entries) > 10
    for entry in entries:
        stem = entry.entry.rpartition("-00001-of-")[0]
        paths = shards(stem, entry.shards or 1) if stem else [entry.entry or f"Model-{entry.quant}.gguf"]
        assert list(gguf_files(entry.repo, entry.quant, "", [*paths, "config.json"])) == paths, entry.label


def index(*names: str) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": {f"tensor.{n}": name for n, name in enumerate(names)}}).encode()


BESIDE = [
    "additional_chat_templates/tool_use.jinja",
    "chat_template.jinja",
    "config.json",
    "configuration_minimax_m2.py",
    "generation_config.json",
    "merges.txt",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
]
UNWANTED = [
    ".gitattributes",
    "LICENSE",
    "README.md",
    "consolidated.safetensors",
    "consolidated.safetensors.index.json",
    "docs/guide.txt",
    "figures/bench.json",
    "model.gguf",
    "onnx/config.json",
    "original/consolidated.00.pth",
    "original/params.json",
    "params.json",
    "pytorch_model-00001-of-00002.bin",
    "pytorch_model.bin.index.json",
    "requirements.txt",
    "training_args.bin",
]


@pytest.mark.parametrize("first", [0, 1])
def test_weights_that_the_index_names_and_what_describes_them(first: int) -> None:
    weights = shards("model", 3, first, "safetensors")
    found = safetensors_files(REPO, [*weights, *BESIDE, *UNWANTED, "extra.safetensors"], index(*weights, *weights))
    assert sorted(found) == sorted([*weights, *BESIDE])


@pytest.mark.parametrize("weights", [["model.safetensors"], *(shards("model", 2, n, "safetensors") for n in (0, 1))])
def test_weights_without_an_index(weights: list[str]) -> None:
    assert list(safetensors_files(REPO, [*weights, "config.json"], None)) == [*weights, "config.json"]


def test_weights_that_are_missing_are_named() -> None:
    weights = shards("model", 5, 1, "safetensors")
    for content in (index(*weights), None):
        with pytest.raises(InputError) as error:
            safetensors_files(REPO, [weights[0], "config.json"], content)
        assert error.value.message == (
            f"org/model: 4 of 5 weight files are missing from the repository: {', '.join(weights[1:4])}, ..."
        )


def test_a_repository_without_safetensors() -> None:
    with pytest.raises(InputError) as error:
        safetensors_files(REPO, ["pytorch_model.bin", "config.json", "original/a.pth"], None)
    assert error.value.message == "org/model: the repository has no safetensors weights"
    assert error.value.hint == "choose a checkpoint in another repository; this one has files of: bin, json"


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"weight_map": 3}', b"{}", b"\xff"])
def test_an_index_that_is_none(content: bytes) -> None:
    with pytest.raises(InputError, match="is not a weight index"):
        safetensors_files(REPO, ["model.safetensors"], content)


def test_thousands_of_split_names_are_told_apart_without_writing_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set claims 99,999 names; only those of the sets that are named, and of the chosen one, are written out."""
    written: list[GgufSet] = []

    def counted(of: GgufSet) -> tuple[str, ...]:
        written.append(of)
        assert len(written) <= MOST_NAMED
        return names(of)

    names = GgufSet.paths.fget
    assert names
    monkeypatch.setattr(GgufSet, "paths", property(counted))
    paths = [f"m{number}-Q8_0-00001-of-99999.gguf" for number in range(5000)]
    with pytest.raises(InputError, match=r"the repository has Q8_0 more than once: .* and 4970 more"):
        gguf_files(REPO, "Q8_0", "", paths)
    assert len(written) == MOST_NAMED
    written.clear()
    with pytest.raises(InputError, match="is incomplete: 1 of 99999 shards exist"):
        gguf_files(REPO, "Q8_0", paths[7], paths)
    assert {of.stem for of in written} == {"m7-Q8_0"}
