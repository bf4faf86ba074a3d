"""Trackers: the pump that carries events to them, and each of them in a module of its own."""
