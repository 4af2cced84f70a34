"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "models",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("file", sa.String(length=255), nullable=False),
        sa.Column("about", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_users_token_hash")),
    )
    op.create_table(
        "clients",
        sa.Column("user_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("seen", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_clients_user_id")),
        sa.PrimaryKeyConstraint("user_id", "name", name=op.f("pk_clients")),
    )
    with op.batch_alter_table("clients", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_clients_seen"), ["seen"], unique=False)

    op.create_table(
        "matches",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("a_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("b_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("games", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("max_ply", sa.Integer(), nullable=False),
        sa.Column("openings", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("closed", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["a_id"], ["models.id"], name=op.f("fk_matches_a_id")),
        sa.ForeignKeyConstraint(["b_id"], ["models.id"], name=op.f("fk_matches_b_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_matches")),
        sa.UniqueConstraint("name", name=op.f("uq_matches_name")),
    )
    with op.batch_alter_table("matches", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_matches_closed"), ["closed"], unique=False)

    op.create_table(
        "runs",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("model_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("games", sa.Integer(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("openings", sa.JSON(), nullable=False),
        sa.Column("resign_threshold", sa.Double(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("opened", sa.Double(), nullable=False),
        sa.Column("closed", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_runs_model_id")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_runs")),
    )
    op.create_table(
        "rated_games",
        sa.Column("match_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("user_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("score", sa.Double(), nullable=False),
        sa.Column("played", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["match_id"], ["matches.id"], name=op.f("fk_rated_games_match_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_rated_games_user_id")),
        sa.PrimaryKeyConstraint("match_id", "number", name=op.f("pk_rated_games")),
    )
    with op.batch_alter_table("rated_games", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_rated_games_created"), ["created"], unique=False)
        batch_op.create_index(batch_op.f("ix_rated_games_user_id"), ["user_id"], unique=False)

    op.create_table(
        "tasks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("user_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run", sa.Integer(), nullable=True),
        sa.Column("match_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("worker", sa.String(length=32), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("games", sa.Integer(), nullable=False),
        sa.Column("stored", sa.Integer(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["match_id"], ["matches.id"], name=op.f("fk_tasks_match_id")),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name=op.f("fk_tasks_run")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_tasks_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tasks_expires"), ["expires"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_user_id"), ["user_id"], unique=False)

    op.create_table(
        "quarantine",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("user_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("task_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("file", sa.String(length=255), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_quarantine_task_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_quarantine_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quarantine")),
    )
    with op.batch_alter_table("quarantine", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_quarantine_kind"), ["kind"], unique=False)
        batch_op.create_index(batch_op.f("ix_quarantine_user_id"), ["user_id"], unique=False)

    op.create_table(
        "uploads",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("user_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("task_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("file", sa.String(length=255), nullable=False),
        sa.Column("file_sha256", sa.String(length=64), nullable=False),
        sa.Column("games", sa.Integer(), nullable=False),
        sa.Column("positions", sa.Integer(), nullable=False),
        sa.Column("recorded", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("revoked", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_uploads_task_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_uploads_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
        sa.UniqueConstraint("file", name=op.f("uq_uploads_file")),
        sa.UniqueConstraint("task_id", "sha256", name=op.f("uq_uploads_task_id_sha256")),
    )
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_uploads_run"), ["run"], unique=False)
        batch_op.create_index(batch_op.f("ix_uploads_user_id"), ["user_id"], unique=False)

    op.create_table(
        "games",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "upload_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=16), nullable=False),
        sa.Column("plies", sa.Integer(), nullable=False),
        sa.Column("winner", sa.String(length=1), nullable=False),
        sa.Column("end", sa.String(length=16), nullable=False),
        sa.Column("first_move", sa.String(length=5), nullable=False),
        sa.Column("flags", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], name=op.f("fk_games_upload_id")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_games")),
    )
    with op.batch_alter_table("games", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_games_first_move"), ["first_move"], unique=False)
        batch_op.create_index(batch_op.f("ix_games_hash"), ["hash"], unique=False)
        batch_op.create_index(batch_op.f("ix_games_upload_id"), ["upload_id"], unique=False)


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("games", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_games_upload_id"))
        batch_op.drop_index(batch_op.f("ix_games_hash"))
        batch_op.drop_index(batch_op.f("ix_games_first_move"))

    op.drop_table("games")
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_uploads_user_id"))
        batch_op.drop_index(batch_op.f("ix_uploads_run"))

    op.drop_table("uploads")
    with op.batch_alter_table("quarantine", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_quarantine_user_id"))
        batch_op.drop_index(batch_op.f("ix_quarantine_kind"))

    op.drop_table("quarantine")
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tasks_user_id"))
        batch_op.drop_index(batch_op.f("ix_tasks_expires"))

    op.drop_table("tasks")
    with op.batch_alter_table("rated_games", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_rated_games_user_id"))
        batch_op.drop_index(batch_op.f("ix_rated_games_created"))

    op.drop_table("rated_games")
    op.drop_table("runs")
    with op.batch_alter_table("matches", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_matches_closed"))

    op.drop_table("matches")
    with op.batch_alter_table("clients", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_clients_seen"))

    op.drop_table("clients")
    op.drop_table("users")
    op.drop_table("models")
