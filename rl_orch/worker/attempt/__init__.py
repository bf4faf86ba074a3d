"""One attempt at a run: where it starts, how it is framed, what it records and obeys."""
