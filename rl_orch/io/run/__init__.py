"""The run directory: its files, its lock, its events, its command socket."""
