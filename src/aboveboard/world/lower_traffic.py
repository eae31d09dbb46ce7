"""Tiers N and P: the network without a namespace. Nothing a candidate sends goes anywhere but to the sink.

The sink listens on the host's loopback, one port for each destination. No connect, bind, listen or addressed send is
carried out by the candidate: the supervisor does it on a duplicate of the very socket (so its options and descriptors
stay), to the sink's port instead of the address that was named, with a payload it copied first. What the address was
changed to after it was looked at is therefore of no matter.

Differences that a program can see: ``getpeername`` and the source of a datagram say ``127.0.0.1``; a server bound to
all addresses is bound to loopback; other servers on the host's loopback refuse; multicast, raw and packet sockets do
not exist.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
from array import array
from typing import TYPE_CHECKING, Any, cast

from . import _linux as linux
from .calls import AT_FDCWD, Call, signed
from .connections import Endpoint
from .log import text
from .netlink import is_loopback
from .protocols import Datagram
from .sink import Sink, _drops
from .traffic import _TYPES, Address, Traffic, _own_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..contract import Rules
    from .lower import LowerSupervisor

_libc = ctypes.CDLL(None, use_errno=True)
_INET = (socket.AF_INET, socket.AF_INET6)
_MSG_DONTWAIT, _MSG_NOSIGNAL, _MSG_FASTOPEN, _MSG_MORE, _MSG_OOB = 0x40, 0x4000, 0x20000000, 0x8000, 0x1
_KEPT_FLAGS = _MSG_MORE | _MSG_OOB | 0x80  # and MSG_EOR
_MOST_PAYLOAD = 1 << 20
_MOST_VECTORS, _MOST_MESSAGES = 1024, 64
_LISTEN = "0A"


class _Gate:
    """A listening socket that only hands out connections the supervisor made: the host's other users can reach it."""

    def __init__(self, sock: socket.socket, expected: set[int]) -> None:
        self._sock = sock
        self._expected = expected

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """The next connection that was announced. Raises OSError as the socket's own."""
        while True:
            sock, source = self._sock.accept()
            if source[1] in self._expected:
                self._expected.discard(source[1])
                return sock, source
            sock.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


class LowerSink(Sink):
    """The sink behind ports of the host's loopback. Datagrams come through its own sockets, not raw ones."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._expected: set[int] = set()
        self._senders: set[int] = set()
        self._lost_datagrams = 0
        super().__init__(*arguments, **options)

    def reached_at(self, family: int, kind: int, host: str, port: int) -> int | None:
        """The loopback port that stands for a destination :meth:`expect` said ``sink`` to."""
        key = (kind & 0xF, socket.inet_ntop(family, socket.inet_pton(family, host)), port)
        if key[1].startswith("::ffff:") and "." in key[1]:
            key = (key[0], key[1][7:], port)
        endpoint = self._service_endpoints.get(key) or self._endpoints.get(key)
        return int(endpoint.sock.getsockname()[1]) if endpoint is not None else None

    def announce(self, kind: int, sport: int) -> None:
        """What comes from this port is the candidate's: one connection, or datagrams."""
        (self._expected if kind == socket.SOCK_STREAM else self._senders).add(sport)

    def _open_raw(self, family: int, protocol: int, handle: Callable[[Datagram], None]) -> None:
        """No capability, no raw sockets."""

    def _open(self, kind: int, address: str, port: int) -> Endpoint:
        sock = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            sock.bind(("127.0.0.1", 0))
            if kind == socket.SOCK_STREAM:
                sock.listen(1024)
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        except OSError:
            sock.close()
            raise
        if kind == socket.SOCK_STREAM:
            return Endpoint(cast("socket.socket", _Gate(sock, self._expected)), kind, address, port)
        return Endpoint(sock, kind, address, port)

    def _watch(self, endpoint: Endpoint) -> None:
        if endpoint.kind == socket.SOCK_DGRAM and not endpoint.watched:
            endpoint.watched = True
            self.register(endpoint.sock.fileno(), select.EPOLLIN, lambda _: self._datagrams_of(endpoint, 256))
        else:
            super()._watch(endpoint)

    def _datagrams_of(self, endpoint: Endpoint, rounds: int) -> bool:
        for done in range(rounds):
            try:
                payload, source = endpoint.sock.recvfrom(1 << 16)
            except (BlockingIOError, InterruptedError):
                return done > 0
            except OSError:
                continue
            if source[1] not in self._senders:
                continue  # of another user of this host
            self._udp(Datagram(source[0], source[1], endpoint.address, endpoint.port, payload))
        return True

    def _drain_raw(self) -> bool:
        moved = False
        for endpoint in tuple(self._endpoints.values()):
            if endpoint.kind == socket.SOCK_DGRAM:
                moved = self._datagrams_of(endpoint, 65_536) or moved
        return moved

    def _release(self, key: tuple[int, str, int]) -> None:
        endpoint = self._endpoints[key]
        if endpoint.kind == socket.SOCK_DGRAM:
            self._datagrams_of(endpoint, 65_536)
            self._lost_datagrams += _drops(endpoint.sock)
        super()._release(key)

    def drops(self) -> int:
        """How many datagrams the kernel could not queue."""
        return self._lost_datagrams + sum(
            _drops(e.sock) for e in self._endpoints.values() if e.kind == socket.SOCK_DGRAM
        )


