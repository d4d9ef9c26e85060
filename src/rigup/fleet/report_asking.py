"""What a bug report wants from a host beside its probe: the last lines of its journals, and what must not be in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rigup import layout
from rigup.fleet.records import ON_HOST
from rigup.operations import remote

JOURNAL_LINES = 200
KERNEL_LINES = 60
SECONDS = 60

# The journals of what rigup runs; $1 lines of each. Then what the kernel says of cards and of memory; $2 lines.
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
# Read to be looked for in the text, and kept nowhere.
SECRETS = 'for file in "$1"/services/*/api-key "$1"/hub-token; do [ -f "$file" ] && { cat "$file"; echo; }; done; true'


@dataclass
class Asked:
    """What one host said. record: of the last apply. secrets: for the redaction, and for nothing else."""

    journal: str = ""
    record: str = ""
    secrets: list[str] = field(default_factory=list, repr=False)


def asked_for_report(host: Any) -> Asked:
    """Asks a host that is connected; raises HostFailed where it does not answer."""
    secrets = remote.script(host, SECRETS, layout.CONFIGURATION, timeout=SECONDS).split("\n")
    journal = remote.script(host, _JOURNAL, str(JOURNAL_LINES), str(KERNEL_LINES), timeout=SECONDS)
    record = remote.ask(host, "tail", "-n", "1", ON_HOST, timeout=SECONDS).stdout
    return Asked(journal, record.strip(), [secret for secret in secrets if secret])
