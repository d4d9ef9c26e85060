"""Roles: @deploy functions with typed arguments, in the Ansible sense of the word. They act; the planner decides."""
