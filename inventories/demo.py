"""The demo's machine. For a real host the whole file would be: demo = ["gpu1.lan"]"""

import os
from pathlib import Path

# `rigup lab up --name demo` boots it and writes its SSH configuration and host key to this folder.
_lab = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rigup" / "lab" / "labs" / "demo"

demo = [("demo1", {"ssh_config_file": str(_lab / "ssh_config")})]
