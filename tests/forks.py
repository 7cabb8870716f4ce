"""Commands and code in a process of their own, without the seconds that imports take.

`Forks` starts this file as a program, which loads what it is told to and then forks for each task. A fork has
its own streams, folder, environment and status, and ends as any Python does. What depends on how Python
starts needs ``subprocess``: modules loaded, variables read at import, streams that are closed, an encoding.
`Forks.command` gives shells a file to run in such forks; a signal to that process does not reach the fork.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 1 << 17  # bytes of a task
PATIENCE = 300  # seconds


class Fork:
    """A process that was started."""

    def __init__(self, address: str, task: list, streams: list[int]) -> None:
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.settimeout(PATIENCE)
        self._server.connect(address)
        socket.send_fds(self._server, [json.dumps(task).encode()], streams)
        self.pid = int(self._said())

    def wait(self) -> int:
        """Return the status, as `subprocess` counts it."""
        with self._server:
            return os.waitstatus_to_exitcode(int(self._said()))

    def _said(self) -> bytes:
        if not (said := self._server.recv(MOST)):
            raise EOFError("the server of forks has ended")
        return said


class Forks:
    """Forks of one process that has run ``prelude``, which may import but not start threads."""

    def __init__(self, prelude: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._address = f"{self._folder.name}/server"
        read, self._alive = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open(read, "rb"):
            listener.bind(self._address)
            listener.listen()
            fds = (listener.fileno(), read)
            program = [sys.executable, __file__, "serve", *map(str, fds), prelude]
            self._process = subprocess.Popen(program, pass_fds=fds, stdin=subprocess.DEVNULL)

    def start(self, *arguments: str, stdin: int, stdout: int, stderr: int, cwd=None, env=None) -> Fork:
        """Run ``python ARGUMENTS``: ``-m MODULE ...`` or ``-c CODE ...``, with open files for its streams."""
        return Fork(self._address, _task(arguments, cwd, env), [stdin, stdout, stderr])

    def command(self, path: Path, *arguments: str) -> None:
        """Write a program: ``path ...`` runs ``python ARGUMENTS ...`` in a fork, on its caller's streams."""
        words = [sys.executable, "-IS", __file__, "ask", self._address, *arguments]
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        path.chmod(0o755)

    def run(self, *arguments: str, stdin: bytes = b"", cwd=None, env=None) -> subprocess.CompletedProcess:
        """Run to the end; ``stdin`` comes through a pipe, and the output is bytes."""
        read, write = os.pipe()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with open(write, "wb") as pipe:
                with open(read, "rb"):
                    fork = self.start(
                        *arguments, stdin=read, stdout=out.fileno(), stderr=err.fileno(), cwd=cwd, env=env
                    )
                pipe.write(stdin)
            status = fork.wait()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, status, out.read(), err.read())

    def close(self) -> None:
        os.close(self._alive)
        self._process.wait()
        self._folder.cleanup()


def _task(arguments: list[str], cwd=None, env=None) -> list:
    return [arguments, str(cwd or Path.cwd()), dict(os.environ if env is None else env)]


def _next_task(listener: socket.socket, alive: int) -> tuple[list[str], str, dict[str, str]]:
    """Return, in a fork for each, the tasks that come, until nobody holds the other end of ``alive``."""
    waiters = set()
    while listener in select.select([listener, alive], [], [])[0]:
        client, _ = listener.accept()
        if (waiter := os.fork()) == 0:
            listener.close()
            return _waited_for(client)
        client.close()
        waiters = {pid for pid in waiters | {waiter} if os.waitpid(pid, os.WNOHANG)[0] == 0}
    os._exit(0)


def _waited_for(client: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Return, in a fork, the client's task; this process tells the fork's number and status, and ends."""
    task, streams, *_ = socket.recv_fds(client, MOST, 3)
    if (child := os.fork()) == 0:
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return json.loads(task)
    for stream in streams:
        os.close(stream)
    client.send(str(child).encode())
    client.send(str(os.waitpid(child, 0)[1]).encode())
    os._exit(0)


def _open_streams() -> None:
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  they stay open as long as the process lives
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _serve(listener: str, alive: str, prelude: str) -> None:
    import gc

    exec(prelude, {"__name__": "prelude"})
    gc.freeze()
    task = _next_task(socket.socket(fileno=int(listener)), int(alive))
    (kind, what, *arguments), folder, environment = task
    os.close(int(alive))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    _open_streams()
    sys.path[0] = folder
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})


def _ask(address: str, *arguments: str) -> None:
    status = Fork(address, _task(arguments), [0, 1, 2]).wait()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    {"serve": _serve, "ask": _ask}[sys.argv[1]](*sys.argv[2:])
