"""Asking a hub: pages, tokens, waiting as long as it asks and no longer, and what each refusal means."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from rigup.errors import InputError, RigupError, Unreachable
from rigup.sources.hub import Hub, HubFile
from tests.serving import serving
from tests.unit.sources.replayed_hub import COMMIT, REPO, ReplayedHub, listed, stored_apart

MAIN = f"/api/models/{REPO}/revision/main"
TREE = f"/api/models/{REPO}/tree/{COMMIT}?recursive=true&expand=false"


@pytest.fixture
def server() -> Iterator[ReplayedHub]:
    with serving(ReplayedHub()) as server:
        yield server


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def hub(server: ReplayedHub, pauses: list[float]) -> Hub:
    return Hub(server.url, pause=pauses.append)


def error_of(hub: Hub) -> RigupError:
    with pytest.raises(RigupError) as error:
        hub.commit(REPO, "main")
    assert error.value.exit_code == 2
    return error.value


def test_the_commit_of_a_revision(server: ReplayedHub, hub: Hub) -> None:
    server.revision()
    server.revision(revision="refs%2Fpr%2F1", commit="1" * 40)
    assert hub.commit(REPO, "main") == COMMIT
    assert hub.commit(REPO, "refs/pr/1") == "1" * 40


def test_nobody_but_the_hub_is_asked(
    server: ReplayedHub, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In particular not huggingface_hub's list of programs whose use it reports."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _detect_agent

    monkeypatch.setattr(_detect_agent, "_registry", None)
    monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "none"))
    monkeypatch.setattr(_detect_agent, "_fetch_registry", lambda: pytest.fail("asked for"))
    server.revision()
    assert hub.commit(REPO, "main") == COMMIT
    assert _detect_agent._registry is None


def test_every_page_of_the_listing(server: ReplayedHub, hub: Hub) -> None:
    following = f'<{server.url}/page2?cursor=x>; rel="next"'
    server.says(
        TREE, [{"type": "directory", "oid": "0", "size": 0, "path": "sub"}, stored_apart("a", 7)], Link=following
    )
    server.says("/page2?cursor=x", [listed("b", b"bb")], Link='</page3>; rel="next"')
    server.says("/page3", [listed("sub/c", b"c")])
    found = hub.files(REPO, COMMIT)
    assert list(found) == ["a", "b", "sub/c"]
    assert found["a"] == HubFile("a", 7, "b" * 40, "a" * 64)
    assert (found["b"].size, found["b"].sha256) == (2, None)


NO_HUB = "is not a Hugging Face-compatible hub"


def test_pages_without_end_are_given_up(server: ReplayedHub, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rigup.sources.hub.MOST_PAGES", 5)
    server.says(TREE, [listed("a", b"")], Link=f'<{TREE}>; rel="next"')
    with pytest.raises(Unreachable, match=NO_HUB):
        hub.files(REPO, COMMIT)
    assert len(server.asked) == 5


def test_the_token_goes_to_the_hub_alone(server: ReplayedHub) -> None:
    with serving(ReplayedHub()) as cdn:
        server.revision()
        server.says(f"/{REPO}/resolve/{COMMIT}/a", status=302, Location=f"{cdn.url}/stored/a")
        cdn.says("/stored/a", b"content")
        server.says(TREE, [], Link=f'<{cdn.url}/page2>; rel="next"')
        cdn.says("/page2", [])
        hub = Hub(server.url, "hf_secret")
        hub.commit(REPO, "main")
        assert hub.content(REPO, COMMIT, HubFile("a", 7, listed("a", b"content")["oid"], None)) == b"content"
        hub.files(REPO, COMMIT)
        assert {authorization for _, authorization in server.asked} == {"Bearer hf_secret"}
        assert {authorization for _, authorization in cdn.asked} == {None}
        assert cdn.paths == ["/stored/a", "/page2"]


def test_what_netrc_says_does_not_take_the_place_of_the_token(
    server: ReplayedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server.revision()
    Hub(server.url, "hf_secret").commit(REPO, "main")
    assert server.asked == [(MAIN, "Bearer hf_secret")]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_that_asks_to_wait_is_given_the_time(
    server: ReplayedHub, hub: Hub, pauses: list[float], status: int
) -> None:
    server.says(MAIN, status=status, Retry_After="7")
    server.says(MAIN, status=status)
    server.says(MAIN, status=status, Retry_After=formatdate(time.time() + 30, usegmt=True))
    server.revision()
    assert hub.commit(REPO, "main") == COMMIT
    assert pauses[:2] == [7, 1]
    assert 27 < pauses[2] <= 30


def test_a_hub_that_asks_for_too_much(server: ReplayedHub, hub: Hub, pauses: list[float]) -> None:
    server.says(MAIN, status=429, Retry_After="3600")
    error = error_of(hub)
    assert error.message == f"org/model: the hub at {hub.name} limits the request rate and asks to wait 3600 s"
    assert (pauses, len(server.asked)) == ([], 1)


def test_a_hub_that_stays_broken_is_given_up(server: ReplayedHub, hub: Hub, pauses: list[float]) -> None:
    server.says(MAIN, status=503)
    assert error_of(hub).message == f"org/model: the hub at {hub.name} answered HTTP 503"
    assert pauses == [0.5, 1, 2, 4]


def test_a_hub_that_is_not_there(pauses: list[float]) -> None:
    error = error_of(Hub("http://user:secret@127.0.0.1:9", pause=pauses.append))
    assert error.message == "org/model: the hub at 127.0.0.1:9 cannot be reached"
    assert "secret" not in error.message + str(error.hint)


@pytest.mark.parametrize(
    "body", [b"<html>log in first</html>", b"[]", b"{}", b'{"sha": 5}', b'{"id": "x", "sha": "main"}']
)
def test_something_that_is_not_a_hub(server: ReplayedHub, hub: Hub, body: bytes) -> None:
    server.says(MAIN, body)
    assert error_of(hub).message == f"{hub.name} {NO_HUB}"
    server.says(TREE, body if body != b"[]" else b'[{"type": "file"}]')
    with pytest.raises(Unreachable, match=NO_HUB):
        hub.files(REPO, COMMIT)


@pytest.mark.parametrize(
    ("status", "code", "token", "message", "hint"),
    [
        (404, "RepoNotFound", None, "the hub at {hub} has no such repository", "hub_token_file"),
        (401, "RepoNotFound", None, "the hub at {hub} has no such repository", "hub_token_file"),
        (401, "", None, "the hub at {hub} has no such repository, or it is private", "hub_token_file"),
        (401, "GatedRepo", None, "the hub at {hub} requires a token for it", "hub_token_file = "),
        (403, "GatedRepo", "hf_x", "the hub at {hub} does not allow this token to read it", "accept its terms"),
        (
            404,
            "RevisionNotFound",
            None,
            "revision main no longer exists on the hub at {hub}",
            "rigup lock --upgrade org/model",
        ),
        (418, "", None, "the hub at {hub} answered HTTP 418", "HF_ENDPOINT"),
    ],
)
def test_what_a_refusal_means(
    server: ReplayedHub, status: int, code: str, token: str | None, message: str, hint: str
) -> None:
    hub = Hub(server.url, token)
    server.says(MAIN, {}, status, X_Error_Code=code)
    error = error_of(hub)
    assert error.message == f"org/model: {message.format(hub=hub.name)}"
    assert hint in (error.hint or "")
    assert len(server.asked) == 1


def test_a_file_that_arrives_damaged_is_asked_for_again(server: ReplayedHub, hub: Hub, pauses: list[float]) -> None:
    entry = listed("tokenizer.json", b"right")
    file = HubFile("tokenizer.json", 5, entry["oid"], None)
    server.says(f"/{REPO}/resolve/{COMMIT}/tokenizer.json", b"wrong")
    server.says(f"/{REPO}/resolve/{COMMIT}/tokenizer.json", b"right")
    assert hub.content(REPO, COMMIT, file) == b"right"
    server.answers.clear()
    server.says(f"/{REPO}/resolve/{COMMIT}/tokenizer.json", b"wrong")
    with pytest.raises(Unreachable, match="does not match its checksum after"):
        hub.content(REPO, COMMIT, file)


def test_a_large_file_without_a_sha256_is_not_read(server: ReplayedHub, hub: Hub) -> None:
    with pytest.raises(InputError, match="has no sha256"):
        hub.content(REPO, COMMIT, HubFile("w.safetensors", 2**40, "0" * 40, None))
    assert server.asked == []


def test_a_token_that_the_hub_does_not_know(server: ReplayedHub) -> None:
    server.says(MAIN, {}, 401, X_Error_Message="Invalid credentials in Authorization header")
    hub = Hub(server.url, "hf_old")
    error = error_of(hub)
    assert error.message == f"org/model: the hub at {hub.name} rejects the token"
    assert "hf_old" not in error.message + (error.hint or "")
