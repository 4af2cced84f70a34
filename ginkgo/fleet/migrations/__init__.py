"""Versions of the server's tables, for alembic."""
