"""The whole of a host, for plain pyinfra: pyinfra inventories/demo.py deploy/site.py"""

from pyinfra import host

from rigup.fleet.deploying import deployment_of
from roles.site import provision

provision(*deployment_of(host))
