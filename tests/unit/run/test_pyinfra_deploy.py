"""What plain pyinfra cannot deploy is refused before a host is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.exceptions import DeployError

from rigup.run.pyinfra_deploy import deployment_of


def test_a_gateway_is_neither_set_up_nor_removed() -> None:
    data: dict[str, Any] = {"gateway": {"hold": 20}, "rig": {"gpus": []}, "services": {}}
    host: Any = SimpleNamespace(name="gw1.lan", groups=["edge"], data=SimpleNamespace(dict=lambda: data))
    with pytest.raises(DeployError, match=r"gw1\.lan: a gateway needs the plans of the whole inventory"):
        deployment_of(host)
