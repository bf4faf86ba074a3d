"""Jobs: requests besides runs, carried out here or by a service, a few at a time."""
