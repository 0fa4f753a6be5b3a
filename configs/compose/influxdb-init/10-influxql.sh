#!/bin/bash
# Runs once, when InfluxDB 2 is set up: lets InfluxQL find the bucket (DBRP mapping) and makes the read-only user that
# Grafana's data source logs in with. DOCKER_INFLUXDB_INIT_BUCKET_ID comes from the image's entrypoint.
set -euo pipefail

influx v1 dbrp create \
  --org "$DOCKER_INFLUXDB_INIT_ORG" \
  --bucket-id "$DOCKER_INFLUXDB_INIT_BUCKET_ID" \
  --db soakd --rp autogen --default

influx v1 auth create \
  --org "$DOCKER_INFLUXDB_INIT_ORG" \
  --username grafana --password "$GRAFANA_READER_PASSWORD" \
  --read-bucket "$DOCKER_INFLUXDB_INIT_BUCKET_ID" \
  --description "Grafana reads soakd"
