"""Set up a whole host with plain pyinfra: pyinfra inventories/demo.py deploy/site.py"""

from pyinfra import host

from rigup.run.pyinfra_deploy import deployment_of
from roles.site import provision

provision(*deployment_of(host))
