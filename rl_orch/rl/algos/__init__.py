"""Learning algorithms, one file each, independent of each other."""
