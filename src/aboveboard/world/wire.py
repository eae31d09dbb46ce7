"""Messages with descriptors over a stream socket, between client, spawner, supervisor and PID 1.

All four are our own processes, so ``marshal`` serves: it needs no import and knows bytes.
"""

from __future__ import annotations

import array
import marshal
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Message = dict[str, Any]
_MAX_FDS = 16


def send(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one message; the descriptors travel with its first bytes. Raises OSError."""
    data = marshal.dumps(message)
    data = len(data).to_bytes(4, "little") + data
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sent = sock.sendmsg([data[: 1 << 16]], ancillary)
    if sent < len(data):
        sock.sendall(data[sent:])


def receive(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """The next message and its descriptors (close-on-exec), or None at the end of the stream."""
    header, ancillary, _, _ = sock.recvmsg(4, socket.CMSG_SPACE(_MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC)
    if not header:
        return None
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % 4])
    while len(header) < 4:
        more = sock.recv(4 - len(header))
        if not more:
            return None
        header += more
    size = int.from_bytes(header, "little")
    parts = []
    while size:
        chunk = sock.recv(min(size, 1 << 20))
        if not chunk:
            return None
        parts.append(chunk)
        size -= len(chunk)
    message = marshal.loads(b"".join(parts))
    return message, list(fds)
