"""What a download of weights is told of where they come from: the hub, or Ollama's registry, which gets no token."""

from __future__ import annotations

from rigup.operations.weights.checkpoint import _job
from rigup.plan import Checkpoint
from rigup.settings import HostSettings

SETTINGS = HostSettings(hub="https://hub.lan", hub_token="secret", ollama_registry="https://ollama.lan/")
PINNED = Checkpoint(repo="ollama/qwen3-8b", quant="Q4_K_M", bytes=1, revision="0" * 40)


def test_a_name_of_ollamas_comes_by_its_hash_without_a_token() -> None:
    for location, base in {
        "ollama:qwen3:8b": "https://ollama.lan/v2/library/qwen3/blobs",
        "ollama:me/own:latest": "https://ollama.lan/v2/me/own/blobs",
    }.items():
        address, token = SETTINGS.source_of(location)
        job = _job(PINNED.model_copy(update={"location": location}), address, token)
        assert (job["blobs"], job["token_file"]) == (base, None)


def test_a_repository_comes_from_the_hub() -> None:
    assert SETTINGS.source_of("") == ("https://hub.lan", "secret")
    assert "blobs" not in _job(PINNED, "https://hub.lan", None)
