"""Nothing that is secret passes, however it is written; what only sounds like a secret does."""

from __future__ import annotations

import json
from typing import NamedTuple
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


class Said(NamedTuple):
    """A value with names, as a page's sections hold."""

    title: str
    lines: tuple[str, ...]


def test_of_a_named_tuple_each_text() -> None:
    said = Said("HF_TOKEN=hello123", ("a line", "HF_TOKEN=hello123"))
    assert Redactor([]).value([said]) == [Said("HF_TOKEN=[redacted]", ("a line", "HF_TOKEN=[redacted]"))]


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


def nested(value: object, times: int) -> str:
    """JSON in a text of JSON, so many times."""
    text = json.dumps(value)
    for _ in range(times):
        text = json.dumps({"body": text})
    return text


MUST = {
    "JSON in JSON": nested({"api_key": TOKEN, "n": 1}, 1),
    "JSON in JSON in JSON": nested({"password": TOKEN, "n": 1}, 2),
    "list in JSON in JSON": nested({"api_keys": [TOKEN, f"{TOKEN}2"]}, 1),
    "quotes in JSON in JSON": nested({"password": f'a"{TOKEN}', "n": 1}, 1),
    "words in JSON in JSON": nested(["--api-key", TOKEN], 1),
    "JSON in JSON without end": nested({"api_key": TOKEN}, 1)[:-6],
    "pair": f"headers: [('x-api-key', '{TOKEN}'), ('accept', '*/*')]",
    "pair of bytes": f"[(b'x-api-key', b'{TOKEN}'), (b'accept', b'*/*')]",
    "pair of authorization": f"(b'authorization', b'Bearer {TOKEN}')",
    "pair of a cookie": f'("cookie", "session={TOKEN}")',
    "pair in a list": f'["Authorization", "Basic {TOKEN}"]',
    "bytes in a mapping": f"{{b'api-key': b'{TOKEN}'}}",
    "YAML, next line": f"api_key:\n  {TOKEN}\nport: 1",
    "YAML, next line, quoted": f'  password:\n    "{TOKEN}"',
    "YAML, folded": f"password: >-\n  {TOKEN}\n  {TOKEN}",
    "YAML, literal": f"hub_token: |\n\n  {TOKEN}",
    "YAML, list": f"api_keys:\n  - {TOKEN}\n  - {TOKEN}\nport: 1",
    "YAML, flat list": f"api_keys:\n- {TOKEN}",
    "YAML in a journal": f"Nov 22 gpu1 engine[1]: api_key:\nNov 22 gpu1 engine[1]:   {TOKEN}",
    "variable in YAML": f"env:\n  - name: HF_TOKEN\n    value: {TOKEN}",
    "variable in JSON": f'{{"name": "HF_TOKEN", "value": "{TOKEN}"}}',
    "docker's login": '{"auths": {"ghcr.io": {"auth": "dXNlcjpTM2NyM3R2YWx1ZTl4eXo="}}}',
    "pass": f"connect pass={TOKEN} host=db",
    "name_pass": f"DB_PASS={TOKEN}",
    "pwd": f"Server=db;uid=sa;pwd={TOKEN};",
    "MYSQL_PWD": f"MYSQL_PWD={TOKEN} mysqldump",
    "SSHPASS": f"SSHPASS={TOKEN} sshpass -e ssh gpu1",
    "pass in JSON": f'{{"user": "ada", "pass": "{TOKEN}"}}',
    "--pass": f"program --pass {TOKEN} --port 1",
    "sshpass": f"sshpass -p {TOKEN} ssh gpu1",
    "sshpass, quoted": f"sshpass -p '{TOKEN} 2' ssh gpu1",
    "sshpass, one word": f"sshpass -p{TOKEN} ssh gpu1",
    "mysql": f"mysql -h db -u root -p{TOKEN} -e 'select 1'",
    "mysql, two words": f"mysql -u root -p {TOKEN}",
    "mysqldump": f"mysqldump --single-transaction -p'{TOKEN}' all",
    "docker login": f"docker login -u ada -p {TOKEN} ghcr.io",
    "redis": f"redis-cli -h cache -a {TOKEN} ping",
    "openssl": f"openssl rsa -in key.pem -passin pass:{TOKEN}",
    "Dockerfile": f"ENV HF_TOKEN {TOKEN}",
    "fish": f"set -gx HF_TOKEN {TOKEN}",
    "OpenAI": f"Incorrect API key provided: {TOKEN}. You can find your API key at x",
    "sentence": f"the API key is {TOKEN}",
    "quoted in a sentence": f"invalid api key '{TOKEN}'",
    "XML": f"<config><api-key>{TOKEN}</api-key></config>",
    "Slack": f"POST https://hooks.slack.com/services/T0001/B0002/{TOKEN}",
    "Discord": f"POST https://discord.com/api/webhooks/1234/{TOKEN}",
    "Discord's earlier name": f"https://discordapp.com/api/v10/webhooks/1234/{TOKEN}?wait=1",
    "Teams": f"https://x.webhook.office.com/webhookb2/1@2/IncomingWebhook/{TOKEN}/3",
    "Telegram": f"https://api.telegram.org/bot1234:{TOKEN}/getMe",
    "percent-encoded": f"GET /login?next=%2Fv1%3Fapi_key%3D{TOKEN}%26n%3D1",
    "percent-encoded twice": f"next=%252Fv1%253Ftoken%253D{TOKEN}%2526n",
    "percent-encoded JSON": f"?q=%7B%22api_key%22%3A%22{TOKEN}%22%7D",
    "PGP": f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{TOKEN}\n-----END PGP PRIVATE KEY BLOCK-----",
    "age": f"# public key: age1xyz\nAGE-SECRET-KEY-1{TOKEN.upper()}{TOKEN.upper()}{TOKEN.upper()}",
    "session of AWS": f"ASIA{TOKEN.upper()[:12]}ABCD",
    "GitLab's deploy token": f"gldt-{TOKEN}{TOKEN}",
    "Tailscale": f"tskey-auth-{TOKEN}-{TOKEN}",
}


