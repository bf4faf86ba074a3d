"""Tasks: programs that answer one request and end."""
