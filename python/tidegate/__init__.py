"""Metrics on shared memory: see `tidegate.compat.prometheus_client` and `tidegate.ring`."""
