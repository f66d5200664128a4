"""The OpenMetrics text format."""
