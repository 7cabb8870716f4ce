"""Commands and code in a process of their own, without the seconds that imports take.

`Forks` starts this file as a program, which loads what it is told to and then forks for each task. A fork has
its own streams, folder, environment and status, and ends as any Python does. What depends on how Python
starts needs ``subprocess``: modules loaded, variables read at import, streams that are closed, an encoding.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 1 << 17  # bytes of a task
PATIENCE = 300  # seconds


class Fork:
    """A process that was started. The server is busy with it until it has ended."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.pid = int(self._said())

    def wait(self) -> int:
        """Return the status, as `subprocess` counts it."""
        return os.waitstatus_to_exitcode(int(self._said()))

    def _said(self) -> bytes:
        if not (said := self._server.recv(MOST)):
            raise EOFError("the server of forks has ended")
        return said


class Forks:
    """Forks of one process that has run ``prelude``, which may import but not start threads."""

    def __init__(self, prelude: str) -> None:
        self._server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.settimeout(PATIENCE)
        program = [sys.executable, __file__, str(theirs.fileno()), prelude]
        self._process = subprocess.Popen(program, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()

    def start(self, *arguments: str, stdin: int, stdout: int, stderr: int, cwd=None, env=None) -> Fork:
        """Run ``python ARGUMENTS``: ``-m MODULE ...`` or ``-c CODE ...``, with open files for its streams."""
        task = [arguments, str(cwd or Path.cwd()), dict(os.environ if env is None else env)]
        socket.send_fds(self._server, [json.dumps(task).encode()], [stdin, stdout, stderr])
        return Fork(self._server)

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
        self._server.close()
        self._process.wait()


def _next_task(client: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Return, in a fork for each, the tasks that come."""
    while True:
        task, streams, *_ = socket.recv_fds(client, MOST, 3)
        if not task:
            os._exit(0)
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


def _open_streams() -> None:
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  they stay open as long as the process lives
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def main() -> None:
    import gc

    exec(sys.argv[2], {"__name__": "prelude"})
    gc.freeze()
    (kind, what, *arguments), folder, environment = _next_task(socket.socket(fileno=int(sys.argv[1])))
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


if __name__ == "__main__":
    main()
