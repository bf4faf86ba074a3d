"""One script per claim; each runs a peer and us in the same run and writes JSON."""
