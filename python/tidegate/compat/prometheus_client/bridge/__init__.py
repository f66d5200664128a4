"""Ways to other systems."""
