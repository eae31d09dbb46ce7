"""A trapped system call: its arguments, and the ways to answer it.

The caller sleeps in the kernel until one of ``proceed``, ``fail``, ``value`` or ``inject`` is called. An answer to a
caller that died meanwhile is dropped by the kernel (``ENOENT``), which is normal.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from fcntl import ioctl
from typing import TYPE_CHECKING

from ._linux import (
    ADDFD,
    ADDFD_FLAG_SEND,
    ADDFD_FLAG_SETFD,
    IOCTL_ADDFD,
    IOCTL_RECV,
    IOCTL_SEND,
    NOTIF,
    NOTIF_SIZE,
    RESP,
    RESP_CONTINUE,
)

if TYPE_CHECKING:
    from .tasks import Process

_ZERO = bytes(NOTIF_SIZE)
AT_FDCWD = -100
PROOF = -1
"""Command number of the process that proves the witnesses."""


def signed(value: int) -> int:
    """The low 32 bits of an argument as a C ``int``."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


class Call:
    """One trapped call. ``tid`` is the calling thread in the supervisor's view, ``args`` the six raw arguments."""

    __slots__ = ("abi", "answered", "args", "command", "id", "listener", "name", "number", "process", "tid")

    process: Process

    def __init__(
        self, listener: int, ident: int, tid: int, number: int, name: str, abi: str, args: tuple[int, ...], command: int
    ) -> None:
        self.listener = listener
        self.id = ident
        self.tid = tid
        self.number = number
        self.name = name
        self.abi = abi
        self.args = args
        self.command = command
        self.answered = False

    def _send(self, value: int, error: int, flags: int) -> None:
        self.answered = True
        try:
            ioctl(self.listener, IOCTL_SEND, RESP.pack(self.id, value, error, flags))
        except OSError as e:
            if e.errno != errno.ENOENT:
                raise

    def proceed(self) -> None:
        """Let the kernel carry the call out. The caller may change memory behind pointers until then."""
        self._send(0, 0, RESP_CONTINUE)

    def fail(self, number: int) -> None:
        """Answer with an errno."""
        self._send(0, -number, 0)

    def value(self, value: int) -> None:
        """Answer with a result, the call not being carried out."""
        self._send(value, 0, 0)

    def inject(self, fd: int, *, cloexec: bool, replace: int | None = None) -> None:
        """Give the caller a duplicate of ``fd`` as the result of the call (or in place of ``replace``, result 0)."""
        flags = os.O_CLOEXEC if cloexec else 0
        self.answered = True
        try:
            if replace is None:
                ioctl(self.listener, IOCTL_ADDFD, ADDFD.pack(self.id, ADDFD_FLAG_SEND, fd, 0, flags))
            else:
                ioctl(self.listener, IOCTL_ADDFD, ADDFD.pack(self.id, ADDFD_FLAG_SETFD, fd, replace, flags))
                self._send(0, 0, 0)
        except OSError as e:
            if e.errno not in (errno.ENOENT, errno.EINPROGRESS, errno.ESRCH):  # those: the caller is gone
                self._send(0, -(e.errno or errno.EIO), 0)


class Listener:
    """The notification descriptor of one command's filter."""

    __slots__ = ("_abi_of", "_buffer", "_name_of", "command", "fd")

    def __init__(self, fd: int, command: int, name_of: dict[int, dict[int, str]], abi_of: dict[int, str]) -> None:
        self.fd = fd
        self.command = command
        self._buffer = bytearray(NOTIF_SIZE)
        self._name_of = name_of
        self._abi_of = abi_of

    def receive(self) -> Call | None:
        """The next waiting call, or None when the caller died before it was read."""
        buffer = self._buffer
        buffer[:] = _ZERO
        try:
            ioctl(self.fd, IOCTL_RECV, buffer, True)
        except OSError as e:
            if e.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        ident, tid, _flags, number, arch, _ip, a, b, c, d, e6, f = NOTIF.unpack(buffer)
        table = self._name_of.get(arch)
        name = table.get(number, "") if table else ""
        return Call(
            self.fd, ident, tid, number, name, self._abi_of.get(arch, hex(arch)), (a, b, c, d, e6, f), self.command
        )


Handler = Callable[[Call], None]
