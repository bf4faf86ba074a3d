"""The state of environments: captured, restored, and proven to go on exactly."""
