"""Hosts as a whole: what differs between two, and the removal of all that rigup has put on one."""
