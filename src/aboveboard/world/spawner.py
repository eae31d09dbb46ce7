"""Where supervisors come from: a small, single-threaded process that forks one for each world.

A program that uses the library may have threads, and a fork of it would copy their locks in whatever state they are; a
parent-death signal is tied to a *thread* besides (bazelbuild/bazel#16649). The spawner has one thread and lives as long
as its client: each supervisor is a fork of it, which costs milliseconds and shares its memory.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from typing import Any

from . import wire


def start_in_child(control: socket.socket, evidence: int, spec: dict[str, Any], extra: list[int]) -> int:
    """Fork a supervisor of this (single-threaded) process; returns its pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's: it closes the world
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        gc.disable()
        from .supervisor import serve

        _close_all_but({0, 1, 2, control.fileno(), evidence, *extra})
        serve(control, evidence, spec, extra)
        status = 0
    except BaseException:  # the client is told by the closed socket; the reason goes to its stderr
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _close_all_but(keep: set[int]) -> None:
    last = 2
    for fd in sorted(keep):
        if fd > last + 1:
            os.closerange(last + 1, fd)
        last = max(last, fd)
    os.closerange(last + 1, 1 << 16 if last < 1 << 16 else last + 1)


def main(fd: int) -> None:
    """The spawner's loop: a request makes a supervisor; the end of the stream ends the spawner."""
    from .supervisor import prepare

    prepare()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=fd) as requests:
        while (received := wire.receive(requests)) is not None:
            spec, fds = received
            control = socket.socket(fileno=fds[0])
            try:
                pid = start_in_child(control, fds[1], spec, fds[2:])
                wire.send(requests, {"pid": pid})
            finally:
                control.close()
                for other in fds[1:]:
                    os.close(other)


class Spawner:
    """The client's handle of its spawner; one per process, started at first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._owner = 0
        self.in_process = False
        """Fork this very process while it has one thread: saves a one-shot command the start of an interpreter."""

    def spawn(self, control: socket.socket, evidence: int, spec: dict[str, Any], extra: list[int]) -> int:
        """Have a supervisor forked; returns its pid. Raises OSError."""
        if self.in_process and threading.active_count() == 1:
            return start_in_child(control, evidence, spec, extra)
        with self._lock:
            for attempt in (1, 2):
                requests = self._connected()
                try:
                    wire.send(requests, spec, [control.fileno(), evidence, *extra])
                    answer = wire.receive(requests)
                except OSError:
                    answer = None
                if answer is not None:
                    return int(answer[0]["pid"])
                requests.close()
                self._socket = None  # the spawner died (killed from outside): start another once
                if attempt == 2:
                    break
        raise OSError("the spawner of supervisors does not answer")

    def _connected(self) -> socket.socket:
        if self._socket is not None and self._owner == os.getpid():
            return self._socket
        if self._socket is not None:  # of the process that this one is a fork of
            self._socket.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        theirs.set_inheritable(True)
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        import site

        extra = [p for p in sys.path if p.endswith("site-packages")] or site.getsitepackages()
        code = (
            f"import sys; sys.path.insert(0, {package!r}); sys.path += {extra!r}; "
            f"from aboveboard.world.spawner import main; main({theirs.fileno()})"
        )
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", code],
            {k: v for k, v in os.environ.items() if k.startswith(("LC_", "LANG", "HOME", "PATH"))},
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)],
        )
        theirs.close()
        self._socket, self._owner = ours, os.getpid()
        return ours


SPAWNER = Spawner()
