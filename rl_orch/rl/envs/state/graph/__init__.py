"""Graphs of Python objects as plain data (`flatten`), and back (`refill`)."""
