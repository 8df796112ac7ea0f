"""The oldest schema that goes on, from shortly before version 1.0.0; a new database has the newest at once."""

revision = "0021"
down_revision = None
