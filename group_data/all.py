"""For every host, whatever its group. Values here give way to a group's and a host's own."""

# rigup checks host keys by itself; this line makes plain pyinfra do so too (its default accepts unknown ones).
ssh_strict_host_key_checking = "yes"
