"""A registry is asked in its own protocol, and every way in which that can fail has a message of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rigup.errors import InputError, Unreachable
from rigup.sources.registry import Registry
from tests.registry import Registry as StandIn

NAME = "docker.io/vllm/vllm-openai"


@pytest.fixture
def registry() -> Iterator[StandIn]:
    found = StandIn()
    yield found
    found.stop()


def client(registry: StandIn, waits: list[float] | None = None) -> Registry:
    return Registry({"docker.io": registry.address}, pause=(waits if waits is not None else []).append)


def test_of_an_index_the_manifest_of_the_architecture_is_taken(registry: StandIn) -> None:
    images = {architecture: registry.image(architecture, architecture.encode()) for architecture in ("amd64", "arm64")}
    registry.tag("vllm/vllm-openai", "v0.20.2", registry.index(images))
    asked = client(registry)
    assert asked.digest(NAME, "v0.20.2", "x86_64") == (images["amd64"], len("amd64"))
    assert asked.digest(NAME, "v0.20.2", "aarch64") == (images["arm64"], len("arm64"))
    # one token is enough, and it is for this repository alone
    assert [path for path in registry.requests if path.startswith("/token")] == [
        "/token?service=stand-in&scope=repository%3Avllm%2Fvllm-openai%3Apull"
    ]


def test_an_image_without_an_index_is_asked_for_its_architecture(registry: StandIn) -> None:
    digest = registry.image("amd64", b"layer")
    registry.tag("vllm/vllm-openai", "v0.20.2", digest)
    assert client(registry).digest(NAME, "v0.20.2", "x86_64") == (digest, len("layer"))
    with pytest.raises(InputError) as error:
        client(registry).digest(NAME, "v0.20.2", "aarch64")
    assert (error.value.message, error.value.hint) == (
        f"{NAME}:v0.20.2: there is no image for linux/arm64",
        "platforms: linux/amd64",
    )


def test_a_registry_that_wants_no_token(registry: StandIn) -> None:
    registry.want_token = False
    registry.tag("vllm/vllm-openai", "v1", registry.image())
    assert client(registry).digest(NAME, "v1", "x86_64")[0].startswith("sha256:")


def test_a_tag_that_is_not_there(registry: StandIn) -> None:
    registry.tag("vllm/vllm-openai", "v0.20.2", registry.image())
    with pytest.raises(InputError) as error:
        client(registry).digest(NAME, "v0.99", "x86_64")
    host = registry.address.removeprefix("http://")
    assert error.value.message == f"{NAME}:v0.99: the registry at {host} does not have this image or tag"


def test_a_limit_is_waited_for_within_reason_and_then_said(registry: StandIn) -> None:
    registry.tag("vllm/vllm-openai", "v1", registry.image())
    registry.faults = [429, 429]
    waits: list[float] = []
    assert client(registry, waits).digest(NAME, "v1", "x86_64")
    assert waits == [7.0, 7.0]

    registry.faults = [429] * 20
    with pytest.raises(Unreachable) as error:
        client(registry).digest(NAME, "v1", "x86_64")
    host = registry.address.removeprefix("http://")
    assert error.value.message.startswith(f"{NAME}:v1: the registry at {host} limits ")
    assert "image_mirrors" in (error.value.hint or "")


def test_one_that_gives_it_to_some_only(registry: StandIn) -> None:
    registry.tag("vllm/vllm-openai", "v1", registry.image())
    registry.faults = [403]
    with pytest.raises(InputError) as error:
        client(registry).digest(NAME, "v1", "x86_64")
    assert error.value.message.endswith("requires a login for it")


def test_one_that_cannot_be_reached() -> None:
    gone = StandIn()
    gone.stop()
    waits: list[float] = []
    with pytest.raises(Unreachable) as error:
        client(gone, waits).digest(NAME, "v1", "x86_64")
    assert error.value.message == f"{NAME}:v1: the registry at {gone.address[7:]} cannot be reached"
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_a_manifest_that_is_not_what_the_registry_says(registry: StandIn) -> None:
    digest = registry.image()
    media_type, content = registry.content[digest]
    registry.content[digest] = (media_type, content + b" ")
    registry.tag("vllm/vllm-openai", "v1", digest)
    with pytest.raises(Unreachable) as error:
        client(registry).digest(NAME, "v1", "x86_64")
    assert f"the registry states {digest}" in error.value.message


NO_REGISTRY = "the server is not a container registry"


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"manifests": [{"digest": "md5:0"}]}', b'{"config": {}}'])
def test_what_is_not_a_registry(registry: StandIn, content: bytes) -> None:
    registry.tag("vllm/vllm-openai", "v1", str(registry.add("text/html", content)["digest"]))
    with pytest.raises(Unreachable) as error:
        client(registry).digest(NAME, "v1", "x86_64")
    assert error.value.message == f"{NAME}:v1: {NO_REGISTRY}"


def layers(*sizes: object) -> bytes:
    return json.dumps(
        {"config": {"digest": f"sha256:{'0' * 64}"}, "layers": [{"size": size} for size in sizes]}
    ).encode()


@pytest.mark.usefixtures("nothing_to_collect")
@pytest.mark.parametrize(
    "content",
    [
        layers(-1),
        layers(10**23),
        layers("5"),
        layers(True),
        layers(*[1] * 1001),
        b'{"layers": 5, "config": {"digest": "sha256:%s"}}' % (b"0" * 64),
        b"[" * 100_000,
        b'{"manifests": [{"platform": {"os": ["x"]}, "digest": "sha256:%s"}]}' % (b"0" * 64),
        b'{"a": NaN}',
    ],
    ids=["negative", "1e23", "text", "bool", "many", "no list", "deep", "platform", "NaN"],
)
def test_values_that_no_registry_gives(registry: StandIn, content: bytes) -> None:
    registry.content[f"sha256:{'0' * 64}"] = ("application/json", b'{"os": "linux", "architecture": "amd64"}')
    registry.tag("vllm/vllm-openai", "v1", str(registry.add("text/html", content)["digest"]))
    with pytest.raises(Unreachable) as error:
        client(registry).digest(NAME, "v1", "x86_64")
    assert error.value.message == f"{NAME}:v1: {NO_REGISTRY}"


def test_a_manifest_that_was_not_asked_for(registry: StandIn) -> None:
    asked, other = registry.image("amd64", b"one"), registry.image("amd64", b"two")
    registry.content[asked] = registry.content[other]
    registry.tag("vllm/vllm-openai", "v1", registry.index({"amd64": asked}))
    with pytest.raises(Unreachable, match="digest mismatch"):
        client(registry).digest(NAME, "v1", "x86_64")
