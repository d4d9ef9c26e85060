"""docs/security.md names the bounds that the code has, and every party."""

from __future__ import annotations

import re

import pytest

from rigup import regular_files
from rigup.connection.command_channel import Limits
from rigup.facts import bounds
from rigup.operations.builds import records
from rigup.operations.service import health
from rigup.programs import ask, http_reader, unprivileged
from rigup.project import settings
from rigup.run.services import journal
from rigup.sources import downloads, http_retry, hub, package_index, registry, remote_wheel
from tests.unit.test_import_direction import ROOT

PAGE = " ".join((ROOT / "docs/security.md").read_text().split())
MIB, GIB = 2**20, 2**30
PARTIES = (
    *("The controlling machine and the fleet folder", "Root on a host", "Root on a builder", "Local users of a host"),
    *("The worker user and the services' users", "The model hub", "The package index, download servers and wheels"),
    *("Container registries", "apt repositories", "Peers", "Clients of a service", "Clients of a gateway"),
)
BOUNDS = (
    f"{Limits.stdout // MIB} MiB of output per command, {Limits.stderr // MIB} MiB of error output, "
    f"{Limits.line // MIB} MiB per line, {Limits.lines:,} lines",
    f"at most {journal.AHEAD // MIB} MiB ahead for all hosts together, {journal.MOST_PRINTED // MIB:,} MiB a host in "
    f"all, and {journal.PATIENCE_SECONDS:.0f} s of silence",
    f"Documents are at most {bounds.MOST_CHARACTERS // MIB} MiB, {bounds.MOST_DEPTH} levels deep and "
    f"{bounds.MOST_VALUES:,} values",
    f"files have at most {regular_files.LARGEST // MIB} MiB and {regular_files.MOST_LEVELS} levels",
    f"a key or token {settings.LONGEST_SECRET:,} bytes",
    f"at most {records.MOST_BYTES // 10**9} GB and {records.MOST_FILES:,} files",
    f"limited to {unprivileged.MOST_MEMORY // MIB} MiB of memory and {http_reader.MOST_BODY // MIB} MiB of body, "
    f"{health.ANSWER_SECONDS} s to the first byte and {ask.BODY_SECONDS} s from there to the last",
    f"listings {hub.LARGEST_PAGE // MIB} MiB a page, {hub.MOST_PAGES:,} pages, {hub.MOST_FILES:,} files; "
    f"other documents {hub.LARGEST // MIB} MiB; one exchange {http_retry.EXCHANGE_S:.0f} s with all retries, "
    f"one question {hub.LISTING_S:.0f} s",
    f"index pages {package_index.LARGEST_PAGE // MIB} MiB, {package_index.PAGE_S:.0f} s; wheel members read by range "
    f"{remote_wheel.LARGEST_MEMBER // MIB} MiB, {remote_wheel.READ_S:.0f} s a file; archives the locked size, or "
    f"{downloads.LARGEST_DOWNLOAD // GIB} GiB",
    f"Documents are at most {registry.LARGEST // MIB} MiB.",
)


@pytest.mark.parametrize("bound", BOUNDS, ids=[text[:40] for text in BOUNDS])
def test_a_bound_is_that_of_the_code(bound: str) -> None:
    assert bound in PAGE


def test_each_party_has_its_section_and_a_vulnerability_a_way_to_be_reported() -> None:
    headings = re.findall(r"^##+ (.+)$", (ROOT / "docs/security.md").read_text(), re.MULTILINE)
    assert [party for party in PARTIES if party not in headings] == []
    assert {"Secrets", "Connections", "Root on your hosts", "Not protected", "Report a vulnerability"} <= set(headings)


def test_the_ci_example_gives_a_pull_request_neither_a_machine_of_the_fleets_nor_a_key() -> None:
    workflows = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/teams.md").read_text(), re.DOTALL)
    open_to_everybody = [text for text in workflows if "pull_request" in text]
    assert len(workflows) == 2 and len(open_to_everybody) == 1
    for text in open_to_everybody:
        assert "secrets." not in text and re.findall(r"runs-on: *(.*)", text) == ["ubuntu-latest"]
    for text in workflows:
        assert "permissions:\n  contents: read\n" in text and "persist-credentials: false" in text
        assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", used) for used in re.findall(r"uses: (.*)", text))
