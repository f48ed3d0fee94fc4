"""What the database holds, as SQLAlchemy tables. A change here needs a migration in ``migrations/versions``.

sessions     one row per session: what listings show, where its journal ends, who drives it
events       the journals: the bytes of each line, unchanged
blobs        texts over 16 KiB, by salted hash; may be erased, the lines that name them stay valid
workspaces   one live goal per folder
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text, cast

SCHEMA = "0001"
"""Revision of the newest migration: what this version reads and writes."""

metadata = MetaData()

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("created", Float, nullable=False),  # epoch seconds
    Column("workspace", Text, nullable=False),
    Column("objective", Text),  # the start of it, for listings
    Column("model", Text),
    Column("parent", Text),  # session that began this one
    Column("salt", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("head", Integer, nullable=False),  # sequence number of the last line, 0 for none
    Column("hash", Text, nullable=False),  # of the last line
    Column("size", BigInteger, nullable=False),  # bytes of all lines, each with a newline
    Column("time", Float, nullable=False),  # of the last line, epoch seconds
    Column("generation", Integer, nullable=False),  # rises with every lease
    Column("holder_pid", Integer),  # the holder's columns are empty when nobody holds the lease
    Column("holder_start", Text),
    Column("holder_host", Text),
    Column("lease_until", Float),
    Index("sessions_workspace", "workspace"),
)

events = Table(
    "events",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("type", Text, nullable=False),
    Column("line", LargeBinary, nullable=False),
)

LINE = cast(events.c.line, LargeBinary).label("line")
"""The bytes of a line, also where somebody changed it by hand and left a text there."""

blobs = Table(
    "blobs",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

DATA = cast(blobs.c.data, LargeBinary).label("data")
"""The bytes of a blob, likewise."""

workspaces = Table(
    "workspaces",
    metadata,
    Column("path", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("generation", Integer, nullable=False),  # of the owner's lease: another one means the lock is void
)
