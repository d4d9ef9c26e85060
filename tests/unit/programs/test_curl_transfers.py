"""curl's configuration, which is where a token or a path could do harm."""

from __future__ import annotations

import time
from email.utils import formatdate
from pathlib import Path

import pytest

from rigup.programs.curl_transfers import LONGEST_RETRY_AFTER_S, Wanted, _transfer, configuration

HTTPS = Wanted("https://hub.example/a", Path("/weights/a.part"), 10)
HTTP = Wanted("http://hub.example/b", Path('/weights/odd"\\name.part'), 20)


def sections(config: str) -> list[list[str]]:
    return [section.splitlines() for section in config.split("next\n")]


def test_each_file_is_a_section_with_options_of_its_own() -> None:
    first, second = sections(configuration([HTTPS, HTTP], parallel=4, stall_s=30, token=None))

    assert 'url = "https://hub.example/a"' in first and "max-filesize = 10" in first
    assert 'url = "http://hub.example/b"' in second and "max-filesize = 20" in second
    for option in ("fail", "location", "continue-at = -", "speed-time = 30"):
        assert option in first and option in second


def test_an_https_hub_never_leads_to_plain_http() -> None:
    first, second = sections(configuration([HTTPS, HTTP], parallel=4, stall_s=30, token=None))

    assert 'proto = "=https"' in first and 'proto-redir = "=https"' in first
    assert 'proto-redir = "=https,http"' in second


def test_the_token_is_in_every_section_or_in_none() -> None:
    with_token = sections(configuration([HTTPS, HTTP], parallel=4, stall_s=30, token="hf_x"))
    without = configuration([HTTPS, HTTP], parallel=4, stall_s=30, token=None)

    assert all('header = "Authorization: Bearer hf_x"' in section for section in with_token)
    assert "Authorization" not in without


def test_quotes_and_backslashes_in_a_path_stay_inside_it() -> None:
    config = configuration([HTTP], parallel=4, stall_s=30, token=None)

    assert 'output = "/weights/odd\\"\\\\name.part"' in config.splitlines()


def test_parallel_is_bounded() -> None:
    for asked, given in ((0, 1), (4, 4), (1000, 16)):
        assert f"parallel-max = {given}" in configuration([HTTPS], asked, 30, None).splitlines()


def test_a_neighbour_is_asked_directly_and_its_redirects_are_not_followed() -> None:
    (section,) = sections(configuration([Wanted("http://10.0.0.2:8791/files/a", Path("/a"), 1, True)], 4, 30, None))

    assert "location" not in section and not any(line.startswith(("max-redirs", "proto-redir")) for line in section)
    assert 'noproxy = "*"' in section


def test_a_limit_is_kept_by_one_transfer_at_a_time() -> None:
    limited = configuration([HTTPS, HTTP], 4, 30, None, bytes_per_second=20_000_000)

    assert "parallel-max = 1" in limited.splitlines()
    assert all("limit-rate = 20000000" in section for section in sections(limited))
    assert "limit-rate" not in configuration([HTTPS], 4, 30, None)


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
    transfer = _transfer(f"3\t22\t429\thttps://hub.example/a\t{header}\tThe requested URL returned error: 429")

    assert transfer is not None and (transfer.number, transfer.status, transfer.host) == (3, 429, "hub.example")
    assert transfer.message == "The requested URL returned error: 429"
    assert least <= transfer.retry_after_s <= most
