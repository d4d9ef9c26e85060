"""The folder with roles/, deploy/, files/, group_data/ and the toolkit's own lock.

In a checkout this is the top folder; an installed wheel has them inside the package.
`python -m rigup.toolkit` prints it, for plain pyinfra: pyinfra INVENTORY "$(python -m rigup.toolkit)/deploy/site.py"
"""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_SHIPPED = _PACKAGE / "shipped"


def toolkit_root() -> Path:
    """The folder that holds roles/ and deploy/."""
    return _SHIPPED if _SHIPPED.is_dir() else _PACKAGE.parents[1]


def find_roles() -> None:
    """Makes `import roles` find the toolkit's roles, after a fleet's own."""
    root = str(toolkit_root())
    if root not in sys.path:
        sys.path.append(root)


if __name__ == "__main__":
    print(toolkit_root())
