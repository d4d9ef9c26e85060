"""The lab: disposable Debian machines, booted on this one, to rehearse on.

addresses       the addresses of machines                  registries   this machine's package registries
folder          files and their places                     packages     the package proxy inside a lab
process         detached processes and their pid files     forwarder    loopback address -> machine
cgroup          exact teardown                             holder       holds one machine: boots and reboots it
network         namespaces, cables, sockets inside a lab   access       key, known_hosts, ssh_config, inventory
base            the image that machines start from         machine      one machine and its faults
prerequisites   what this machine needs                    lab          up, down, list
"""
