"""A graph of Python objects as plain data (`flatten`), and back into one made alike (`refill`)."""
