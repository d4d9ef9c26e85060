"""The lab: disposable Debian machines, booted on this one, to rehearse on.

addresses       who has which address                      registries   where this machine gets its packages from
folder          what is kept, and where                    packages     the package proxy inside a lab
process         detached processes and their pid files     forwarder    loopback address -> machine
cgroup          exact teardown                             holder       holds one machine: boots it, boots it again
network         namespaces, cables, sockets inside a lab   access       key, known_hosts, ssh_config, inventory
base            the image that machines start from         machine      one machine and its faults
prerequisites   what this machine must have                lab          up, down, list
"""
