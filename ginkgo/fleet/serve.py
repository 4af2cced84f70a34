"""`ginkgo serve`: the server of many machines, and its accounts.

In: the options. Out: a server that runs until Ctrl-C, or a changed account.
"""

from __future__ import annotations

from collections.abc import Sequence

import tyro

from ginkgo.errors import GinkgoError
from ginkgo.fleet.config import ServeConfig, check_serve


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, serve or change accounts.

    Raises:
        GinkgoError: a user's mistake.
    """
    config = tyro.cli(ServeConfig, prog="ginkgo serve", args=argv)
    check_serve(config)
    if config.add_user or config.block or config.revoke_games:
        _accounts(config)
        return 0
    import socket

    import uvicorn

    from ginkgo.fleet.app import make_app

    app = make_app(config)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
        listener.listen(1024)  # who reads the line below may come at once
    except OSError as error:
        raise GinkgoError(f"--port {config.port}: {error.strerror or error}") from None
    address = f"[{config.host}]" if ":" in config.host else config.host
    print(f"http://{address}:{listener.getsockname()[1]}/  (Ctrl-C ends it)", flush=True)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            proxy_headers=config.proxied,
            server_header=False,
            timeout_keep_alive=30,
            limit_concurrency=1000,
            h11_max_incomplete_event_size=16_384,
            http="h11",
        )
    )
    server.run(sockets=[listener])
    return 0


def _accounts(config: ServeConfig) -> None:
    from ginkgo.fleet import accounts
    from ginkgo.fleet.database import Database

    database = Database(config.database)
    with database.session() as session:
        if config.add_user:
            token = accounts.add_user(session, config.add_user, config.role)
            print(f"{config.add_user}, {config.role}: {token}")
        if config.block:
            accounts.block(session, config.block)
            print(f"{config.block}: the token is no longer good")
        if config.revoke_games:
            games = accounts.revoke_games(session, config.revoke_games)
            print(f"{config.revoke_games}: {games:,} games are out of the training data")
    database.close()
