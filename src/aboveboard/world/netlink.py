"""Make every address local: loopback up, AnyIP routes, an ordinary LAN address.

Inside a fresh network namespace the kernel has a loopback device that is down and nothing else. Four routing messages
turn it into a place where each IPv4 and IPv6 address in the world is *this* machine, so that whatever the candidate
talks to, it talks to the sink, and nothing can leave (Linux ``ip-route(8)``, type ``local``; the trick is known as
AnyIP).

The messages are built here by hand: see ``docs/explanation/decisions/0003-netlink-without-library.md`` for the
measurement.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import NamedTuple

from aboveboard.errors import EnvironmentProblem

__all__ = [
    "LAN_ADDRESS",
    "LAN_ADDRESS6",
    "Loopback",
    "NetworkSetupError",
    "is_loopback",
    "normal_address",
    "raise_loopback",
]

# An ordinary home network. Programs that ask "what is my address?" (connect a datagram socket to anywhere, read its
# own name) see a laptop behind a router; without a preferred source the kernel would answer with the *destination*,
# which no real machine does and which a candidate could use to notice the sink.
LAN_ADDRESS = "192.168.178.35"
LAN_ADDRESS6 = "fd3c:8a51:7e02::35"

_LO_INDEX = 1  # the loopback device is created with the namespace and is always its first

_RTM_NEWLINK, _RTM_NEWADDR, _RTM_NEWROUTE = 16, 20, 24
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_CREATE, _NLM_F_REPLACE = 0x1, 0x4, 0x400, 0x100
_NLMSG_ERROR = 2
_IFF_UP = 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_IFA_F_NODAD = 0x02
_RTA_DST, _RTA_OIF, _RTA_PREFSRC = 1, 4, 7
_RT_TABLE_LOCAL, _RTPROT_BOOT, _RTN_LOCAL = 255, 3, 2
_RT_SCOPE_HOST, _RT_SCOPE_UNIVERSE = 254, 0

_ADVICE = {
    errno.EPERM: "The process has no CAP_NET_ADMIN in this network namespace: it must be created together with, or "
    "after, the user namespace. `aboveboard doctor` shows what forbids it.",
    errno.EAFNOSUPPORT: "The kernel has no support for this address family; use one that has.",
    errno.EOPNOTSUPP: "IPv6 is switched off (`ipv6.disable=1` or net.ipv6.conf.all.disable_ipv6); switch it on.",
    errno.EINVAL: "The kernel does not know this request: Linux 4.19 or newer is needed.",
}


class NetworkSetupError(EnvironmentProblem):
    """One step of the network set-up failed. The message names the step and the kernel's reason."""


def _failure(step: str, number: int) -> NetworkSetupError:
    advice = _ADVICE.get(number, "Run `aboveboard doctor` to see what this machine allows.")
    return NetworkSetupError(f"network set-up: {step}: {os.strerror(number)}", advice=advice)


class Loopback(NamedTuple):
    """What the set-up reached.

    ``addresses`` are the world's own addresses beside 127.0.0.0/8 and ::1, in the form :func:`normal_address` gives;
    ``ipv6`` says whether the second family exists at all (where it does not, no IPv6 packet can be sent); ``ping``
    whether unprivileged ICMP echo sockets can be opened, so that an echo beacon is seen instead of failing.
    """

    addresses: frozenset[str]
    ipv6: bool
    ping: bool


def normal_address(address: str) -> tuple[int, str]:
    """Family and canonical text of an address; an IPv4-mapped IPv6 address becomes the IPv4 address the kernel will
    really use.

    A zone (``fe80::1%lo``) is cut off. Raises :class:`ValueError` when it is no address.
    """
    # inet_pton raises ValueError itself for a NUL and UnicodeEncodeError (one of its kinds) for a lone surrogate.
    try:
        return socket.AF_INET, socket.inet_ntop(socket.AF_INET, socket.inet_pton(socket.AF_INET, address))
    except (OSError, ValueError):
        pass
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        raise ValueError(f"{address!r} is neither an IPv4 nor an IPv6 address") from None
    if packed[:12] == b"\0" * 10 + b"\xff\xff":
        return socket.AF_INET, socket.inet_ntop(socket.AF_INET, packed[12:])
    return socket.AF_INET6, socket.inet_ntop(socket.AF_INET6, packed)


def is_loopback(address: str, own: frozenset[str] = frozenset()) -> bool:
    """Whether a destination is the world itself: 127.0.0.0/8, ::1, the unspecified address, or one of its ``own``
    addresses."""
    family, text = normal_address(address)
    if family == socket.AF_INET:
        return text.startswith("127.") or text == "0.0.0.0" or text in own
    return text in ("::1", "::") or text in own


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _link_up() -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, _LO_INDEX, _IFF_UP, _IFF_UP)


def _address(family: int, address: str, prefix: int) -> bytes:
    packed = socket.inet_pton(family, address)
    body = struct.pack("=BBBBI", family, prefix, _IFA_F_NODAD, _RT_SCOPE_UNIVERSE, _LO_INDEX)
    return (
        body
        + _attribute(_IFA_LOCAL, packed)
        + _attribute(_IFA_ADDRESS, packed)
        + _attribute(_IFA_FLAGS, struct.pack("=I", _IFA_F_NODAD))
    )


