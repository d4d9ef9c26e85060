"""The endpoint of a release: by its own command line, at the head of a node group."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.operations.service.endpoints import Endpoint, endpoint_of

GROUP: dict[str, Any] = {"set": {"id": "d", "nodes": [{"host": "a"}, {"host": "b"}]}}


@pytest.mark.parametrize(
    ("command", "url", "model"),
    [
        (["serve", "--port", "8001", "--alias", "Qwen3-8B"], "http://127.0.0.1:8001", "Qwen3-8B"),
        (["serve", "--host", "0.0.0.0", "--served-model-name", "M3"], "http://127.0.0.1:8000", "M3"),
        (["serve", "--host", "::", "--port", "9000"], "http://[::1]:9000", ""),
        (["serve", "--host", "10.0.0.5", "--port", "9000"], "http://10.0.0.5:9000", ""),
    ],
    ids=["loopback", "any address", "any IPv6 address", "one address"],
)
def test_of_a_command_line(command: list[str], url: str, model: str) -> None:
    found = endpoint_of("a", "chat", {"command": command})
    assert found == Endpoint("a", "chat", url, model)
    assert found.port == int(url.rpartition(":")[2])
    assert (found.unit, found.key_file) == ("rigup-chat.service", "/etc/rigup/services/chat/api-key")


def test_a_worker_has_none() -> None:
    assert endpoint_of("a", "chat", GROUP) is not None
    assert endpoint_of("b", "chat", GROUP) is None
