"""HTTP around the explorer's answers: starlette's routing, and a guard in front of it.

Only GET and HEAD, only for a ``Host`` of this machine, not for other sites' pages, and with the token if
there is one (``access.py``). Every answer has the same security headers, and every refusal but that of the
page itself is JSON: ``{"error": "one sentence"}``.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import logging
from collections.abc import Callable
from functools import cached_property
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from tokenspace.errors import MissingExtra, TokenspaceError
from tokenspace.shown import one_line
from tokenspace.web import access
from tokenspace.web.answers import as_json
from tokenspace.web.calls import CALLS, Call, answer
from tokenspace.web.explorer import Explorer
from tokenspace.web.headers import LONGEST_URL, SECURITY, allowed
from tokenspace.web.jobs import Running
from tokenspace.web.parameters import arguments
from tokenspace.web.plotly_script import plotly_script

JSON = "application/json"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_STATUS = {
    404: "there is nothing at this address; the page is at /",
    405: "only GET and HEAD are answered here",
}
_SMALL = 1 << 14  # bytes; packing less gains nothing
log = logging.getLogger(__name__)


class Body:
    """An answer's content; its tag and its packed form are made when they are first asked for."""

    def __init__(self, content: bytes, kind: str = JSON):
        self.content = content
        self.kind = kind

    @cached_property
    def tag(self) -> str:
        return f'W/"{hashlib.blake2b(self.content, digest_size=16).hexdigest()}"'

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.content, 5, mtime=0)


class App:
    """The ASGI application: ``explorer``'s answers, served at the host ``bound`` to those who have ``token``.

    Without a token everyone is answered who can reach the port.
    """

    def __init__(self, explorer: Explorer, bound: str = "127.0.0.1", token: str | None = None):
        self._explorer = explorer
        self._bound = bound
        self._token = token
        self._files = {name: Body(content, _kind(name)) for name, content in page_files().items()}
        self._made: dict[str, Body] = {}
        routes = [
            Route("/", self._page),
            Route("/static/{name}", self._static),
            Route("/plotly.js", self._plotly),
            Route("/api/tokens", self._tokens),
            *(
                Route(f"/api/{name}", self._endpoint(call))
                for name, call in CALLS.items()
                if name != "tokens"
            ),
        ]
        handlers: dict[Any, Any] = {
            HTTPException: _refused,
            TokenspaceError: _unanswered,
            Exception: _unforeseen,
        }
        self._app = Starlette(routes=routes, exception_handlers=handlers)
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in SECURITY.items()]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None and self._token is not None:
            refusal, scope = self._unlocked(scope, self._token)
        with contextlib.suppress(Exception):  # told by _unforeseen; raised on, it would end the connection
            await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Why a request is turned away before it is looked at; None if it isn't."""
        headers = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not allowed(hosts[0], self._bound):
            return _error(403, "only this machine's own names are answered to; open the URL that was printed")
        if access.is_foreign(scope):
            return _error(403, access.FOREIGN)
        if scope["method"] not in ("GET", "HEAD"):
            return _error(405, _STATUS[405], {"allow": "GET, HEAD"})
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_URL:
            return _error(414, f"an address may have {LONGEST_URL:,} bytes here; ask for less at once")
        if any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
            for name, value in headers
        ):
            return _error(400, "a request has no body here; put parameters in the address")
        return None

    def _unlocked(self, scope: Scope, token: str) -> tuple[Response | None, Scope]:
        """Return the answer that ``token`` requires, if any, and the request without it.

        From a page's address with the token the browser is sent on to the one without: no history, bookmark
        or screen shows it then.
        """
        given = access.given(scope, token)
        is_page = scope["path"] == "/"
        if not given.is_right and is_page:
            return Response(access.LOCKED_PAGE, 403, media_type=_kind(".html")), scope
        if not given.is_right:
            return _error(403, access.LOCKED), scope
        if is_page and given.in_address:
            place = "/" + ("?" + given.query.decode("latin-1") if given.query else "")
            headers = {"set-cookie": access.cookie(scope, token)}
            if access.follows_foreign_link(scope):
                page = access.page_that_leads_to(place)
                return Response(page, headers=headers, media_type=_kind(".html")), scope
            return Response(status_code=303, headers={"location": place, **headers}), scope
        return None, {**scope, "query_string": given.query}

    async def _page(self, request: Request) -> Response:
        return _answer(request, self._files["index.html"], pack=True)

    async def _static(self, request: Request) -> Response:
        body = self._files.get(request.path_params["name"])
        if body is None:
            raise HTTPException(404)
        return _answer(request, body, pack=True)

    def _plotly(self, request: Request) -> Response:
        if "plotly" not in self._made:
            self._made["plotly"] = Body(plotly_script(), _kind(".js"))
        return _answer(request, self._made["plotly"], pack=True)

    def _tokens(self, request: Request) -> Response:
        arguments(request.scope["query_string"], {})
        if "tokens" not in self._made:
            self._made["tokens"] = Body(as_json(self._explorer.tokens()))
        return _answer(request, self._made["tokens"], pack=True)

    def _endpoint(self, call: Call) -> Callable[[Request], Response]:
        def ask(request: Request) -> Response:
            given = answer(self._explorer, call, request.scope["query_string"])
            if isinstance(given, Running):
                running = {"running": True, "fraction": given.fraction}
                return Response(as_json(running), 202, media_type=JSON)
            return _answer(request, Body(as_json(given)))

        return ask


def page_files() -> dict[str, bytes]:
    """The page's own files by name, read once: a request can only name one of them."""
    folder = resources.files("tokenspace.web") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and _kind(file.name)}


def _kind(name: str) -> str:
    return _TYPES.get("." + name.rpartition(".")[2], "")


def _answer(request: Request, body: Body, pack: bool = False) -> Response:
    """``body``, or 304 if the browser has it; ``pack`` what stays the same, where the browser takes that."""
    headers = {"etag": body.tag, "vary": "accept-encoding"}
    if body.tag in _listed(request, "if-none-match"):
        return Response(status_code=304, headers=headers)
    content = body.content
    if pack and len(content) >= _SMALL and "gzip" in _listed(request, "accept-encoding"):
        content = body.packed
        headers["content-encoding"] = "gzip"
    return Response(content, media_type=body.kind, headers=headers)


def _listed(request: Request, header: str) -> list[str]:
    return [part.split(";")[0].strip() for part in request.headers.get(header, "").split(",")]


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(as_json({"error": message}), status, headers, JSON)


async def _refused(_: Request, error: HTTPException) -> Response:
    return _error(error.status_code, _STATUS.get(error.status_code, error.detail))


async def _unanswered(_: Request, error: TokenspaceError) -> Response:
    return _error(404 if isinstance(error, MissingExtra) else 400, str(error))


async def _unforeseen(_: Request, error: Exception) -> Response:
    log.error("tokenspace can't answer: %s: %s", type(error).__name__, one_line(str(error)))
    return _error(500, f"tokenspace met an error that it did not foresee ({type(error).__name__})")
