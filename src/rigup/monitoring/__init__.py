"""Monitoring with Prometheus and Grafana: files for exporters, scrape configuration, alerts and dashboard. Pure.

May import nouns, catalogue, planner and systemd.
"""
