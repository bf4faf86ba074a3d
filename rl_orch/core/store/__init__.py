"""The database: connections, schema, and guarded writes to its tables."""
