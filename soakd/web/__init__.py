"""The daemon's web server: health, status, metrics for Prometheus, and the orders that need the token."""
