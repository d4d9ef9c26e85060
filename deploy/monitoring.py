"""Only the exporters, for plain pyinfra: pyinfra inventories/homelab.py deploy/monitoring.py"""

from pyinfra import host

from rigup.fleet.deploying import deployment_of
from roles.site import exporters

plans, probe, settings = deployment_of(host)
exporters(probe, settings)
