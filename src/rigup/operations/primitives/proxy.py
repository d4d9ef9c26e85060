"""The HTTP proxy that a host has for logins, given to the units in which rigup downloads.

/etc/environment counts for logins alone: a transient unit has none of it. Only the proxy's variables are handed on,
since others (PATH, LD_LIBRARY_PATH) would change what is built. The values stay on the host: they may hold a password.
"""

from __future__ import annotations

from rigup.layout import RUNTIME

FILE = f"{RUNTIME}/proxy.environment"
PROPERTY = f"EnvironmentFile=-{FILE}"
"""What a unit needs in addition."""
SOURCE = "/etc/environment"
_NAMES = "((https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY)"
COPY = rf"""
( umask 077; mkdir -p -m 755 {RUNTIME}
sed -nE -e 's/[[:space:]]+$//' \
  -e 's/^(export[[:space:]]+)?{_NAMES}=(["'\'']?)([^"'\'']*)\5$/\2=\6/p' {SOURCE} >{FILE}.new 2>/dev/null
mv -f {FILE}.new {FILE} ) || true
"""
"""sh that notes the proxy, as it is now, for units."""
EXPORT = f"""
{COPY}
while IFS= read -r variable; do export "$variable"; done <{FILE}
"""
"""sh that notes the proxy and uses it for what follows in the same script."""