class LowerTraffic(Traffic):
    """Handlers of the socket family that never let an internet address reach the kernel from the candidate."""

    _s: LowerSupervisor

    def __init__(self, supervisor: LowerSupervisor, rules: Rules | None) -> None:
        super().__init__(supervisor, rules)
        self._inodes: set[int] = set()
        self._mapped: set[tuple[int, int]] = set()
        self._abstract: set[bytes] = set()
        self._unix_names: dict[int, str] = {}

    def handle(self, call: Call) -> None:
        """Dispatch by name."""
        name = call.name
        if name == "socket":
            return self._socket(call)
        if name in ("sendmsg", "sendmmsg"):
            return self._sendmsg(call)
        if name == "sendto":
            return self._sendto(call)
        own = self._duplicate(call, signed(call.args[0]))
        if own is None:
            return self._unreachable(call)
        with own:
            if name == "connect":
                self._connect_own(call, own)
            elif name == "bind":
                self._bind_own(call, own)
            elif name == "listen":
                self._listen_own(call, own)
            else:
                call.fail(errno.ENOSYS)
        return None

    def _unreachable(self, call: Call) -> None:
        """The socket cannot be had: refuse, and tell what was wanted."""
        address = Address(b"")
        if call.name in ("connect", "bind"):
            address = self._address(call, call.args[1], call.args[2])
        elif call.name == "sendto":
            address = self._address(call, call.args[4], call.args[5] & 0xFFFFFFFF)
        self._log.add("net", call.process.pid, call.command, self._fields(call, "", address) + ',"r":"denied"')
        call.fail(errno.EBADF if not _is_open(call, signed(call.args[0])) else errno.EACCES)

    def _tell(self, call: Call, fields: str, number: int) -> None:
        result = "ok" if not number else errno.errorcode.get(number, str(number))
        self._log.add("net", call.process.pid, call.command, f'{fields},"r":"{result}"')

    def _refuse(self, call: Call, fields: str, number: int) -> None:
        self._log.add("net", call.process.pid, call.command, fields + ',"r":"denied"')
        call.fail(number)

    # --- sockets ---

    def _socket(self, call: Call) -> None:
        family, kind = signed(call.args[0]), call.args[1] & 0xF
        protocol = call.args[2] & 0xFFFF
        if family in _INET and (kind not in (1, 2) or protocol not in (0, 6, 17)):
            shown = "icmp" if protocol in (1, 58) else _TYPES.get(kind, str(kind))
            fields = (
                f',"s":"socket","fam":"{"inet" if family == 2 else "inet6"}","typ":"{shown}","d":"protocol {protocol}"'
            )
            return self._refuse(call, fields, errno.EPERM if kind == 3 else errno.EPROTONOSUPPORT)
        return super()._socket(call)

    # --- connect ---

    def _connect_own(self, call: Call, own: socket.socket) -> None:
        address = self._address(call, call.args[1], call.args[2])
        kind = own.type & 0xF
        fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
        if address.family == socket.AF_UNSPEC:
            number = _raw_call("connect", own, address.raw)
            return call.fail(number) if number else call.value(0)
        if own.family == socket.AF_UNIX:
            return self._connect_unix(call, own, address, fields)
        if own.family == socket.AF_NETLINK:
            number = _raw_call("connect", own, address.raw)
            return call.fail(number) if number else call.value(0)
        if own.family not in _INET:
            return self._refuse(call, fields, errno.EAFNOSUPPORT)
        if address.family not in _INET or not address.host or int(own.family) != address.family:
            self._tell(call, fields, errno.EAFNOSUPPORT)
            return call.fail(errno.EAFNOSUPPORT)
        if not self._permitted(call, address, kind):
            return self._refuse(call, fields, errno.ECONNREFUSED)
        target = self._target(call, own, address, kind)
        if target is None:
            self._tell(call, fields, errno.ECONNREFUSED)
            return call.fail(errno.ECONNREFUSED)
        self._log.add("net", call.process.pid, call.command, fields + ',"r":"passed"')
        blocking = os.get_blocking(own.fileno())
        try:
            os.set_blocking(own.fileno(), False)
            number = own.connect_ex(target)
            if number in (0, errno.EINPROGRESS) and self._sink is not None:
                self._sink.announce(kind, own.getsockname()[1])
            if number == errno.EINPROGRESS and blocking:
                # Loopback answers at once unless the queue of the listener is full.
                select.select([], [own], [], 1.0)
                number = own.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        finally:
            os.set_blocking(own.fileno(), blocking)
        return call.fail(number) if number else call.value(0)

    @property
    def _sink(self) -> LowerSink | None:
        return cast("LowerSink | None", self._s.sink)

    def _target(self, call: Call, own: socket.socket, address: Address, kind: int) -> tuple[str, int] | None:
        """Where on loopback a destination really is; None when nobody is there."""
        loopback = is_loopback(address.host)
        port: int | None = None
        if self._sink is not None:
            self._expect(call, address, kind)
            port = self._sink.reached_at(int(address.family), kind, address.host, address.port)
        if port is not None:
            return self._on_loopback(own, port)
        if not loopback or not self.is_own_server(kind, address.port):
            return None
        six = own.family == socket.AF_INET6
        host = "::1" if six and (kind, address.port) not in self._mapped else "127.0.0.1"
        return (
            ("::ffff:127.0.0.1" if six else "127.0.0.1", address.port) if host == "127.0.0.1" else (host, address.port)
        )

    @staticmethod
    def _on_loopback(own: socket.socket, port: int) -> tuple[str, int]:
        if own.family == socket.AF_INET:
            return "127.0.0.1", port
        try:
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        except OSError:
            pass  # it is bound already
        return "::ffff:127.0.0.1", port

    def is_own_server(self, kind: int, port: int) -> bool:
        """Does a socket that was bound in this world own this port of the host's loopback?"""
        return not self._inodes.isdisjoint(_servers(kind, port))

    def _connect_unix(self, call: Call, own: socket.socket, address: Address, fields: str) -> None:
        if address.family != socket.AF_UNIX or len(address.raw) < 3:
            self._tell(call, fields, errno.EINVAL)
            return call.fail(errno.EINVAL)
        target = self._unix_target(call, address)
        if isinstance(target, int):
            if target == errno.EACCES:
                return self._refuse(call, fields, errno.ECONNREFUSED)
            self._tell(call, fields, target)
            return call.fail(target)
        place, raw = target
        try:
            blocking = os.get_blocking(own.fileno())
            os.set_blocking(own.fileno(), False)
            try:
                number = _raw_call("connect", own, raw)
            finally:
                os.set_blocking(own.fileno(), blocking)
        finally:
            if place >= 0:
                os.close(place)
        self._tell(call, fields, number)
        return call.fail(number) if number else call.value(0)

    def _unix_target(self, call: Call, address: Address) -> tuple[int, bytes] | int:
        """(descriptor that keeps the place, address to use) of a local socket of this world; an errno for any other."""
        path = address.raw[2:]
        if path[:1] == b"\0":
            return (-1, address.raw) if path in self._abstract else errno.ECONNREFUSED
        name = path.split(b"\0", 1)[0]
        try:
            fd = self._s.files.open_object(call, AT_FDCWD, self._s.shadow.original(name))
        except OSError as e:
            return e.errno or errno.EIO
        if not self._s.wall.may_write(self._s.files.real_name(fd)):
            os.close(fd)
            return errno.EACCES
        return fd, struct.pack("=H", socket.AF_UNIX) + b"self/fd/%d\0" % fd

    # --- servers ---

    def _bind_own(self, call: Call, own: socket.socket) -> None:
        address = self._address(call, call.args[1], call.args[2])
        kind = own.type & 0xF
        fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
        if own.family == socket.AF_UNIX:
            return self._bind_unix(call, own, address, fields)
        if own.family == socket.AF_NETLINK:
            number = _raw_call("bind", own, address.raw)
            return call.fail(number) if number else call.value(0)
        if own.family not in _INET or address.family != own.family or not address.host:
            self._tell(call, fields, errno.EAFNOSUPPORT)
            return call.fail(errno.EAFNOSUPPORT)
        if not is_loopback(address.host):
            self._tell(call, fields, errno.EADDRNOTAVAIL)
            return call.fail(errno.EADDRNOTAVAIL)
        if self._rules is not None and not self._s.may_listen(address.host, address.port):
            return self._refuse(call, fields, errno.EACCES)
        number = self._bind_loopback(own, address.host, address.port)
        self._tell(call, fields, number)
        return call.fail(number) if number else call.value(0)

    def _bind_loopback(self, own: socket.socket, host: str, port: int) -> int:
        mapped = False
        if own.family == socket.AF_INET:
            host = "127.0.0.1" if host == "0.0.0.0" else host
        elif host == "::":
            mapped = not own.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            host = "::ffff:127.0.0.1" if mapped else "::1"
        if port and not self._inodes.issuperset(_servers(own.type & 0xF, port)):
            return errno.EADDRINUSE  # SO_REUSEPORT would share the port, and what comes in, with a program of the host
        try:
            own.bind((host, port))
        except OSError as e:
            return e.errno or errno.EIO
        self._inodes.add(os.fstat(own.fileno()).st_ino)
        if mapped:
            self._mapped.add((own.type & 0xF, int(own.getsockname()[1])))
        return 0

    def _bind_unix(self, call: Call, own: socket.socket, address: Address, fields: str) -> None:
        path = address.raw[2:]
        if not path or path[:1] == b"\0":
            number = _raw_call("bind", own, address.raw)
            if not number:
                name = own.getsockname()
                self._abstract.add(name if isinstance(name, bytes) else os.fsencode(name))
            self._tell(call, fields, number)
            return call.fail(number) if number else call.value(0)
        try:
            name = self._s.shadow.original(path.split(b"\0", 1)[0])
            parent, leaf, real = self._s.files.parent(call, AT_FDCWD, name)
        except OSError as e:
            self._tell(call, fields, e.errno or errno.EIO)
            return call.fail(e.errno or errno.EIO)
        try:
            if not self._s.wall.may_write(self._s.shadow.real(real)):
                return self._refuse(call, fields, errno.EACCES)
            given = path.split(b"\0", 1)[0]
            # The name as it was given stays visible in getsockname; what it leads to is behind Landlock's wall.
            where = given if self._s.shadow.holds(given) else b"self/fd/%d/%s" % (parent, leaf)
            raw = struct.pack("=H", socket.AF_UNIX) + where + b"\0"
            number = _raw_call("bind", own, raw) if len(raw) <= 110 else errno.ENAMETOOLONG
            self._unix_names[os.fstat(own.fileno()).st_ino] = os.fsdecode(real)
        finally:
            os.close(parent)
        self._tell(call, fields, number)
        return call.fail(number) if number else call.value(0)

    def _listen_own(self, call: Call, own: socket.socket) -> None:
        address = _own_name(own)
        if own.family == socket.AF_UNIX:
            address.host = self._unix_names.get(os.fstat(own.fileno()).st_ino, address.host)
        kind = own.type & 0xF
        fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
        number = 0
        if own.family in _INET:
            if not address.port:
                number = self._bind_loopback(own, "0.0.0.0" if own.family == socket.AF_INET else "::", 0)
                address = _own_name(own)
                fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
            if self._rules is not None and not self._s.may_listen(address.host, address.port):
                return self._refuse(call, fields, errno.EACCES)
        if not number:
            try:
                own.listen(min(call.args[1] & 0x7FFFFFFF, 4096))
            except OSError as e:
                number = e.errno or errno.EIO
        self._tell(call, fields, number)
        return call.fail(number) if number else call.value(0)

    # --- sending ---

    def _sendto(self, call: Call) -> None:
        a = call.args
        if not a[4]:
            return call.proceed()  # the pointer is in a register: there is no address to change
        address = self._address(call, a[4], a[5] & 0xFFFFFFFF)
        payload = self._payload(call, [(a[1], a[2])])
        return self._send(call, signed(a[0]), [_Message(address, payload, a[3] & 0xFFFFFFFF, [])])

    def _sendmsg(self, call: Call) -> None:
        a = call.args
        size, count = (64, min(a[2], _MOST_MESSAGES)) if call.name == "sendmmsg" else (56, 1)
        flags = (a[3] if call.name == "sendmmsg" else a[2]) & 0xFFFFFFFF
        block = self._memory.read(call.tid, a[1], size * count)
        messages = []
        for offset in range(0, len(block) - size + 1, size):
            pointer, length, vectors, number, control, control_size = struct.unpack_from("=QI4xQQQQ", block, offset)
            address = self._address(call, pointer, length)
            raw = self._memory.read(call.tid, vectors, 16 * min(number, _MOST_VECTORS)) if number else b""
            parts = list(struct.iter_unpack("=QQ", raw[: len(raw) // 16 * 16]))
            fds = self._passed(call, control, min(control_size, 4096))
            if fds is None:
                return call.fail(errno.EPERM)
            messages.append(_Message(address, self._payload(call, parts), flags, fds))
        if not messages:
            return call.fail(errno.EFAULT)
        return self._send(call, signed(a[0]), messages)

    def _payload(self, call: Call, parts: list[tuple[int, int]]) -> bytes:
        """What is to be sent, at most 1 MiB (more is a short count, which is what a stream may give)."""
        out: list[bytes] = []
        room = _MOST_PAYLOAD
        for address, length in parts:
            length = min(length, room)
            while length:
                data = self._memory.read(call.tid, address, length)
                if not data:
                    raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
                out.append(data)
                address += len(data)
                length -= len(data)
                room -= len(data)
        return b"".join(out)

    def _passed(self, call: Call, control: int, size: int) -> list[int] | None:
        """Own duplicates of descriptors in control data; None when it holds anything that is not passed on here."""
        fds: list[int] = []
        data = self._memory.read(call.tid, control, size) if control and size else b""
        offset = 0
        while offset + 16 <= len(data):
            length, level, kind = struct.unpack_from("=Qii", data, offset)
            if length < 16 or offset + length > len(data):
                break
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                for (number,) in struct.iter_unpack("=i", data[offset + 16 : offset + length]):
                    own = self._duplicate_any(call, number)
                    if own < 0:
                        for fd in fds:
                            os.close(fd)
                        return None
                    fds.append(own)
            offset += (length + 7) & ~7
        return fds

    def _duplicate_any(self, call: Call, fd: int) -> int:
        try:
            pidfd = linux.pidfd_open(call.process.pid)
            try:
                return linux.pidfd_getfd(pidfd, fd)
            finally:
                os.close(pidfd)
        except OSError:
            return -1

    def _send(self, call: Call, fd: int, messages: list[_Message]) -> None:
        own = self._duplicate(call, fd)
        if own is None:
            for message in messages:
                self._unsent(call, message)
                message.close()
            return call.fail(errno.EBADF if not _is_open(call, fd) else errno.EACCES)
        with own:
            try:
                self._send_own(call, own, messages)
            except _Later:
                # The caller may wait, the supervisor may not: the call is taken up again when there is room.
                self._s.when_writable(own, lambda: self.handle(call))
            finally:
                for message in messages:
                    message.close()
        return None

    def _unsent(self, call: Call, message: _Message) -> None:
        """A payload that went nowhere, as far as it is known."""
        address = message.address
        fields = self._fields(call, "", address)
        self._log.add(
            "net", call.process.pid, call.command, fields + f',"d":{text(message.payload[:256])},"r":"denied"'
        )

    def _send_own(self, call: Call, own: socket.socket, messages: list[_Message]) -> None:
        kind = own.type & 0xF
        flags = messages[0].flags
        wait = os.get_blocking(own.fileno()) and not flags & _MSG_DONTWAIT
        sent: list[int] = []
        number = 0
        for message in messages:
            try:
                sent.append(self._send_one(call, own, kind, message, wait and not sent))
            except OSError as e:
                number = e.errno or errno.EIO
                break
            if sent[-1] < len(message.payload):
                break
        if not sent:
            if number == errno.EPIPE and not flags & _MSG_NOSIGNAL:
                self._s.broken_pipe(call)
            return call.fail(number or errno.EIO)
        if call.name != "sendmmsg":
            return call.value(sent[0])
        for i, count in enumerate(sent):
            _write_memory(call.tid, call.args[1] + 64 * i + 56, struct.pack("=I", count))
        return call.value(len(sent))

    def _send_one(self, call: Call, own: socket.socket, kind: int, message: _Message, wait: bool) -> int:
        """Send one message where it may go; the bytes taken. Raises OSError."""
        address, flags = message.address, message.flags & _KEPT_FLAGS | _MSG_DONTWAIT | _MSG_NOSIGNAL
        raw = b""
        keep = -1
        if own.family in _INET:
            if address.raw and (kind != socket.SOCK_STREAM or message.flags & _MSG_FASTOPEN):
                raw = self._datagram_target(call, own, kind, address)
                if kind == socket.SOCK_STREAM:  # MSG_FASTOPEN: connect and send in one call
                    number = _raw_call("connect", own, raw)
                    if number and number != errno.EINPROGRESS:
                        raise OSError(number, os.strerror(number))
                    if self._sink is not None:
                        self._sink.announce(kind, own.getsockname()[1])
                    raw = b""
        elif own.family == socket.AF_UNIX:
            if address.raw and kind != socket.SOCK_STREAM:
                fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
                target = self._unix_target(call, address)
                if isinstance(target, int):
                    result = "denied" if target == errno.EACCES else errno.errorcode.get(target, str(target))
                    self._log.add("net", call.process.pid, call.command, f'{fields},"r":"{result}"')
                    raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
                self._log.add("net", call.process.pid, call.command, fields + ',"r":"passed"')
                keep, raw = target
        elif own.family == socket.AF_NETLINK:
            raw = address.raw
        else:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        try:
            while True:
                number, count = _raw_send(own, message.payload, flags, raw, message.fds)
                if number != errno.EAGAIN or not wait:
                    break
                if not self._s.writable_now(own):
                    raise _Later
        finally:
            if keep >= 0:
                os.close(keep)
        if number:
            raise OSError(number, os.strerror(number))
        if raw and own.family in _INET and self._sink is not None:
            self._sink.announce(kind, own.getsockname()[1])
        return count

    def _datagram_target(self, call: Call, own: socket.socket, kind: int, address: Address) -> bytes:
        fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
        if address.family != own.family or not address.host:
            self._tell(call, fields, errno.EAFNOSUPPORT)
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        if not self._permitted(call, address, kind):
            self._log.add("net", call.process.pid, call.command, fields + ',"r":"denied"')
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
        target = self._target(call, own, address, kind)
        if target is None:
            self._tell(call, fields, errno.ECONNREFUSED)
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._log.add("net", call.process.pid, call.command, fields + ',"r":"passed"')
        host, port = target
        if own.family == socket.AF_INET:
            return struct.pack("=H", 2) + struct.pack(">H", port) + socket.inet_aton(host) + b"\0" * 8
        return struct.pack("=H", 10) + struct.pack(">HI", port, 0) + socket.inet_pton(10, host) + b"\0" * 4


class _Later(Exception):
    """There is no room now, and the caller wants to wait for it."""


class _Message:
    """One message to send: where to, what, flags of the call, own descriptors to pass."""

    __slots__ = ("address", "fds", "flags", "payload")

    def __init__(self, address: Address, payload: bytes, flags: int, fds: list[int]) -> None:
        self.address = address
        self.payload = payload
        self.flags = flags
        self.fds = fds

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []


def _servers(kind: int, port: int) -> set[int]:
    """Inodes of the sockets that listen (TCP) or are bound (UDP) at a port of this host."""
    name = "tcp" if kind == socket.SOCK_STREAM else "udp"
    found = set()
    for table in (name, name + "6"):
        try:
            with open(f"self/net/{table}", encoding="ascii") as f:
                lines = f.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            part = line.split()
            if int(part[1].rpartition(":")[2], 16) == port and (name == "udp" or part[3] == _LISTEN):
                found.add(int(part[9]))
    return found


def _is_open(call: Call, fd: int) -> bool:
    return os.path.lexists(f"{call.tid}/fd/{fd}")


def _raw_call(name: str, own: socket.socket, raw: bytes) -> int:
    """connect(2) or bind(2) with a socket address as it stands in memory; the errno."""
    function = getattr(_libc, name)
    return ctypes.get_errno() if function(own.fileno(), ctypes.c_char_p(raw), len(raw)) < 0 else 0


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class _Msghdr(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint),
        ("iov", ctypes.POINTER(_Iovec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


def _raw_send(own: socket.socket, payload: bytes, flags: int, raw: bytes, fds: list[int]) -> tuple[int, int]:
    """sendmsg(2): (errno, bytes sent)."""
    data = ctypes.create_string_buffer(payload, max(1, len(payload)))
    vector = _Iovec(ctypes.addressof(data), len(payload))
    header = _Msghdr(iov=ctypes.pointer(vector), iovlen=1)
    name = ctypes.create_string_buffer(raw, len(raw)) if raw else None
    if name is not None:
        header.name, header.namelen = ctypes.addressof(name), len(raw)
    control = None
    if fds:
        rights = array("i", fds).tobytes()
        packed = struct.pack("=Qii", 16 + len(rights), socket.SOL_SOCKET, socket.SCM_RIGHTS) + rights
        packed += b"\0" * (-len(packed) % 8)
        control = ctypes.create_string_buffer(packed, len(packed))
        header.control, header.controllen = ctypes.addressof(control), len(packed)
    count: int = _libc.sendmsg(own.fileno(), ctypes.byref(header), flags)
    return (ctypes.get_errno(), 0) if count < 0 else (0, count)


def _write_memory(pid: int, address: int, data: bytes) -> None:
    buffer = ctypes.create_string_buffer(data, len(data))
    local = _Iovec(ctypes.addressof(buffer), len(data))
    remote = _Iovec(address, len(data))
    linux.syscall("process_vm_writev", pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
