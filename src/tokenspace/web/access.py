"""Which requests may read the table: those of this page, with the token that its URL was printed with.

A page of another site, or of another port of this machine, can make a browser send requests here. The browser
says so (``Sec-Fetch-Site``, ``Origin``), and they are refused; following a link to the page is allowed.

Other users of this machine can reach the port, but lack the token. It comes in the URL that was printed
(``?token=…``), which leaves a cookie that no script and no other site can use, or in an ``Authorization:
Bearer`` header.
"""

from __future__ import annotations

import hmac
from html import escape
from typing import NamedTuple
from urllib.parse import unquote_plus

from starlette.types import Scope

FOREIGN = "this request comes from another site's page, and only the page of tokenspace itself is answered"
LOCKED = (
    "this needs the token of the page's address: open the whole URL that `tokenspace explore` printed, "
    "or start it with --no-token"
)


class Given(NamedTuple):
    """A request's query without its token, whether a token stood there, and whether the right one came."""

    query: bytes
    in_address: bool
    is_right: bool


def is_foreign(scope: Scope) -> bool:
    """Return whether a page of another origin caused the request; a link to the page itself is no harm."""
    headers = _headers(scope)
    site = headers.get(b"sec-fetch-site", b"none")
    if site not in (b"none", b"same-origin"):
        mode, target = headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")
        return not (scope["path"] == "/" and mode == b"navigate" and target == b"document")
    origin = headers.get(b"origin")
    return origin is not None and origin.lower() != b"http://" + headers.get(b"host", b"").lower()


def follows_foreign_link(scope: Scope) -> bool:
    """Return whether a link elsewhere led here: through a redirect the browser would withhold the cookie."""
    return _headers(scope).get(b"sec-fetch-site") in (b"cross-site", b"same-site")


def given(scope: Scope, token: str) -> Given:
    """Look for ``token`` in the address, the cookie and the ``Authorization`` header of a request."""
    headers = _headers(scope)
    parts = [part for part in scope["query_string"].split(b"&") if part]
    here = [part for part in parts if part.startswith(b"token=")]
    found = [unquote_plus(part[len(b"token=") :].decode("latin-1")) for part in here]
    scheme, _, credentials = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        found.append(credentials.strip())
    for pair in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == _cookie_name(scope):
            found.append(value)
    rest = b"&".join(part for part in parts if part not in here)
    right = [hmac.compare_digest(one.encode(), token.encode()) for one in found]
    return Given(rest, bool(here), any(right))


def cookie(scope: Scope, token: str) -> str:
    """Return the ``Set-Cookie`` header that lets this browser in. Ports share cookies: the name has ours."""
    return f"{_cookie_name(scope)}={token}; HttpOnly; SameSite=Strict; Path=/"


def _cookie_name(scope: Scope) -> str:
    server = scope.get("server")
    return f"tokenspace-{server[1] if server else 0}"


def _headers(scope: Scope) -> dict[bytes, bytes]:
    return dict(scope["headers"])


def page_that_leads_to(place: str) -> bytes:
    """Return a page that goes on to ``place``: a step of our own, so the cookie is sent."""
    head = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(place)}">'
    return f"<!doctype html><html><head>{head}<title>tokenspace</title></head></html>".encode()


LOCKED_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>tokenspace</title></head>'
    "<body><h1>tokenspace</h1><p>This page needs the token of its address.</p>"
    "<p>Open the whole URL that <code>tokenspace explore</code> printed in its terminal: it ends in "
    "<code>?token=…</code>, and changes with each start.</p></body></html>"
).encode()
