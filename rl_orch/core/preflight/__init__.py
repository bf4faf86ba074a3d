"""Looking at the machine and the spec before anything is spent on a run."""
