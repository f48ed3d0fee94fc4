"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("workspace", sa.Text, nullable=False),
        sa.Column("objective", sa.Text),
        sa.Column("model", sa.Text),
        sa.Column("parent", sa.Text),
        sa.Column("salt", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("head", sa.Integer, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("holder_pid", sa.Integer),
        sa.Column("holder_start", sa.Text),
        sa.Column("holder_host", sa.Text),
        sa.Column("lease_until", sa.Float),
    )
    op.create_index("sessions_workspace", "sessions", ["workspace"])
    op.create_table(
        "events",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("line", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "blobs",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "workspaces",
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
    )
