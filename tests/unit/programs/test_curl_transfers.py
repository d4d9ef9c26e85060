"""curl's configuration, which is where a token or a path could do harm."""

from __future__ import annotations

from pathlib import Path

from rigup.programs.curl_transfers import Wanted, configuration

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
