"""The other side of the server's HTTP: what a worker and the trainer ask of it.

In: a URL and a token. Out: answers; or `Away` (try again later), `Turned` (no use in trying again).
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

import ginkgo
from ginkgo.errors import GinkgoError

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Seconds to connect, and between two pieces of an answer; the check of an upload takes some.
_CONNECT_S, _ANSWER_S = 10.0, 180.0
#: Seconds between tries: twice as long each time, up to the last.
_FIRST_S, _LONGEST_S = 1.0, 300.0


class Away(Exception):
    """The server is not there, or cannot answer now.

    Args:
        reason: a line. wait: seconds that it asks to wait for; 0: it says nothing.
    """

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Turned(Exception):
    """The server says no, and will say so again.

    Args:
        status: of HTTP. detail: what it says. kind: of a refused upload.
    """

    def __init__(self, status: int, detail: str, kind: str = "") -> None:
        super().__init__(f"{detail} ({status})")
        self.status, self.detail, self.kind = status, detail, kind


class ServerClient:
    """Requests to a server.

    Args:
        url: of the server. token: of a user. worker: which of the user's workers this is.
    """

    def __init__(self, url: str, token: str, worker: str = "") -> None:
        base = httpx.URL(url.rstrip("/") + "/api/v1/")
        self.url = url
        self._http = httpx.Client(
            base_url=base,
            headers={
                "Authorization": f"Bearer {token}",
                "User-Agent": f"ginkgo/{ginkgo.__version__}",
                "Ginkgo-Worker": worker,
            },
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
            trust_env=base.host not in _LOOPBACK,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request.

        Raises:
            Away: there is no answer, or one that asks to wait.
            Turned: the answer is no.
        """
        try:
            found = self._http.request(method, path, **more)
        except httpx.TransportError as error:
            raise Away(f"{self.url}: {str(error) or type(error).__name__}") from None
        if found.is_success:
            return found
        detail, kind = _detail(found)
        if found.status_code >= 500 or found.status_code in (408, 429):
            raise Away(f"{self.url}: {detail} ({found.status_code})", _wait_of(found))
        raise Turned(found.status_code, detail, kind)

    # --- workers ------------------------------------------------------------------------------

    def account(self) -> dict[str, str]:
        """`name` and `role` of the token's user."""
        return self.ask("GET", "account").json()

    def task(
        self, games: int, rating: bool, holding: list[int]
    ) -> tuple[dict[str, Any] | None, float]:
        """Something to play, or None and the seconds after which to ask again."""
        wish = {"games": games, "rating": rating, "holding": holding}
        found = self.ask("POST", "tasks", json=wish)
        if found.status_code == 204:
            return None, _wait_of(found) or _FIRST_S
        return found.json(), 0.0

    def upload(self, task: int, data: bytes) -> dict[str, int]:
        """Send games; `stored` and `known` of them."""
        kind = {"Content-Type": "application/octet-stream"}
        return self.ask("POST", f"tasks/{task}/games", content=data, headers=kind).json()

    def rated(self, task: int, games: list[dict[str, Any]]) -> dict[str, int]:
        """Send rating games."""
        return self.ask("POST", f"tasks/{task}/rated", json={"games": games}).json()

    def download(self, model: dict[str, Any], folder: Path) -> Path:
        """The file of a model, whole and right, downloaded if it is not there yet.

        What was broken off is gone on with.

        Args:
            model: `name`, `sha256`, `size`, as the server describes it.

        Raises:
            GinkgoError: what comes is not what was said, or cannot be written.
            Away, Turned: as `ask`.
        """
        name, size, sha256 = str(model["name"]), int(model["size"]), str(model["sha256"])
        if not _NAME.fullmatch(name):
            raise GinkgoError(f"{self.url}: a model of the name {name!r}")
        path, part = folder / f"{name}.onnx", folder / f"{name}.onnx.part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if path.exists() and _sha256(path) == sha256:
                return path
            while (got := part.stat().st_size if part.exists() else 0) < size:
                headers = {"Range": f"bytes={got}-"}
                found = self.ask("GET", f"models/{name}/file", headers=headers)
                with open(part, "ab" if found.status_code == 206 else "wb") as stream:
                    stream.write(found.content)
            if _sha256(part) != sha256:
                part.unlink()
                raise GinkgoError(f"{self.url}: model {name} came damaged: SHA-256 differs")
            part.replace(path)
        except OSError as error:
            raise GinkgoError(f"{path}: cannot write: {error.strerror or error}") from None
        return path

    # --- the trainer --------------------------------------------------------------------------

    def publish(self, name: str, file: Path, about: dict[str, Any]) -> bool:
        """Give the server a model, unless it is there already; whether it was new."""
        data = file.read_bytes()
        notice = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "about": about}
        if self.ask("PUT", f"models/{name}", json=notice).json()["there"]:
            return False
        self.ask("PUT", f"models/{name}/file", content=data)
        return True


def patiently(
    call: Callable[[], T], pause: Callable[[float], bool], say: Callable[[str], None]
) -> T | None:
    """Call until the server answers, waiting longer each time.

    Args:
        call: raises `Away` where it is to be tried again.
        pause: waits so many seconds; whether to give up.
        say: told each time why there is no answer.

    Returns:
        what `call` returned; None: given up.
    """
    wait = _FIRST_S
    while True:
        try:
            return call()
        except Away as away:
            # Not all at the same moment when a server comes back.
            seconds = max(away.wait, wait * random.uniform(0.5, 1.0))
            say(f"{away}; trying again in {seconds:.0f} s")
            if pause(seconds):
                return None
            wait = min(2 * wait, _LONGEST_S)


def _detail(found: httpx.Response) -> tuple[str, str]:
    try:
        body = found.json()
        detail = body["detail"]
    except (ValueError, KeyError, TypeError):
        return found.reason_phrase or "no reason given", ""
    return detail if isinstance(detail, str) else str(detail)[:500], str(body.get("kind", ""))


def _wait_of(found: httpx.Response) -> float:
    text = found.headers.get("Retry-After", "")
    return min(float(text), _LONGEST_S) if text.isdecimal() else 0.0


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
