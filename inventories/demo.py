"""The demo's one machine. On a real box this whole file is: demo = ["gpu1.lan"]"""

import os
from pathlib import Path

# `rigup lab up --name demo` boots it and writes how to reach it, host key included, into this folder.
_lab = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rigup" / "lab" / "labs" / "demo"

demo = [("demo1", {"ssh_config_file": str(_lab / "ssh_config")})]
