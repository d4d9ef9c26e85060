"""Defaults for all hosts. A group's and a host's own values take precedence."""

# rigup always checks host keys; this makes plain pyinfra check them too (by default it accepts unknown ones).
ssh_strict_host_key_checking = "yes"
