"""Answers to calls about sockets: recorded, prepared for by the sink, then let through (nothing can leave)."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from typing import TYPE_CHECKING

from . import _linux as linux
from .calls import PROOF, Call, signed
from .log import text

if TYPE_CHECKING:
    from ..contract import Rules
    from .supervisor import Supervisor

_FAMILIES = {1: "unix", 2: "inet", 10: "inet6", 16: "netlink"}
_TYPES = {1: "stream", 2: "dgram", 3: "raw", 5: "seqpacket"}
_MSG_FASTOPEN = 0x20000000
_UIO_MAXIOV = 1024
_SOCKETCALL = {1: "socket", 2: "bind", 3: "connect", 4: "listen", 11: "sendto", 16: "sendmsg", 20: "sendmmsg"}
_SOCKETCALL_WORDS = {1: 3, 2: 3, 3: 3, 4: 2, 11: 6, 16: 3, 20: 4}


class Address:
    """A socket address from a caller's memory."""

    __slots__ = ("family", "host", "port", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.family = int.from_bytes(raw[:2], "little") if len(raw) >= 2 else -1
        self.host = ""
        self.port = 0
        if self.family == 2 and len(raw) >= 8:
            self.port = int.from_bytes(raw[2:4], "big")
            self.host = socket.inet_ntop(2, raw[4:8])
        elif self.family == 10 and len(raw) >= 24:
            self.port = int.from_bytes(raw[2:4], "big")
            self.host = socket.inet_ntop(10, raw[8:24])
        elif self.family == 1:
            path = raw[2:]
            if path[:1] == b"\0":
                self.host = "@" + os.fsdecode(path[1:])
            else:
                self.host = os.fsdecode(path.split(b"\0", 1)[0])


class Traffic:
    """Handlers of the socket family."""

    def __init__(self, supervisor: Supervisor, rules: Rules | None) -> None:
        self._s = supervisor
        self._log = supervisor.log
        self._memory = supervisor.memory
        self._rules = rules

    def handle(self, call: Call) -> None:
        """Dispatch by name; i386's socketcall is unpacked first."""
        if call.name == "socketcall":
            number = call.args[0]
            if number not in _SOCKETCALL:
                return call.proceed()
            words = _SOCKETCALL_WORDS[number]
            block = self._memory.read(call.tid, call.args[1], 4 * words)
            if len(block) < 4 * words:
                return call.fail(errno.EFAULT)
            call.name = _SOCKETCALL[number]
            call.args = (*struct.unpack(f"={words}I", block), 0, 0, 0, 0)
        name = call.name
        if name == "connect":
            return self._connect(call)
        if name == "sendto":
            return self._sendto(call)
        if name in ("sendmsg", "sendmmsg"):
            return self._sendmsg(call)
        if name == "socket":
            return self._socket(call)
        return self._bind_listen(call)

    def _fields(self, call: Call, kind: str, address: Address) -> str:
        family = _FAMILIES.get(address.family, str(address.family))
        fields = f',"s":"{call.name}","fam":"{family}","typ":"{kind}","addr":{text(address.host)}'
        if address.family in (2, 10):
            fields += f',"port":{address.port}'
            name = self._s.sink.name_of(address.host) if self._s.sink else None
            if name:
                fields += f',"name":{text(name)}'
        if call.abi != linux.ARCH:
            fields += f',"abi":"{call.abi}"'
        return fields

    def _duplicate(self, call: Call, fd: int) -> socket.socket | None:
        process = call.process
        try:
            pidfd = process.pidfd if process.pidfd >= 0 else linux.pidfd_open(process.pid)
            own = self._s.take_descriptor(pidfd, fd)
            if pidfd != process.pidfd:
                os.close(pidfd)
            try:
                return socket.socket(fileno=own)
            except OSError:
                os.close(own)
        except OSError:
            # A process whose first thread has ended has no table there; its other threads do (Linux 6.9).
            try:
                pidfd = linux.pidfd_open(call.tid, linux.PIDFD_THREAD)
                try:
                    return socket.socket(fileno=self._s.take_descriptor(pidfd, fd))
                finally:
                    os.close(pidfd)
            except OSError:
                pass
        return None

    def _socket_type(self, call: Call, fd: int) -> int:
        own = self._duplicate(call, fd)
        if own is None:  # never let through what cannot be looked at
            raise _no_socket(call, fd)
        with own:
            return own.type & 0xF

    def _address(self, call: Call, pointer: int, length: int) -> Address:
        return Address(self._memory.read(call.tid, pointer, min(length, 128)) if pointer and length else b"")

    def _destination(self, call: Call, pointer: int, length: int) -> Address:
        """The address of a message. Where none is named, UDP takes it for IPv4 (``udp_sendmsg``)."""
        address = self._address(call, pointer, length)
        return Address(b"\2\0" + address.raw[2:]) if address.family == 0 and len(address.raw) >= 8 else address

    def _expect(self, call: Call, address: Address, kind: int) -> None:
        if self._s.sink is not None and address.family in (2, 10) and address.host:
            self._s.sink.expect(
                address.family,
                kind or socket.SOCK_STREAM,
                address.host,
                address.port,
                self._s.log.cause(call.process.pid, call.command),
            )

    def _permitted(self, call: Call, address: Address, kind: int) -> bool:
        """In block mode: does the contract allow this destination? Local sockets and loopback always are."""
        if self._rules is None or address.family not in (2, 10) or call.command == PROOF:
            return True
        if self._s.is_own_address(address.host):
            return True
        name = self._s.sink.name_of(address.host) if self._s.sink else None
        hosts = [h for h in (name, address.host) if h]
        protocol = "udp" if kind == socket.SOCK_DGRAM else "tcp"
        if protocol == "udp" and address.port == 53:
            return True  # the resolver; what may follow is decided by the name
        return self._rules.network.rule(protocol, hosts, address.port) is not None

    def _connect(self, call: Call) -> None:
        fd = signed(call.args[0])
        address = self._address(call, call.args[1], call.args[2])
        kind = self._socket_type(call, fd) if address.family in (2, 10) else socket.SOCK_STREAM
        fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
        if self._rules is not None and address.family in (2, 10) and not address.host:
            self._log.add("net", call.process.pid, call.command, fields + ',"r":"EINVAL"')
            return call.fail(errno.EINVAL)  # too short for its family
        if not self._permitted(call, address, kind):
            self._log.add("net", call.process.pid, call.command, fields + ',"r":"denied"')
            return call.fail(errno.ECONNREFUSED)
        self._expect(call, address, kind)
        self._log.add("net", call.process.pid, call.command, fields + ',"r":"passed"')
        if self._rules is not None and address.family in (2, 10):
            return self._connect_here(call, fd, address)
        return call.proceed()

    def _connect_here(self, call: Call, fd: int, address: Address) -> None:
        """Block mode: connect to the address that was checked, on a duplicate of the caller's socket."""
        own = self._duplicate(call, fd)
        if own is None:
            raise _no_socket(call, fd)
        with own:
            blocking = os.get_blocking(own.fileno())
            try:
                os.set_blocking(own.fileno(), False)
                target = (address.host, address.port) if address.family == 2 else (address.host, address.port, 0, 0)
                number = own.connect_ex(target)
                if number == errno.EINPROGRESS and blocking:
                    # Loopback answers at once unless the listener's queue is full; then the caller's own
                    # call waits for the connection already under way, whatever address it names now.
                    select.select([], [own], [], 0.02)
                    return call.proceed()
            finally:
                os.set_blocking(own.fileno(), blocking)
        return call.fail(number) if number else call.value(0)

    def _sendto(self, call: Call) -> None:
        a = call.args
        if not a[4]:
            return call.proceed()
        address = self._destination(call, a[4], a[5] & 0xFFFFFFFF)
        return self._addressed(call, signed(a[0]), address, a[3])

    def _addressed(self, call: Call, fd: int, address: Address, flags: int) -> None:
        if address.family not in (2, 10):
            if address.family != 16:
                self._log.add("net", call.process.pid, call.command, self._fields(call, "", address) + ',"r":"passed"')
            return call.proceed()
        kind = self._socket_type(call, fd)
        fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
        if not self._permitted(call, address, kind):
            self._log.add("net", call.process.pid, call.command, fields + ',"r":"denied"')
            return call.fail(errno.ENETUNREACH)
        if kind != socket.SOCK_STREAM or flags & _MSG_FASTOPEN:
            self._expect(call, address, kind)
        self._log.add("net", call.process.pid, call.command, fields + ',"r":"passed"')
        return call.proceed()

    def _sendmsg(self, call: Call) -> None:
        a = call.args
        native = call.abi == linux.ARCH
        size = 56 if native else 28
        if call.name == "sendmmsg":
            size, count = (64 if native else 32), min(a[2], _UIO_MAXIOV)
        else:
            count = 1
        block = self._memory.read(call.tid, a[1], size * count)
        seen: set[bytes] = set()
        for offset in range(0, len(block) - size + 1, size):
            if native:
                pointer, length = struct.unpack_from("=QI", block, offset)
            else:
                pointer, length = struct.unpack_from("=II", block, offset)
            if not pointer or not length:
                continue
            address = self._destination(call, pointer, length)
            if address.raw in seen:
                continue
            seen.add(address.raw)
            if count == 1 or not self._permitted(call, address, socket.SOCK_DGRAM):
                return self._addressed(call, signed(a[0]), address, a[2] if call.name == "sendmsg" else 0)
            kind = self._socket_type(call, signed(a[0]))
            self._expect(call, address, kind)
            fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
            self._log.add("net", call.process.pid, call.command, fields + ',"r":"passed"')
        return call.proceed()

    def _socket(self, call: Call) -> None:
        family, kind = signed(call.args[0]), call.args[1] & 0xF
        protocol = call.args[2] & 0xFFFF
        if call.abi != linux.ARCH and (family in (1, 16) or (family in (2, 10) and kind in (1, 2) and not protocol)):
            return call.proceed()
        name = _FAMILIES.get(family, str(family))
        shown = "icmp" if protocol in (1, 58) else _TYPES.get(kind, str(kind))
        fields = f',"s":"socket","fam":"{name}","typ":"{shown}","d":"protocol {protocol}"'
        allowed = family in (1, 2, 10, 16)
        self._log.add("net", call.process.pid, call.command, fields + f',"r":"{"passed" if allowed else "denied"}"')
        return call.proceed() if allowed else call.fail(errno.EAFNOSUPPORT)

    def _bind_listen(self, call: Call) -> None:
        fd = signed(call.args[0])
        if call.name == "bind":
            address = self._address(call, call.args[1], call.args[2])
        else:
            own = self._duplicate(call, fd)
            if own is None:
                raise _no_socket(call, fd)
            with own:
                address = _own_name(own)
        if address.family == 16:
            return call.proceed()
        kind = self._socket_type(call, fd) if address.family in (2, 10) else socket.SOCK_STREAM
        fields = self._fields(call, _TYPES.get(kind, str(kind)), address)
        if self._rules is not None and address.family in (2, 10) and not self._s.may_listen(address.host, address.port):
            self._log.add("net", call.process.pid, call.command, fields + ',"r":"denied"')
            return call.fail(errno.EACCES)
        if call.name == "bind" and self._s.sink is not None and address.family in (2, 10) and address.port:
            self._s.sink.make_room(kind, address.port)
        self._log.add("net", call.process.pid, call.command, fields + ',"r":"passed"')
        return call.proceed()


def _no_socket(call: Call, fd: int) -> OSError:
    """What the kernel says of a descriptor that is no socket, or none at all."""
    number = errno.ENOTSOCK if os.path.lexists(f"{call.tid}/fd/{fd}") else errno.EBADF
    return OSError(number, os.strerror(number))


def _own_name(own: socket.socket) -> Address:
    name = own.getsockname()
    if own.family == socket.AF_INET:
        return Address(struct.pack("=H", 2) + struct.pack(">H", name[1]) + socket.inet_aton(name[0]))
    if own.family == socket.AF_INET6:
        raw = struct.pack("=H", 10) + struct.pack(">HI", name[1], 0)
        return Address(raw + socket.inet_pton(10, name[0].partition("%")[0]))
    raw_name = name if isinstance(name, bytes) else os.fsencode(name or "")
    return Address(struct.pack("=H", int(own.family)) + raw_name)
