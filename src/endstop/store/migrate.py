"""Brings a database to the schema of this version when it is opened."""

from __future__ import annotations

import fcntl
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from endstop.errors import StoreCorrupt, UsageError
from endstop.store import sqlite
from endstop.store.tables import SCHEMA


def migrate(engine: Engine, path: Path) -> None:
    """Create or upgrade the tables; of processes that open at the same time one does it.

    Raises:
        UsageError: the database was written by a newer version.
        StoreCorrupt: the file is a database, but not one of ours.
    """
    with engine.connect() as connection:
        if schema_of(connection, path) == SCHEMA:
            return
    with open(path.with_name("migrate.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with engine.connect() as connection:
            sqlite.use_wal(connection)
            with connection.begin():
                if schema_of(connection, path) != SCHEMA:
                    _upgrade(connection)


def schema_of(connection: Connection, path: Path) -> str | None:
    """Revision of the database, None for an empty one."""
    tables = inspect(connection).get_table_names()
    if "alembic_version" not in tables:
        if tables:
            raise StoreCorrupt("this database is not Endstop's", where=str(path), hint="set ENDSTOP_HOME to another folder")
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if found is None or found > SCHEMA:
        raise UsageError(
            f"the database has schema {found}, this version knows up to {SCHEMA}",
            where=str(path),
            hint="upgrade Endstop, or set ENDSTOP_HOME to another folder",
        )
    return str(found)


def _upgrade(connection: Connection) -> None:
    # Heavy to import (0.4 s), and needed only when the schema number differs.
    from alembic.command import upgrade  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["connection"] = connection
    upgrade(config, "head")
