"""Set up only the GPUs with plain pyinfra: pyinfra inventories/homelab.py deploy/driver.py [--data reboot=yes]"""

from pyinfra import host

from rigup.operations.driver import reboots
from rigup.run.pyinfra_deploy import deployment_of
from roles.gpus import gpus

if host.data.get("reboot") == "yes":
    reboots.permit()
gpus(*deployment_of(host))
