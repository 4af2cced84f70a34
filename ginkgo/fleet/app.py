"""The server's HTTP: `make_app` of options, database and storage.

In: requests of workers, of the trainer, of anybody. Out: answers; the OpenAPI description of them
is at `/openapi.json`, a page of it at `/docs`.

What a request may cost is settled before it is read: who sends it, how often, how many bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError

import ginkgo
from ginkgo.errors import GinkgoError
from ginkgo.fleet import api_public, api_trainer, api_worker, page
from ginkgo.fleet.config import ServeConfig
from ginkgo.fleet.database import Database
from ginkgo.fleet.http import BodyLimit, Server
from ginkgo.fleet.intake import Intake
from ginkgo.fleet.storage import Storage
from ginkgo.fleet.upload import Refused
from ginkgo.fleet.validate import Validators

#: What a refusal is answered with, where it is not 422.
_STATUS = {"task": 404, "numbers": 422, "conflict": 409, "old model": 410, "busy": 503}


def make_app(config: ServeConfig, validators: Validators | None = None) -> FastAPI:
    """The server as an ASGI application; it opens what it needs at once.

    Args:
        validators: that check uploads; by default processes of its own.

    Raises:
        GinkgoError: database or storage cannot be used.
    """
    database, storage = Database(config.database), Storage(config.storage)
    checks = validators or Validators(config.validators)
    intake = Intake(config, database, storage, checks)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        checks.close()
        database.close()

    app = FastAPI(
        title="ginkgo",
        version=ginkgo.__version__,
        description="Collects games of self-play and hands out models and tasks.",
        lifespan=lifespan,
        # The pages that FastAPI makes load their scripts from elsewhere; ours is `page.api`.
        docs_url=None,
        redoc_url=None,
    )
    app.state.server = Server(config, database, storage, intake)
    for api in (api_public, api_worker, api_trainer):
        app.include_router(api.router, prefix="/api/v1")
    app.include_router(page.router)
    app.add_middleware(BodyLimit, config=config)

    @app.exception_handler(Refused)
    def refused(_request: Request, error: Refused) -> JSONResponse:
        status = _STATUS.get(error.kind, 422)
        headers = {"Retry-After": "1"} if status == 503 else {}
        return JSONResponse({"detail": error.reason, "kind": error.kind}, status, headers)

    @app.exception_handler(GinkgoError)
    @app.exception_handler(OperationalError)
    def failed(_request: Request, error: Exception) -> JSONResponse:
        # Storage or database is away, or full: the sender keeps what it has and tries again.
        print(f"error: {str(error).splitlines()[0]}", flush=True)
        headers = {"Retry-After": "60"}
        return JSONResponse({"detail": "the server cannot store at the moment"}, 503, headers)

    @app.exception_handler(RequestValidationError)
    def senseless(_request: Request, error: RequestValidationError) -> JSONResponse:
        # What was sent is not sent back: it may hold what JSON cannot, such as NaN.
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        return JSONResponse({"detail": f"{where}: {found['msg']}"[:500]}, 422)

    return app
