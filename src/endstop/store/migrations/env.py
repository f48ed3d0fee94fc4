"""Alembic's entry: runs the steps on the connection that ``store.migrate`` hands over, inside its transaction."""

from alembic import context

from endstop.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
