"""Grafana dashboards, generated from the catalogue of metrics with grafana-foundation-sdk.

``python -m soakd.dashboards dashboards`` writes them; nothing here is imported at run time. Queries are InfluxQL, which
InfluxDB 1.8, 2 (by a DBRP mapping) and 3 all answer.
"""
