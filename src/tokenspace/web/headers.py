"""What every answer says to the browser, and which requests get one at all."""

from __future__ import annotations

import ipaddress
import socket

SECURITY = {
    "content-security-policy": (
        "default-src 'none'; "
        "script-src 'self' 'unsafe-eval'; "  # plotly's WebGL traces compile functions
        "style-src 'self'; "
        "img-src 'self' data: blob:; "
        "connect-src 'self'; "
        "base-uri 'none'; "
        "form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # ask again: another table may be at this port tomorrow
}
LONGEST_URL = 32_768  # bytes, path and query; 2,000 emoji percent-encoded take 24,000
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    """Whether what listens at ``host`` is heard on this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str | None:
    """The host of a ``Host`` header without its port; None if it is none.

    >>> host_of("127.0.0.1:8000"), host_of("[::1]:80"), host_of("localhost"), host_of("a b"), host_of("a:b")
    ('127.0.0.1', '::1', 'localhost', None, None)
    """
    if header.startswith("["):
        host, bracket, port = header[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:]
    else:
        host, _, port = header.partition(":")
    if port and not (port.isascii() and port.isdigit()):
        return None
    if not host or not all(character.isalnum() or character in ".-:_" for character in host):
        return None
    return host.lower().removesuffix(".")


def allowed(header: str, bound: str) -> bool:
    """Whether a request may name this ``Host``: this machine's loopback names, or the host that was bound.

    A page of another site that has its own name lead here (DNS rebinding) names itself. Bound to every
    address (0.0.0.0, ::), any address may be named, and the machine's own name, for the same reason.

    >>> allowed("localhost:8000", "127.0.0.1"), allowed("evil.example", "127.0.0.1")
    (True, False)
    >>> allowed("192.168.1.5:80", "0.0.0.0"), allowed("evil.example:80", "0.0.0.0")
    (True, False)
    """
    host = host_of(header)
    if host is None:
        return False
    if host in LOOPBACK or host == bound.lower():
        return True
    if bound not in ("0.0.0.0", "::"):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == socket.gethostname().lower()
    return True
