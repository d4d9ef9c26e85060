"""Nothing that is secret passes, however it is written; what only sounds like a secret does."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.report.redaction import REDACTED, Redactor, secrets_within
from rigup.report.text import report_text
from tests.hostile import bounded

SECRET = 'p"l4nted\\se/cret'


@pytest.mark.parametrize(
    "text",
    [
        f"error: 401 with {SECRET}",
        json.dumps({"anything": SECRET}),
        f"https://hub/?t={quote(SECRET, safe='')}",
    ],
    ids=["plain", "json", "url"],
)
def test_a_known_secret_in_every_spelling(text: str) -> None:
    redacted = Redactor([SECRET]).text(text)
    assert REDACTED in redacted
    assert all(form not in redacted for form in (SECRET, json.dumps(SECRET)[1:-1], quote(SECRET, safe="")))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("HF_TOKEN=hello123 next", "HF_TOKEN=[redacted] next"),
        ("HF_TOKEN=12345678 next", "HF_TOKEN=[redacted] next"),
        ("HF_TOKENS=123abc next", "HF_TOKENS=[redacted] next"),
        ('Environment="VLLM_API_KEY=hello123"', 'Environment="VLLM_API_KEY=[redacted]"'),
        ("llama-server --api-key hello123 --port 8000", "llama-server --api-key [redacted] --port 8000"),
        ('["--api-key", "hello123", "--port"]', '["--api-key", "[redacted]", "--port"]'),
        ('{"WANDB_API_KEY": "hello123", "A": "b"}', '{"WANDB_API_KEY": "[redacted]", "A": "b"}'),
        ("Authorization: Bearer hello123", "Authorization: Bearer [redacted]"),
        ("proxy http://ada:hello123@proxy:3128/", "proxy http://ada:[redacted]@proxy:3128/"),
        ("said hf_abcdefghijklmnopqrstuv there", "said [redacted] there"),
        ("sk-abcdefghijklmnopqrstuvwx", "[redacted]"),
        ('password = "hello world"', "password = [redacted]"),
        ("x-api-key: abcdefgh1234", "x-api-key: [redacted]"),
        ("server: password: hunter22, again", "server: password: [redacted], again"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]"),
        ("authorization=Bearer hello123", "authorization=[redacted] [redacted]"),
        ("Authorization: hello123", "Authorization: [redacted]"),
        ("args: {'api_key': ['hello123'], 'port': 1}", "args: {'api_key': ['[redacted]'], 'port': 1}"),
        ("['--hf-token', 'hello123', '--port']", "['--hf-token', '[redacted]', '--port']"),
        ("--ssl-keyfile-password 'hello world' --port", "--ssl-keyfile-password [redacted] --port"),
        ("aws_secret_access_key: hello123", "aws_secret_access_key: [redacted]"),
        ('["--api-key", "foo bar", "--port"]', '["--api-key", "[redacted]", "--port"]'),
        ("['--ssl-keyfile-password', 'foo, b\"r', '--port']", "['--ssl-keyfile-password', '[redacted]', '--port']"),
        ('["--api-key", "k1", "k 2", "--port", "8000"]', '["--api-key", "[redacted]", "--port", "8000"]'),
        ('"--api-key", "foo bar', '"--api-key", "[redacted]'),
        ('Environment="DB_PASSWORD=foo bar" "A=b c"', 'Environment="DB_PASSWORD=[redacted]" "A=b c"'),
        ("PASSWORD=abc def", "PASSWORD=[redacted]"),
        ("engine[42]: passphrase: a b c", "engine[42]: passphrase: [redacted]"),
        ('{"passphrase": "a b", "port": 1}', '{"passphrase": "[redacted]", "port": 1}'),
        ('{"api_keys": ["s1", "s 2"], "port": 1}', '{"api_keys": ["[redacted]"], "port": 1}'),
        ("{'hub_token': 'a', 'model': 'b'}", "{'hub_token': '[redacted]', 'model': 'b'}"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\nrest", "[redacted]\nrest"),
    ],
)
def test_what_looks_like_one(text: str, left: str) -> None:
    assert Redactor([]).text(text) == left


def test_what_is_redacted_stays_as_it_is() -> None:
    for text in ("HF_TOKEN=hello123 next", '"HF_TOKEN=hello123"', '{"api_key": "hello123"}', "--api-key hello123"):
        once = Redactor([]).text(text)
        assert Redactor([]).text(once) == once == Redactor(["hello123"]).text(text)


@pytest.mark.parametrize("text", ["x" * 20_000, "-" * 20_000, "a-" * 10_000, "secret_" * 500], ids=lambda t: t[:7])
def test_a_long_line_takes_no_longer_than_many_short_ones(text: str) -> None:
    """It would take half a minute if every letter were looked at from every other."""
    with bounded():
        Redactor([]).text(text)


@pytest.mark.parametrize(
    "text",
    [
        '"kv_tokens": 65536, "decode_tokens_per_second": {"low": 1.5}',
        '"api_key_file": "secrets/chat.key"',
        "12 tokens in 0.50 s, 24.0 tokens/s",
        "--max-num-batched-tokens 4096 -> 8192",
        '["--max-num-batched-tokens", "8192", "--port"]',
        "MAX_TOKENS=8192 next",
        "PCI_BUS_ID GPU-52a3a85d-3c55-ca3a-a955-82c69ed360fc",
        "a host key of gpu1.lan is unknown",
        "host key: SHA256 of gpu1.lan",
        "EOS token: 2",
        "services.chat.api_key_file: secrets/chat.key does not exist",
        "--allow-credentials --port 8000",
        "sudo: a password is required",
    ],
)
def test_what_only_sounds_like_one_stays(text: str) -> None:
    assert Redactor([]).text(text) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=4), st.text(), st.text())
def test_no_known_secret_is_ever_left(secret: str, before: str, after: str) -> None:
    if secret in REDACTED or secret in before + REDACTED + after:
        return
    assert secret not in Redactor([secret]).text(before + secret + after)


ARGV = ["--admin-api-key", "hello", "--hf-token", "there", "--ssl-keyfile-password", "1234", "--num-token", "8"]


def test_of_a_value_each_text_that_stands_under_the_name_of_a_secret() -> None:
    data = {"services": {"chat": {"flags": {"--admin-api-key": "hello", "--max-token": "8"}, "command": ARGV}}}
    assert list(secrets_within(data)) == ["hello", "hello", "there", "1234"]
    assert Redactor([]).value(data)["services"]["chat"] == {
        "flags": {"--admin-api-key": REDACTED, "--max-token": "8"},
        "command": [
            *["--admin-api-key", "[redacted]", "--hf-token", "[redacted]", "--ssl-keyfile-password", "[redacted]"],
            *ARGV[6:],
        ],
    }
    assert Redactor([]).value(["--allow-credentials", "--port", "8000"]) == ["--allow-credentials", "--port", "8000"]


def test_of_a_list_under_the_name_of_a_secret_and_of_several_api_keys_each_is_one() -> None:
    command = ["--api-key", "key1", "key2", "--hf-token", "there", "model", "--port", "1"]
    data = {"api_keys": ["listed1", "listed2"], "stop_tokens": ["</s>"], "command": command}
    assert list(secrets_within(data)) == ["listed1", "listed2", "key1", "key2", "there"]
    assert Redactor([]).value(data) == {
        "api_keys": [REDACTED, REDACTED],
        "stop_tokens": ["</s>"],
        "command": ["--api-key", REDACTED, REDACTED, "--hf-token", REDACTED, "model", "--port", "1"],
    }


def test_a_report_has_no_secret_of_a_command_line_whose_words_stand_on_lines_of_their_own() -> None:
    text = report_text("box", "now", {"plans": [{"command": ARGV}], "journals": "password: hunter22"}, Redactor([]))
    assert '"--admin-api-key",\n   "[redacted]"' in text
    assert not any(secret in text for secret in ('"hello"', '"there"', "1234", "hunter22"))


TOKEN = "S3cr3tvalue9xyz"


@pytest.mark.parametrize(
    "text",
    [
        f"--api-key first,{TOKEN}",
        f"--api-key={TOKEN},{TOKEN}2",
        f"VLLM_API_KEY=first,{TOKEN}",
        f"Authorization: ApiKey {TOKEN}",
        f"authorization: {TOKEN} {TOKEN}",
        f'"Authorization": "ApiKey {TOKEN}"',
        f'Authorization: Digest username="u", response="{TOKEN}"',
        f"curl -H 'api-key: {TOKEN}' http://gpu1",
        f'curl -H "X-Auth-Token: {TOKEN}" http://gpu1',
        f"token: {TOKEN}",
        f"  hub_token: {TOKEN}",
        f"Nov 22 gpu1 engine[1]: token: {TOKEN}",
        f"got token: {TOKEN} from the hub",
        f"Cookie: a={TOKEN}; b={TOKEN}",
        f"Set-Cookie: session={TOKEN}; Path=/",
        f"{{'cookie': '{TOKEN}'}}",
        f"https://{TOKEN}@github.com/x",
        f"git+https://{TOKEN}:@github.com/x",
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{TOKEN}.{TOKEN}",
        f"xoxb-123456789012-{TOKEN}",
        f"xapp-1-{TOKEN}",
        f"npm_{TOKEN}{TOKEN}{TOKEN}",
        f"AIza{TOKEN}{TOKEN}abcde",
        f"ya29.{TOKEN}abc",
        f"gsk_{TOKEN}{TOKEN}",
        f"r8_{TOKEN}{TOKEN}",
        f"https://cdn.lan/x?X-Amz-Date=1&X-Amz-Signature={TOKEN}",
        f"https://cdn.lan/x?Expires=1&Signature={TOKEN}&Key-Pair-Id=K1",
        f"https://store.lan/x?sv=1&sig={TOKEN}",
        f"X-Auth-Key: {TOKEN}",
        f"curl -s -u ada:{TOKEN} http://gpu1",
        f"curl --user 'ada:{TOKEN}' http://gpu1",
        f"machine hub.lan login ada password {TOKEN}",
    ],
)
def test_forms_of_tokens_headers_and_addresses(text: str) -> None:
    left = Redactor([]).text(text)
    assert TOKEN not in left and REDACTED in left
    assert Redactor([]).text(left) == left


@pytest.mark.parametrize(
    "text",
    [
        "EOS token: 151645 '<|im_end|>'",
        "host key: ED25519",
        "context token: 4096",
        "https://example.org/path@x",
        "ssh://ada@gpu1/",
        "cookies are not used",
        "podman run --user 1000:1000 image",
        "the signature=valid of the index",
        "x-accel-buffering: no",
    ],
)
def test_what_is_near_to_one_of_those_and_is_none_stays(text: str) -> None:
    assert Redactor([]).text(text) == text


def test_each_of_several_api_keys_is_known_by_itself() -> None:
    manifest = {
        "command": ["vllm", "--api-key", "first-key,second-key"],
        "environment": {"VLLM_API_KEY": "third,fourth"},
    }
    redactor = Redactor(secrets_within(manifest))
    assert redactor.text("second-key fourth first-key third") == " ".join([REDACTED] * 4)


@pytest.mark.parametrize(
    "piece",
    (
        *(
            "a",
            "--a",
            "--",
            "--key",
            "--api-key=",
            "key=",
            "a.",
            "'key:",
            '"key=',
            "a://b:",
            "https://",
            "eyJ-",
            "eyJ.",
        ),
        *("]:", "api_key=a,", "authorization:\t\t\t", "cookie:\t", "token: ", "-----BEGIN ", "'--key','", "xoxb-"),
        *("curl ", "curl -u", "?a", "?-", "x-", "x-key", "machine a login b "),
    ),
)
def test_a_line_of_200_kb_takes_time_linear_in_its_length(piece: str) -> None:
    redactor = Redactor([])
    with bounded():
        redactor.text(piece * (200_000 // len(piece)))
