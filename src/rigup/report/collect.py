"""The data of a host for a bug report besides its probe: the last lines of its journals, and secrets to redact."""

from __future__ import annotations

from dataclasses import dataclass, field

from rigup import layout
from rigup.host import Host
from rigup.operations.primitives import remote

JOURNAL_LINES = 200
KERNEL_LINES = 60
SECONDS = 60

# The journals of rigup's units, $1 lines of each. Then the kernel's messages about GPUs and memory, $2 lines.
_JOURNAL = """
export LC_ALL=C TZ=UTC
units=$({
  systemctl list-units --all --plain --no-legend 'rigup-*' | cut -d' ' -f1
  journalctl -F _SYSTEMD_UNIT 2>/dev/null | grep '^rigup-'
} | sort -u)
for unit in $units; do
  echo "--- $unit"
  systemctl show "$unit" --property=ActiveState,SubState,Result,ExecMainStatus,NRestarts,ActiveEnterTimestamp
  journalctl --no-pager -o short-iso -n "$1" -u "$unit" 2>/dev/null
done
echo "--- kernel"
journalctl --no-pager -o short-iso -k 2>/dev/null | grep -E 'NVRM|Xid|nvidia|[Oo]ut of memory|oom-kill' | tail -n "$2"
true
"""
# The secrets are only used to find them in the text, and stored nowhere.
SECRETS = 'for file in "$1"/services/*/api-key "$1"/hub-token; do [ -f "$file" ] && { cat "$file"; echo; }; done; true'


@dataclass
class HostReport:
    """The data of one host. record: of the last apply. secrets: only for the redaction."""

    journal: str = ""
    record: str = ""
    secrets: list[str] = field(default_factory=list, repr=False)


def collect_report(host: Host) -> HostReport:
    """Collects the data from a connected host; raises HostFailed if the host does not respond."""
    secrets = remote.script(host, SECRETS, layout.CONFIGURATION, timeout=SECONDS).split("\n")
    journal = remote.script(host, _JOURNAL, str(JOURNAL_LINES), str(KERNEL_LINES), timeout=SECONDS)
    record = remote.run(host, "tail", "-n", "1", layout.APPLY_RECORDS, timeout=SECONDS).stdout
    return HostReport(journal, record.strip(), [secret for secret in secrets if secret])
