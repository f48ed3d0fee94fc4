"""Steps from one schema to the next, run by ``store.migrate`` when a database is older than this version."""
