"""The page for people: what has come, what it brought, who gave it, games to replay.

In: requests without a token. Out: HTML made here, charts as SVG, a small script for the board.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import jinja2
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

import ginkgo
import ginkgo.play
from ginkgo.fleet import charts, figures, matches
from ginkgo.fleet.api_public import remembered
from ginkgo.fleet.http import At

router = APIRouter(include_in_schema=False)

_WEB, _PLAY = Path(__file__).with_name("web"), Path(ginkgo.play.__path__[0])
#: Files that pages ask for; no other name is ever looked up.
_FILES = {
    "board.js": (_PLAY / "board.js", "text/javascript"),
    "board.css": (_PLAY / "board.css", "text/css"),
    "icon.svg": (_PLAY / "icon.svg", "image/svg+xml"),
    "page.js": (_WEB / "page.js", "text/javascript"),
    "page.css": (_WEB / "page.css", "text/css"),
}
#: Nothing of another place is loaded, and no script but those files runs. Charts style themselves.
_SAFE = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_WINNERS = {"b": "Black", "w": "White", "d": "draw"}
#: Models on the page.
_MODELS = 15


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _ago(then: float | None) -> str:
    """How long ago something was, roughly.

    >>> _ago(time.time() - 7300)
    '2 h ago'
    """
    if then is None:
        return "–"
    seconds = max(0.0, time.time() - then)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"


def _day(then: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(then))


_templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_WEB),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(number=_number, ago=_ago, day=_day, winner=_WINNERS.__getitem__)


@router.get("/", response_class=HTMLResponse)
def page(server: At, game: Annotated[int | None, Query(ge=1, le=1 << 50)] = None) -> HTMLResponse:
    """The page; `game` is the one on the board, the newest by default."""
    games = remembered(server, figures.recent_games)
    ratings = {one["name"]: one for one in remembered(server, matches.ratings)}
    models = remembered(server, figures.models)[:_MODELS]
    html = _templates.get_template("index.html").render(
        status=remembered(server, figures.status),
        statistics=remembered(server, figures.statistics),
        models=[{**one, "rating": ratings.get(one["name"])} for one in models],
        games=games,
        shown=game or next((one["number"] for one in games if not one["flags"]), None),
        version=ginkgo.__version__,
    )
    return HTMLResponse(html, headers=_SAFE)


@router.get("/docs", response_class=HTMLResponse)
def api(request: Request) -> HTMLResponse:
    """What programs may ask: the OpenAPI description as a page."""
    description = request.app.openapi()
    asked = [
        {"method": method.upper(), "path": path, **operation}
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    ]
    html = _templates.get_template("api.html").render(
        about=description["info"],
        asked=[{"parameters": [], "description": "", **one} for one in asked],
    )
    return HTMLResponse(html, headers=_SAFE)


@router.get("/web/{name}")
def file(name: Literal["board.js", "board.css", "icon.svg", "page.js", "page.css"]) -> Response:
    """A script, a style sheet or a picture."""
    path, kind = _FILES[name]
    return Response(path.read_bytes(), media_type=f"{kind}; charset=utf-8", headers=_SAFE)


@router.get("/charts/{name}.svg")
def chart(server: At, name: Literal["games", "positions", "elo"]) -> Response:
    """A chart."""

    def draw() -> bytes:
        if name == "elo":
            return charts.elo(
                remembered(server, matches.ratings), remembered(server, figures.models)
            )
        return charts.per_day(remembered(server, figures.statistics)["days"], name)

    return Response(
        server.drawn.get(name, draw), media_type="image/svg+xml; charset=utf-8", headers=_SAFE
    )
