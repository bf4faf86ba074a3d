"""How fast training is, beside other libraries that do the same work."""