def _local_route(family: int, source: str) -> bytes:
    """``local default dev lo table local src SOURCE``."""
    scope = _RT_SCOPE_HOST if family == socket.AF_INET else _RT_SCOPE_UNIVERSE
    body = struct.pack("=BBBBBBBBI", family, 0, 0, 0, _RT_TABLE_LOCAL, _RTPROT_BOOT, scope, _RTN_LOCAL, 0)
    return (
        body
        + _attribute(_RTA_OIF, struct.pack("=I", _LO_INDEX))
        + _attribute(_RTA_PREFSRC, socket.inet_pton(family, source))
    )


def _request(netlink: socket.socket, sequence: int, kind: int, flags: int, body: bytes) -> int:
    """Send one request and return the error number of its acknowledgement (0: done)."""
    header = struct.pack("=IHHII", 16 + len(body), kind, _NLM_F_REQUEST | _NLM_F_ACK | flags, sequence, 0)
    netlink.send(header + body)
    while True:
        answer = netlink.recv(65536)
        while len(answer) >= 20:
            length, message, _, number, _ = struct.unpack_from("=IHHII", answer)
            if message == _NLMSG_ERROR and number == sequence:
                return -int(struct.unpack_from("=i", answer, 16)[0])
            answer = answer[max(20, (length + 3) & ~3) :]


def raise_loopback(proc: int | None = None) -> Loopback:
    """Bring ``lo`` up in the current network namespace and make every IPv4 and IPv6 address local to it.

    ``proc`` is a descriptor of a mounted proc directory, through which the namespace's sysctls are set; without it
    ``/proc`` is used. Needs CAP_NET_ADMIN in the user namespace that owns the network namespace. Raises
    :class:`NetworkSetupError` naming the step that failed; a machine without IPv6, or one that forbids the ping sysctl,
    is no failure but is said in the result.
    """
    own = [LAN_ADDRESS]
    # Containers often switch IPv6 off by default for new namespaces. Where it can be switched on it is, since a
    # candidate's IPv6 code path should be seen doing what it would do outside; where it cannot, the routes below say
    # so.
    _write_sysctl(proc, "net/ipv6/conf/all/disable_ipv6", "0")
    _write_sysctl(proc, "net/ipv6/conf/lo/disable_ipv6", "0")
    create = _NLM_F_CREATE | _NLM_F_REPLACE
    steps4 = (
        ("bring the loopback device up (RTM_NEWLINK lo)", _RTM_NEWLINK, 0, _link_up()),
        (
            f"add the address {LAN_ADDRESS} (RTM_NEWADDR)",
            _RTM_NEWADDR,
            create,
            _address(socket.AF_INET, LAN_ADDRESS, 32),
        ),
        (
            "make every IPv4 address local (RTM_NEWROUTE 0.0.0.0/0)",
            _RTM_NEWROUTE,
            create,
            _local_route(socket.AF_INET, LAN_ADDRESS),
        ),
    )
    steps6 = (
        (
            f"add the address {LAN_ADDRESS6} (RTM_NEWADDR)",
            _RTM_NEWADDR,
            create,
            _address(socket.AF_INET6, LAN_ADDRESS6, 128),
        ),
        (
            "make every IPv6 address local (RTM_NEWROUTE ::/0)",
            _RTM_NEWROUTE,
            create,
            _local_route(socket.AF_INET6, LAN_ADDRESS6),
        ),
    )
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    except OSError as error:
        raise _failure("open a routing socket (AF_NETLINK, NETLINK_ROUTE)", error.errno or errno.EIO) from None
    with netlink:
        netlink.settimeout(5.0)
        sequence = 0
        ipv6 = True
        for family, steps in ((socket.AF_INET, steps4), (socket.AF_INET6, steps6)):
            for step, kind, flags, body in steps:
                sequence += 1
                try:
                    number = _request(netlink, sequence, kind, flags, body)
                except OSError as error:
                    number = error.errno or errno.ETIMEDOUT
                if number == 0:
                    continue
                if family == socket.AF_INET6 and not _has_ipv6():
                    ipv6 = False
                    break
                raise _failure(step, number)
    if ipv6:
        own.append(LAN_ADDRESS6)
    return Loopback(frozenset(own), ipv6, _allow_ping(proc))


def _has_ipv6() -> bool:
    """Whether an IPv6 socket can have an address here; if not, nothing can be sent over IPv6 and there is nothing
    to catch."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _write_sysctl(proc: int | None, name: str, value: str) -> bool:
    path = f"sys/{name}" if proc is not None else f"/proc/sys/{name}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return False
    try:
        os.write(fd, value.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _allow_ping(proc: int | None) -> bool:
    """Let every group of the world open ICMP echo sockets, as desktop distributions do.

    The kernel refuses a range whose ends are not mapped in the user namespace, so the range is read from the map.
    """
    try:
        fd = os.open(
            "self/gid_map" if proc is not None else "/proc/self/gid_map", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc
        )
    except OSError:
        return False
    try:
        rows = [[int(word) for word in line.split()] for line in os.read(fd, 65536).decode().splitlines()]
    finally:
        os.close(fd)
    if not rows:
        return False
    first = min(row[0] for row in rows)
    last = min(max(row[0] + row[2] - 1 for row in rows), 0x7FFFFFFF)
    return _write_sysctl(proc, "net/ipv4/ping_group_range", f"{first} {last}")
