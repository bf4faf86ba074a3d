"""Ways to execute a run. Each is independent of the others and loaded by name."""
