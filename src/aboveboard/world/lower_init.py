"""Tier N: what stands in for PID 1. It starts commands, adopts what loses its parent, and ends everything.

There is no pid namespace that dies with its first process, so this process is a *subreaper*: every descendant whose
parent ends becomes its child. When the supervisor hangs up, however it ended, it kills its descendants until none is
left. Their forks are refused meanwhile: with the supervisor gone, by the kernel (a notification nobody can receive
fails with ENOSYS).
"""

from __future__ import annotations

import os
import select
import signal
import struct
from typing import TYPE_CHECKING

from . import _linux as linux
from . import wire
from .init import Init
from .syscalls import build_filter

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from typing import NoReturn

_ERRNO_EPERM, _ERRNO_ENOSYS, _ERRNO_EACCES = (linux.SECCOMP_RET_ERRNO | n for n in (1, 38, 13))
_LD, _JEQ, _RET = 0x20, 0x15, 0x06
_INSTRUCTION = struct.Struct("=HBBI")
_JOIN4 = (35, 39, 42, 46)  # IP_ADD_MEMBERSHIP, IP_ADD_SOURCE_MEMBERSHIP, MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP
_JOIN6 = (20, 27, 42, 46)  # IPV6_JOIN_GROUP, IPV6_JOIN_ANYCAST, and the two of MCAST_*

_Test = tuple[int, "Sequence[int]"]

ABSENT: dict[str, int] = {
    **dict.fromkeys(("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semtimedop", "semctl"), _ERRNO_ENOSYS),
    **dict.fromkeys(("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"), _ERRNO_ENOSYS),
    "inotify_add_watch": _ERRNO_EACCES,
    **dict.fromkeys(("process_madvise", "process_mrelease", "move_pages", "migrate_pages"), _ERRNO_EPERM),
}
"""Calls that reach objects or processes of the host beyond files, and have no place here: the answer to each."""

REFUSED_IF: dict[str, tuple[Sequence[_Test], int]] = {
    # setsockopt that makes the kernel itself send (a multicast join is announced on the network): level, option.
    "setsockopt": (((1, (0,)), (2, _JOIN4)), _ERRNO_EPERM),
    "setsockopt6": (((1, (41,)), (2, _JOIN6)), _ERRNO_EPERM),
    # A signal to whom the descriptor is given: F_SETOWN, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP.
    "fcntl": (((1, (8, 15)),), _ERRNO_EPERM),
    "ioctl": (((1, (0x8901, 0x8902)),), _ERRNO_EPERM),
}
"""Calls refused when the low halves of all the arguments named have one of the values given."""

OWN_ONLY: dict[str, int] = {
    "prlimit64": 0,
    "sched_setaffinity": 0,
    "sched_setscheduler": 0,
    "sched_setparam": 0,
    "sched_setattr": 0,
    "setpriority": 1,
    "ioprio_set": 1,
}
"""Calls on a process that are allowed on the caller alone (the argument that names it is 0)."""


def static_filter() -> bytes:
    """A seccomp filter of fixed answers, beside the one that notifies; the stricter of the two holds."""
    # Another instruction set interface is the other filter's business: it notifies all of it.
    code: list[tuple[int, int, int, int]] = [(_LD, 0, 0, 4), (_JEQ, 1, 0, linux.AUDIT_ARCH), *_ALLOW, (_LD, 0, 0, 0)]

    def rule(name: str, body: list[tuple[int, int, int, int]]) -> None:
        number = linux.NUMBERS.get(name)
        if number is not None:
            # The body ends in a return; what falls through has the number loaded again.
            code.append((_JEQ, 0, len(body), number))
            code.extend(body)

    for name, answer in ABSENT.items():
        rule(name, [(_RET, 0, 0, answer)])
    for name, argument in OWN_ONLY.items():
        rule(name, [(_LD, 0, 0, 16 + 8 * argument), (_JEQ, 1, 0, 0), (_RET, 0, 0, _ERRNO_EPERM), *_ALLOW])
    for name in ("fcntl", "ioctl"):
        tests, answer = REFUSED_IF[name]
        rule(name, [*_when(tests, answer), *_ALLOW])
    rule(
        "setsockopt",
        [*_when(*REFUSED_IF["setsockopt"]), *_when(*REFUSED_IF["setsockopt6"]), *_ALLOW],
    )
    code += _ALLOW
    return b"".join(_INSTRUCTION.pack(op, yes, no, k) for op, yes, no, k in code)


_ALLOW = [(_RET, 0, 0, linux.SECCOMP_RET_ALLOW)]


def _when(tests: Sequence[_Test], answer: int) -> list[tuple[int, int, int, int]]:
    """Return ``answer`` when every test holds, else fall through."""
    body: list[tuple[int, int, int, int]] = [(_RET, 0, 0, answer)]
    for argument, values in reversed(tests):
        block: list[tuple[int, int, int, int]] = []
        for i, value in enumerate(values):
            # Equal: over the rest of this block. Not equal, and the last value: over everything.
            rest = len(values) - 1 - i
            block.append((_JEQ, rest, 0 if rest else len(body), value))
        body = [(_LD, 0, 0, 16 + 8 * argument), *block, *body]
    return body


def descendants(root: int) -> list[int]:
    """Process ids of all that descend from ``root``, as ``/proc`` tells now, zombies included."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                parent = f.read(512).rpartition(b")")[2].split()[1]
        except (OSError, IndexError):
            continue
        children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    pending = [root]
    while pending:
        for child in children.get(pending.pop(), []):
            found.append(child)
            pending.append(child)
    return found


class LowerInit(Init):
    """The loop of the subreaper."""

    def run(self) -> NoReturn:
        """Serve until the supervisor hangs up, then leave nobody behind; never returns."""
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(reader, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd == reader:
                    try:
                        os.read(reader, 512)
                    except BlockingIOError:
                        pass
                    self._reap()
                    continue
                try:
                    received = wire.receive(self._control)
                except OSError:
                    received = None
                if received is None or "end" in received[0]:
                    self._end_all()
                self._handle(*received)

    def _end_all(self) -> NoReturn:
        signal.set_wakeup_fd(-1)
        own = os.getpid()
        while True:
            for pid in descendants(own):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                os._exit(0)
            select.select([], [], [], 0.002)

    def filter(self) -> bytes:
        """The notifying filter, with all of any other instruction set interface notified (and then refused)."""
        return build_filter(foreign=False)

    def _child(self, message: wire.Message, fds: list[int]) -> None:
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        linux.install_filter(static_filter(), listener=False)
        super()._child(message, fds)


def main(control: socket.socket, fence: int, contract: int) -> NoReturn:
    """Become the subreaper. ``fence``: a Landlock ruleset for all that follows; ``contract``: for commands, or -1."""
    linux.set_name("systemd")
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    linux.drop_all_capabilities()
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.landlock_restrict(fence)
    os.close(fence)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    LowerInit(control, contract).run()
