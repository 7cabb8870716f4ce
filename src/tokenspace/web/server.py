"""The server: uvicorn over a socket of our own, quiet, and with refusals in JSON down to the last."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tokenspace.errors import OutputError
from tokenspace.web.answers import as_json
from tokenspace.web.app import JSON, App
from tokenspace.web.explorer import Explorer
from tokenspace.web.headers import SECURITY

LONGEST_REQUEST = 1 << 16  # bytes of address and headers; the app's own limit for the address is lower
PATIENCE = 20  # seconds for a request's head to come
_WAITING = 512  # connections that may wait to be taken


class _Protocol(H11Protocol):
    """What can't be read as HTTP, or is too long, gets JSON too; for what never comes whole no one waits."""

    _impatient: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.trailing_data[0]:  # the next request has begun to come
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel()

    def _expect(self) -> None:
        """Until a request's head is whole, count the time."""
        if self.conn.their_state is not h11.IDLE:
            self._cancel()
        elif self._impatient is None:
            self._impatient = self.loop.call_later(PATIENCE, self.transport.close)

    def _cancel(self) -> None:
        if self._impatient is not None:
            self._impatient.cancel()
            self._impatient = None

    def send_400_response(self, msg: str) -> None:
        body = as_json({"error": f"this is no HTTP request that can be answered: {msg}"})
        headers = [(name.encode(), value.encode()) for name, value in SECURITY.items()]
        headers += [(b"content-type", JSON.encode()), (b"content-length", str(len(body)).encode())]
        headers += [(b"connection", b"close")]
        events = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def listening(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A socket that listens at ``host``; port 0 takes a free one. ``OutputError`` if it can't be had."""
    if not host:
        raise OutputError("no host was named to listen at; leave --host out to serve this machine alone")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_WAITING)
    except (socket.gaierror, UnicodeError, ValueError) as error:  # no name that a machine can have
        reason = error.strerror if isinstance(error, OSError) else None
        raise OutputError(
            f"can't listen at {host!r}: {reason or 'it is not the name or address of a machine'}; "
            "leave --host out to serve this machine alone"
        ) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        taken = "; leave --port out to take a free one" if error.errno == errno.EADDRINUSE else ""
        raise OutputError(f"can't listen at {host}, port {port}: {reason}{taken}") from None


def url_of(listener: socket.socket, host: str, token: str | None = None) -> str:
    """The address of the page behind a socket: of this machine, where it listens at every address."""
    port = listener.getsockname()[1]
    named = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    url = f"http://[{named}]:{port}/" if ":" in named else f"http://{named}:{port}/"
    return url if token is None else f"{url}?token={token}"


def server(explorer: Explorer, host: str = "127.0.0.1", token: str | None = None) -> uvicorn.Server:
    """uvicorn for ``explorer``; ``run(sockets=[…])`` serves until SIGINT or ``should_exit``."""
    config = uvicorn.Config(
        App(explorer, host, token),
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=LONGEST_REQUEST,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
        backlog=_WAITING,
    )
    return uvicorn.Server(config)


@contextlib.contextmanager
def serving(
    explorer: Explorer, host: str = "127.0.0.1", port: int = 0, token: str | None = None
) -> Iterator[str]:
    """Serve in a thread for the length of a ``with`` block, which gets the page's URL, with its token."""
    with listening(host, port) as listener:
        running = server(explorer, host, token)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not running.started and thread.is_alive():
            time.sleep(0.005)
        try:
            yield url_of(listener, host, token)
        finally:
            running.should_exit = True
            thread.join(10)
