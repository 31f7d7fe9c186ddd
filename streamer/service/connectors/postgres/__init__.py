"""Changes of tables of PostgreSQL: a source that reads a replication slot."""
