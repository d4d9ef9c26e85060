"""Only what the GPUs need, for plain pyinfra: pyinfra inventories/homelab.py deploy/driver.py [--data reboot=yes]"""

from pyinfra import host

from rigup.fleet.deploying import deployment_of
from rigup.operations import reboots
from roles.gpus import gpus

if host.data.get("reboot") == "yes":
    reboots.permit()
gpus(*deployment_of(host))
