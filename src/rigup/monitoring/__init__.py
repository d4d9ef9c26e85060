"""Prometheus, alerts and Grafana: files for exporters, scrape configuration and dashboard. Pure.

May import nouns, catalogue, planner and systemd.
"""
