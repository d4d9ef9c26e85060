"""curl's configuration, which is where a token or a path could do harm."""

from __future__ import annotations

import time
from email.utils import formatdate
from pathlib import Path

import pytest

from rigup.programs.weights.curl_transfers import LONGEST_RETRY_AFTER_S, _transfer, configuration

HTTPS = ("https://hub.example/a", Path("/weights/a.part"), 10)
HTTP = ("http://hub.example/b", Path('/weights/odd"\\name.part'), 20)


def lines(
    wanted: tuple[str, Path, int], token: str | None = None, bytes_per_second: int = 0, peer: bool = False
) -> list[str]:
    return configuration(*wanted, 30, token, bytes_per_second, peer).splitlines()


def test_options_of_a_download() -> None:
    assert {'url = "https://hub.example/a"', "max-filesize = 10"} <= set(lines(HTTPS))
    assert {"fail", "location", "continue-at = -", "speed-time = 30"} <= set(lines(HTTPS))


def test_an_https_hub_never_leads_to_plain_http() -> None:
    assert {'proto = "=https"', 'proto-redir = "=https"'} <= set(lines(HTTPS))
    assert 'proto-redir = "=https,http"' in lines(HTTP)


def test_the_token_is_there_where_one_was_given() -> None:
    assert 'header = "Authorization: Bearer hf_x"' in lines(HTTPS, token="hf_x")
    assert not [line for line in lines(HTTPS) if "Authorization" in line]


def test_quotes_and_backslashes_in_a_path_stay_inside_it() -> None:
    assert 'output = "/weights/odd\\"\\\\name.part"' in lines(HTTP)


def test_a_peer_is_asked_directly_and_its_redirects_are_not_followed() -> None:
    asked = lines(("http://10.0.0.2:8791/files/a", Path("/a"), 1), peer=True)

    assert "location" not in asked and not any(line.startswith(("max-redirs", "proto-redir")) for line in asked)
    assert 'noproxy = "*"' in asked


def test_a_limit_is_curls() -> None:
    assert "limit-rate = 20000000" in lines(HTTPS, bytes_per_second=20_000_000)
    assert not [line for line in lines(HTTPS) if line.startswith("limit-rate")]


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("7", 7, 7),
        ("999999", LONGEST_RETRY_AFTER_S, LONGEST_RETRY_AFTER_S),
        (60, 50, 61),
        (-60, 0, 0),
        ("soon", 0, 0),
        ("", 0, 0),
        ("%header{retry-after}", 0, 0),
    ],
)
def test_how_long_a_server_wants_to_be_left_alone(header: str | int, least: float, most: float) -> None:
    """A number is a date that many seconds from now. The last one is what curl before 7.84 prints."""
    if isinstance(header, int):
        header = formatdate(time.time() + header, usegmt=True)
    transfer = _transfer(f"22\t429\thttps://hub.example/a\t{header}\tThe requested URL returned error: 429")

    assert transfer is not None and (transfer.code, transfer.status, transfer.host) == (22, 429, "hub.example")
    assert transfer.message == "The requested URL returned error: 429"
    assert least <= transfer.retry_after_s <= most
