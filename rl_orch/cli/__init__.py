"""The command `rlctl`: `rlctl.py` has the table of commands, each in a module of its own."""
