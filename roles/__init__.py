"""Roles in the Ansible sense: @deploy functions with typed arguments. The planner decides; roles carry it out."""
