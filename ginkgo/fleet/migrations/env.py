"""Run by alembic: brings the tables of the connection that it is given to a version."""

from alembic import context

from ginkgo.fleet.database import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
