"""Tier R: every open of a world's files as the kernel itself reports it, beside what the supervisor says.

The supervisor opens files for its callers, so in a world without a hole every open comes from the supervisor's process,
except those the kernel makes when a program starts (the program, its loader, the interpreter a ``#!`` line names).
:class:`Warden` is a process that stays root in the initial namespaces, out of reach of everything inside, and marks the
world's mounts. An open by anybody else is a way past the supervisor, and a verdict cannot be ``clean`` then.

Needs CAP_SYS_ADMIN in the initial user namespace; where root lacks it (most containers), the world is of tier U.
Sources: fanotify(7), fanotify_init(2), fanotify_mark(2), ``linux/fanotify.h``.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
from ctypes import c_char_p
from typing import TYPE_CHECKING

from . import _linux as linux
from . import wire

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_CLOEXEC, _NONBLOCK, _UNLIMITED_QUEUE, _UNLIMITED_MARKS = 0x1, 0x2, 0x10, 0x20  # FAN_CLASS_NOTIF is 0
_MARK_ADD, _MARK_MOUNT = 0x1, 0x10
_OPEN, _OPEN_EXEC, _OVERFLOW = 0x20, 0x1000, 0x4000
_EVENT = struct.Struct("=IBBHQii")  # event_len, vers, reserved, metadata_len, mask, fd, pid
_BATCH = 256
"""Events in one read: each comes with a descriptor, and these are bounded."""
_PAUSE_MS = 3
"""The queue has no bound, so events may wait: a few read at once cost less than a wake-up each."""
_MOST = 1_000
_MOST_FDS = 16
"""Of one message (:mod:`.wire`)."""

Event = dict[str, object]


class Warden:
    """The supervisor's handle of the process that listens. Made by :meth:`start`, before any namespace is entered."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control = control
        self._pid = pid

    @classmethod
    def start(cls) -> Warden:
        """Fork the listening process. Raises OSError where the kernel does not let this process listen."""
        flags = _CLOEXEC | _NONBLOCK | _UNLIMITED_QUEUE | _UNLIMITED_MARKS
        # O_NONBLOCK: the kernel opens what was opened once more for the listener, and that may be a FIFO.
        group = linux.syscall("fanotify_init", flags, os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME | os.O_NONBLOCK)
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            supervisor = os.getpid()
            pid = os.fork()
            if pid == 0:
                _listen(theirs, group, supervisor)
        finally:
            os.close(group)
        theirs.close()
        return cls(ours, pid)

    def mark(self, fds: Sequence[int], read_path: str, supervisor_pid: int, init_pid: int) -> bool:
        """Listen on the mounts that ``fds`` (directories, ``O_PATH`` will do) are on; true when an open is then seen.

        ``read_path`` is a file on one of them, which is opened here for that proof. ``supervisor_pid`` opens files by
        right, ``init_pid`` is PID 1 of the world; both as this process sees them.
        """
        try:
            for start in range(0, len(fds), _MOST_FDS):
                if not self._ask({"mark": init_pid}, fds[start : start + _MOST_FDS]):
                    return False
            fd = os.open(read_path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                info = os.fstat(fd)
            finally:
                os.close(fd)
            return bool(self._ask({"seen": [supervisor_pid, info.st_dev, info.st_ino]}))
        except OSError:
            return False

    def finish(self) -> list[Event]:
        """The events to record, when nobody inside is alive any more; the process then ends, see ``reap``.

        ``fanotify`` events: opens that the supervisor did not make, and (``exec`` true, each file once) those the
        kernel made to start programs. A ``witness`` event with ``ok`` false when something was missed.
        """
        events: list[Event] = []
        try:
            answer = self._ask({"finish": True})
            events = list(answer) if isinstance(answer, list) else [_lost("the listening process died")]
        except OSError as e:
            events = [_lost(f"the listening process does not answer: {e}")]
        finally:
            self._control.close()
        return events

    def reap(self) -> None:
        """Wait until the process is gone: taking its marks off the mounts keeps the kernel busy for some 15 ms, which
        nobody who waits for the evidence needs to see."""
        try:
            os.waitpid(self._pid, 0)
        except ChildProcessError:
            pass

    def _ask(self, message: wire.Message, fds: Sequence[int] = ()) -> object:
        wire.send(self._control, message, fds)
        received = wire.receive(self._control)
        if received is None:
            raise OSError(errno.EPIPE, "the listening process died")
        return received[0]["answer"]


def _lost(detail: str) -> Event:
    return {"e": "witness", "name": "fanotify", "ok": False, "detail": detail, "classes": ["read"]}


def _listen(control: socket.socket, group: int, supervisor: int) -> NoReturn:
    """Be the listening process."""
    try:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        linux.set_name("warden")
        keep = sorted({control.fileno(), group})
        last = 2
        for fd in keep:
            os.closerange(last + 1, fd)
            last = fd
        os.closerange(last + 1, 1 << 16)
        _Listener(control, group, supervisor).run()
    finally:
        os._exit(0)


class _Listener:
    """The loop of the listening process. Its view of ``/proc`` is the host's."""

    def __init__(self, control: socket.socket, group: int, supervisor: int) -> None:
        self._control = control
        self._group = group
        self._own = {supervisor, os.getpid()}
        self._supervisor = supervisor
        self._namespace = 0
        self._proof: tuple[int, int, int] | None = None
        self._proving = True
        self._recent: set[tuple[int, int, int]] = set()
        self._found: list[Event] = []
        self._executed: set[tuple[str, int, int]] = set()
        self._losses: dict[str, int] = {}

    def run(self) -> None:
        both, asked = select.poll(), select.poll()
        both.register(self._control, select.POLLIN)
        both.register(self._group, select.POLLIN)
        asked.register(self._control, select.POLLIN)
        while True:
            ready = dict(both.poll())
            if self._group in ready:
                self._drain()
            if self._control.fileno() in ready or asked.poll(_PAUSE_MS):
                received = wire.receive(self._control)
                if received is None or not self._answer(*received):
                    return

    def _answer(self, message: wire.Message, fds: list[int]) -> bool:
        if "mark" in message:
            answer: object = self._mark(fds, int(message["mark"]))
        elif "seen" in message:
            self._drain()
            answer = tuple(message["seen"]) in self._recent
            self._proving = False
            self._recent.clear()
        else:
            self._drain()
            answer = self._found + [_lost(f"{detail} ({count} times)") for detail, count in self._losses.items()]
        wire.send(self._control, {"answer": answer})
        return "finish" not in message

    def _mark(self, fds: list[int], init: int) -> bool:
        self._own.add(init)
        try:
            self._namespace = os.stat(f"/proc/{init}/ns/pid").st_ino
            how, what = _MARK_ADD | _MARK_MOUNT, _OPEN | _OPEN_EXEC
            for fd in fds:
                linux.syscall("fanotify_mark", self._group, how, what, fd, c_char_p(b"."))
        except OSError:
            return False
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _lose(self, detail: str) -> None:
        self._losses[detail] = self._losses.get(detail, 0) + 1

    def _drain(self) -> None:
        failures = 0
        while failures < _BATCH:
            try:
                data = os.read(self._group, _EVENT.size * _BATCH)
            except BlockingIOError:
                return
            except OSError as e:
                # The kernel could not open for us what was opened, and has dropped that event.
                failures += 1
                self._lose(f"an open could not be looked at: {e.strerror}")
                continue
            for _size, version, _, _, mask, fd, pid in _EVENT.iter_unpack(data):
                if version != 3:
                    self._lose(f"event format {version}")
                if mask & _OVERFLOW:
                    self._lose("the queue overflowed")
                if fd < 0:
                    continue
                try:
                    if pid not in self._own:
                        self._judge(mask, fd, pid)
                    elif self._proving and pid == self._supervisor:
                        info = os.fstat(fd)
                        self._recent.add((pid, info.st_dev, info.st_ino))
                except OSError as e:
                    self._lose(f"an open could not be looked at: {e.strerror}")
                finally:
                    os.close(fd)

    def _judge(self, mask: int, fd: int, pid: int) -> None:
        info = os.fstat(fd)
        path = os.readlink(f"/proc/self/fd/{fd}")
        executed = bool(mask & _OPEN_EXEC)
        if executed:
            key = (path, info.st_dev, info.st_ino)
            if key in self._executed:
                return
            self._executed.add(key)
        elif self._foreign(pid):
            return
        if len(self._found) >= _MOST:
            self._lose(f"more than {_MOST} opens to tell")
            return
        self._found.append({"e": "fanotify", "p": pid, "x": path, "v": [info.st_dev, info.st_ino], "exec": executed})

    def _foreign(self, pid: int) -> bool:
        """True when it is surely no process of the world: a host's monitor that looks through ``/proc/PID/root``."""
        try:
            return os.stat(f"/proc/{pid}/ns/pid").st_ino != self._namespace
        except OSError:
            return False  # gone, or nobody: to be on the safe side, it was inside
