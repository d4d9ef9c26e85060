"""Secrets are taken out of what a page is made from: by value, by form, and by the name that they stand under."""

from __future__ import annotations

import pytest

from rigup.cli.page.collect import secrets_of
from rigup.cli.page.content import Error
from rigup.cli.page.document import fleet_page
from rigup.report.redaction import REDACTED, Redactor
from tests.unit.cli.page.page_content import fleet, host, service

KEY = "a-key-that-looks-like-nothing"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"HF_TOKEN": "abc"}, {"HF_TOKEN": REDACTED}),
        ({"deep": [{"api_key": "abc"}]}, {"deep": [{"api_key": REDACTED}]}),
        (["--api-key", "abc", "--port", "8000"], ["--api-key", REDACTED, "--port", "8000"]),
        (("--max-total-tokens", "4096"), ("--max-total-tokens", "4096")),
        ({"kv_tokens": 65536, "token": None}, {"kv_tokens": 65536, "token": None}),
        ({"api_key_file": "secrets/chat.key"}, {"api_key_file": "secrets/chat.key"}),
        ([KEY, f"x{KEY}y"], [REDACTED, f"x{REDACTED}y"]),
        ("hf_abcdefghijklmnopqrstuvwx", REDACTED),
        (Error(f"no {KEY}"), Error(f"no {REDACTED}")),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_taken_out(value: object, wanted: object) -> None:
    assert Redactor([KEY]).value(value) == wanted


def test_a_release_has_secrets_by_environment_and_command_line() -> None:
    manifest = {
        "environment": {"HF_TOKEN": "one", "MAX_TOKENS": "7", "OMP_NUM_THREADS": "4"},
        "command": ["bin/server", "--api-key", "two", "--max-token", "4096", "--port", "8000"],
    }
    assert list(secrets_of(manifest)) == ["one", "two"]
    assert list(secrets_of({})) == []


def test_no_secret_is_on_a_page_wherever_a_host_says_it() -> None:
    said = f"started with {KEY}"
    content = fleet(host(errors=(Error(said, said),), services=(service(serves=said, facts=((said, said),)),)))
    page = fleet_page(Redactor([KEY]).value(content))
    assert KEY in fleet_page(content)
    assert KEY not in page and page.count(f"started with {REDACTED}") >= 5
