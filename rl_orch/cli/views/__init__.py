"""Records in words, tables, charts and figures."""
