"""Plain files: sealed, private, regular, measured and copied; nothing here knows of runs."""