@pytest.mark.parametrize("text", MUST.values(), ids=MUST)
def test_forms_in_which_secrets_occur(text: str) -> None:
    left = Redactor([]).text(text)
    spelled = (TOKEN, TOKEN.upper(), TOKEN.upper()[:12], "dXNlcjpTM2NyM3R2YWx1ZTl4eXo")
    assert not any(form in left for form in spelled) and REDACTED in left
    assert Redactor([]).text(left) == left


def test_what_stands_beside_a_secret_is_left() -> None:
    for name, parts in {
        "JSON in JSON": ('\\"n\\": 1',),
        "words in JSON in JSON": ("--api-key",),
        "pair": ("('accept', '*/*')", "'x-api-key'"),
        "pair of bytes": ("(b'accept', b'*/*')",),
        "YAML, next line": ("api_key:", "port: 1"),
        "YAML, list": ("port: 1",),
        "pass": ("host=db",),
        "pwd": ("uid=sa",),
        "sshpass, quoted": ("ssh gpu1",),
        "mysql": ("-h db -u root", "select 1"),
        "docker login": ("-u ada", "ghcr.io"),
        "OpenAI": ("Incorrect API key provided", "You can find"),
        "percent-encoded": ("%26n%3D1",),
    }.items():
        left = Redactor([]).text(MUST[name])
        assert [part for part in parts if part not in left] == [], left


@pytest.mark.parametrize(
    "text",
    [
        "PWD=/root/fleet OLDPWD=/srv",
        "tests pass: 12, fail: 0",
        "pass=1 of 2",
        "two-pass=true, bypass=yes, compass=north",
        "docker run -p 8080:80 -p 443:443 image",
        "ssh -p 2222 gpu1; mkdir -p /var/x; cp -p a b",
        "mysql -h db -P 3306 -e 'select 1'",
        "https://discord.com/channels/1/2 https://hooks.slack.com/ https://api.telegram.org/",
        '{"auth": "required"}',
        "an API key is required; the API key is missing; the api key is invalid",
        "('content-type', 'application/json'), (b'model', b'x')",
        "tokens:\n  - a\n  - b\nkeys:\n  - c",
        "password:\n  description: of the database\n  type: string",
        "secrets:\n  - db\n  - hub",
        "- name: MODEL\n  value: x",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\nx\n-----END PGP PUBLIC KEY BLOCK-----",
        "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",
        "unexpected token '</s>' at 3",
        'nested \\"model\\": \\"x\\"',
        "set -e HF_HOME",
        "path%3D%2Fv1%26n%3D1",
    ],
)
def test_what_is_near_to_one_of_these_forms_stays(text: str) -> None:
    assert Redactor([]).text(text) == text


def test_a_login_in_a_value() -> None:
    assert Redactor([]).value({"pass": "hello", "pwd": "there", "bypass": "x", "PWD": "/root"}) == {
        **{"pass": REDACTED, "pwd": REDACTED, "bypass": "x", "PWD": "/root"},
    }


@pytest.mark.parametrize(
    "text",
    ["api_key:\n" * 8_000, "api_key:\n  x\n" * 8_000, "- name: a_token\n" * 8_000, "[1]:" * 50_000],
    ids=["keys", "values", "variables", "prefixes"],
)
def test_many_lines_take_time_linear_in_their_number(text: str) -> None:
    with bounded():
        Redactor([]).text(text)


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
        *('\\"key\\":', '\\"', '\\"key\\":\\"', '\\"key\\":[\\"', "mysql ", "mysql a ", "sshpass -p", "docker login "),
        *("('key','", "(b'", '"name":"', "_pass", "pass=", "<key>", "<key", "key%3D", "%3D", "api key ", "api key a "),
        *('"auth":"', "ENV ", "set -x ", "name: ", "api_key: ", "[a]:", "AGE-SECRET-KEY-1", "https://discord.com/api/"),
    ),
)
def test_a_line_of_200_kb_takes_time_linear_in_its_length(piece: str) -> None:
    redactor = Redactor([])
    with bounded():
        redactor.text(piece * (200_000 // len(piece)))
