"""Set up only the exporters with plain pyinfra: pyinfra inventories/homelab.py deploy/monitoring.py"""

from pyinfra import host

from rigup.run.pyinfra_deploy import deployment_of
from roles.site import exporters

plans, probe, settings = deployment_of(host)
exporters(probe, settings)
