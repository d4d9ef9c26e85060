"""What a run that finds nothing to do must not import: its start is most of what it takes."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib.metadata, sys
from rigup.cli import hosts
hosts.patch_for_many_hosts()
from rigup.fleet import contact, startup
import rigup.cli.apply, rigup.cli.diff, rigup.cli.examining, rigup.cli.status
before = set(sys.modules)
startup.import_by_and_by(planning=False)
import rigup.cli.live, rigup.cli.summary
from rigup.fleet.runner import load_provision
load_provision()
loaded = {name for name, module in sys.modules.items() if type(module).__name__ != "_Later"}
seldom = {"asyncio", "invoke", "jinja2", "packaging.version", "pynvml", "requests", "unittest.mock", "urllib3"}
print(*sorted(loaded & seldom))
print(*(name for name in ("pydantic", "rigup.plan") if name in before))
print(*(name for name in ("rigup.planner.decide", "rigup.planner.rules", "rigup.catalogue.engines") if name in loaded))
import invoke, requests, unittest.mock
print(callable(invoke.run), callable(requests.get), callable(unittest.mock.patch))
from requests.auth import AuthBase
print(AuthBase.__name__)
from pyinfra.api.connectors import get_all_connectors
print("ssh" in get_all_connectors(), *importlib.metadata.entry_points(group="pydantic"))
from io import StringIO
from pyinfra.api import config, util
from pyinfra.operations.util.packaging import PkgInfo
import jinja2
print(util.get_template(StringIO("{{ what }}")).render(what="a template"))
try:
    util.get_template(StringIO("{{ what }}")).render()
except jinja2.UndefinedError as error:
    print(error)
config.check_pyinfra_version(">=3")
print(*config._check_requirements(["pyinfra>=3"]), PkgInfo.from_pep508("rich==1").version)
print(PkgInfo.from_pep508("no such thing!").name)
from packaging.version import Version
print(Version is type(Version("1")))
"""


def test_nothing_that_is_seldom_needed_is_loaded_and_all_of_it_can_be() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    seldom, needed_later, planning, work, submodule, connectors, *pyinfras = done.stdout.splitlines()
    assert seldom == ""
    assert needed_later == "", "connections begin before this is imported"
    assert planning == "", "plans of last time need no planner"
    assert (work, submodule) == ("True True True", "AuthBase")
    assert connectors == "True", "pyinfra's own, and nobody else's plugins"
    assert pyinfras == ["a template", "'what' is undefined", "1", "no such thing!", "True"]
