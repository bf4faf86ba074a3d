"""The numbers of a run: read from its events, indexed, thinned, kept in rings while it works."""
