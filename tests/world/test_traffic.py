"""Calls about sockets: what they name is recorded, whatever form it comes in."""

from __future__ import annotations

import errno
import socket
import struct
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.contract import Contract
from aboveboard.world import World
from aboveboard.world import _linux as linux
from aboveboard.world.calls import Call
from aboveboard.world.traffic import Address, Traffic

if TYPE_CHECKING:
    from aboveboard.evidence import Event

HOME = "/home/dev"
INET, INET6, UNIX = 2, 10, 1


def inet(host: str, port: int, family: int = INET) -> bytes:
    return struct.pack("=H", family) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8)


def inet6(host: str, port: int) -> bytes:
    return struct.pack("=H", INET6) + struct.pack(">HI", port, 0) + socket.inet_pton(socket.AF_INET6, host) + bytes(4)


# --- addresses ----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_given_any_bytes_when_taken_for_an_address_then_it_is_no_error(raw: bytes) -> None:
    address = Address(raw)
    assert address.raw == raw
    assert 0 <= address.port <= 0xFFFF
    assert address.family == (int.from_bytes(raw[:2], sys.byteorder) if len(raw) > 1 else -1)
    if address.family in (INET, INET6) and address.host:
        socket.inet_pton(address.family, address.host)


@pytest.mark.parametrize(
    ("raw", "host", "port"),
    [
        (inet("192.0.2.7", 443), "192.0.2.7", 443),
        (inet("192.0.2.7", 443)[:8], "192.0.2.7", 443),
        (inet("192.0.2.7", 443)[:7], "", 0),
        (inet6("2001:db8::7", 53), "2001:db8::7", 53),
        (inet6("2001:db8::7", 53)[:23], "", 0),
        (b"\1\0/run/a.sock\0rest", "/run/a.sock", 0),
        (b"\1\0/run/a.sock", "/run/a.sock", 0),
        (b"\1\0\0abstract\0name", "@abstract\0name", 0),
        (b"\1\0", "", 0),
        (b"\1", "", 0),
        (b"", "", 0),
        (b"\1\0/tmp/\xff", "/tmp/\udcff", 0),
    ],
)
def test_given_an_address_when_taken_apart_then_host_and_port_are_those_it_names(
    raw: bytes, host: str, port: int
) -> None:
    address = Address(raw)
    assert (address.host, address.port) == (host, port)


# --- messages, with a caller's memory that holds anything ---------------------------------------------------------


class Memory:
    """A caller's memory: one region at a base address; everything else faults."""

    BASE = 0x10000

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, tid: int, address: int, size: int) -> bytes:
        start = address - self.BASE
        if not 0 <= start < len(self.content):
            raise OSError(errno.EFAULT, "fault")
        return self.content[start : start + min(size, 1 << 16)]


class Answers(Call):
    """A call whose answer is kept instead of sent."""

    def __init__(self, name: str, args: tuple[int, ...], abi: str = linux.ARCH) -> None:
        super().__init__(-1, 1, 1, 0, name, abi, (*args, *(0,) * (6 - len(args))), 1)
        self.process = SimpleNamespace(pid=1, pidfd=-1)  # type: ignore[assignment]
        self.given: list[tuple[str, int]] = []

    def _send(self, value: int, error: int, flags: int) -> None:
        self.answered = True
        self.given.append(("proceed", 0) if flags else ("fail", -error) if error else ("value", value))


def traffic(content: bytes) -> tuple[Traffic, list[tuple[str, str]]]:
    """The handlers over a caller's memory, and the list of what they log."""
    logged: list[tuple[str, str]] = []
    log = SimpleNamespace(
        add=lambda kind, pid, command, fields="": logged.append((kind, fields)), cause=lambda pid, command: {}
    )
    supervisor = SimpleNamespace(log=log, memory=Memory(content), sink=None)
    made = Traffic(supervisor, None)  # type: ignore[arg-type]
    made._socket_type = lambda call, fd: socket.SOCK_DGRAM  # type: ignore[method-assign, misc]
    return made, logged


def messages(count: int, addresses: list[bytes], size: int = 64) -> bytes:
    """An array of ``struct mmsghdr`` (or ``msghdr``) whose names follow it in memory."""
    head, tail = b"", b""
    start = Memory.BASE + size * count
    for n in range(count):
        raw = addresses[n % len(addresses)]
        head += struct.pack("=QI", start + len(tail), len(raw)).ljust(size, b"\0")
        tail += raw
    return head + tail


def test_given_many_messages_in_one_call_when_each_goes_elsewhere_then_every_destination_is_recorded() -> None:
    addresses = [inet(f"198.51.100.{n % 250}", 1000 + n) for n in range(1000)]
    handlers, logged = traffic(messages(1000, addresses))
    call = Answers("sendmmsg", (3, Memory.BASE, 1000, 0))
    handlers.handle(call)
    assert call.given == [("proceed", 0)]
    assert len(logged) == 1000
    assert '"port":1999' in logged[-1][1]


def test_given_a_message_without_an_address_family_when_sent_then_it_is_recorded_as_the_ipv4_it_becomes() -> None:
    raw = inet("198.51.100.9", 53, family=0)
    handlers, logged = traffic(raw)
    call = Answers("sendto", (3, 0, 0, 0, Memory.BASE, len(raw)))
    handlers.handle(call)
    assert call.given == [("proceed", 0)]
    assert [kind for kind, _ in logged] == ["net"]
    assert '"fam":"inet"' in logged[0][1]
    assert '"addr":"198.51.100.9","port":53' in logged[0][1]


@given(
    content=st.binary(min_size=1, max_size=600),
    name=st.sampled_from(["sendmsg", "sendmmsg", "sendto", "connect", "bind", "socket", "socketcall"]),
    args=st.tuples(
        *[st.integers(0, 70) | st.integers(0, (1 << 64) - 1) | st.integers(Memory.BASE, Memory.BASE + 600)] * 6
    ),
    abi=st.sampled_from([linux.ARCH, "i386"]),
)
def test_given_any_memory_and_arguments_when_a_socket_call_is_handled_then_it_is_answered_or_faults(
    content: bytes, name: str, args: tuple[int, ...], abi: str
) -> None:
    handlers, logged = traffic(content)
    call = Answers(name, args, abi)
    fault = 0
    try:
        handlers.handle(call)
    except OSError as problem:
        fault = problem.errno or -1
    assert (fault, len(call.given)) in ((0, 1), (errno.EFAULT, 0))
    assert len(logged) <= 1024
    assert all(fields.isascii() for _, fields in logged)


# --- in a world ---------------------------------------------------------------------------------------------------

in_a_world = pytest.mark.usefixtures("world_available")


def observed(program: str, **options: Any) -> tuple[bytes, list[Event]]:
    with World(**options) as world:
        done = world.run([sys.executable, "-I", "-c", program], timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout, list(world.close().events())


def of(events: list[Event], kind: str) -> list[Event]:
    return [e for e in events if e.type == kind]


@in_a_world
def test_given_an_address_without_a_family_when_sent_in_a_world_then_payload_and_destination_are_seen() -> None:
    program = """
import ctypes, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
raw = struct.pack("=H", 0) + struct.pack(">H", 4444) + socket.inet_aton("203.0.113.5") + bytes(8)
libc = ctypes.CDLL(None, use_errno=True)
libc.sendto.restype = ctypes.c_ssize_t
print(libc.sendto(s.fileno(), b"covert", ctypes.c_size_t(6), 0, raw, 16), ctypes.get_errno())
"""
    out, events = observed(program)
    assert out == b"6 0\n"
    assert [(e.text("addr"), e.integer("port")) for e in of(events, "net")] == [("203.0.113.5", 4444)]
    (flow,) = [e for e in of(events, "flow") if e.text("proto") == "udp"]
    assert (flow.text("dst"), flow.integer("port"), flow.text("head")) == ("203.0.113.5", 4444, "covert")


SENDMMSG = """
import ctypes, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
libc = ctypes.CDLL(None, use_errno=True)
n = 100
keep, head = [], b""
for i in range(n):
    raw = struct.pack("=H", 2) + struct.pack(">H", 5000) + socket.inet_aton(f"198.51.100.{i}") + bytes(8)
    name, data = ctypes.create_string_buffer(raw, 16), ctypes.create_string_buffer(b"x%d" % i)
    iov = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(data), len(data.value)), 16)
    keep += [name, data, iov]
    head += struct.pack("=QI4xQQQQi4xI4x", ctypes.addressof(name), 16, ctypes.addressof(iov), 1, 0, 0, 0, 0)
array = ctypes.create_string_buffer(head, len(head))
print(libc.sendmmsg(s.fileno(), array, n, 0), ctypes.get_errno())
"""


@in_a_world
@pytest.mark.skipif(linux.ARCH != "x86_64", reason="the layout of struct mmsghdr is that of x86-64")
def test_given_a_hundred_destinations_in_one_call_when_sent_in_a_world_then_all_are_seen() -> None:
    out, events = observed(SENDMMSG)
    assert out == b"100 0\n"
    wanted = {f"198.51.100.{i}" for i in range(100)}
    assert {e.text("addr") for e in of(events, "net")} == wanted
    assert {e.text("dst") for e in of(events, "flow")} == wanted


@in_a_world
@pytest.mark.skipif(linux.ARCH != "x86_64", reason="the layout of struct mmsghdr is that of x86-64")
def test_given_one_forbidden_destination_behind_allowed_ones_when_blocked_then_nothing_of_the_call_is_sent() -> None:
    contract = Contract.parse(
        ("[contract]\nnetwork = [" + ",".join(f'"udp:198.51.100.{i}:5000"' for i in range(90)) + "]\n").encode()
    )
    out, events = observed(SENDMMSG, mode="block", contract=contract)
    assert out == b"-1 %d\n" % errno.ENETUNREACH
    assert of(events, "flow") == []
    assert {e.result for e in of(events, "net") if e.text("addr") == "198.51.100.90"} == {"denied"}


@in_a_world
@pytest.mark.parametrize(
    ("make", "family", "kind"),
    [
        ("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "17", "raw"),
        ("socket.socket(40, socket.SOCK_STREAM)", "40", "stream"),
        ("socket.socket(38, socket.SOCK_SEQPACKET)", "38", "seqpacket"),
    ],
)
def test_given_a_family_that_could_lead_out_when_a_socket_is_made_then_it_is_denied(
    make: str, family: str, kind: str
) -> None:
    program = f"import socket\ntry:\n    {make}\nexcept OSError as e: print(e.errno)"
    out, events = observed(program)
    assert out == b"%d\n" % errno.EAFNOSUPPORT
    assert [(e.text("fam"), e.text("typ"), e.result) for e in of(events, "net")] == [(family, kind, "denied")]


@in_a_world
@pytest.mark.parametrize("name", ["connect", "sendto"])
def test_given_a_unix_socket_outside_every_mount_when_named_then_the_name_is_recorded_and_leads_nowhere(
    name: str,
) -> None:
    where = "'/var/run/docker.sock'"
    call = f"s.connect({where})" if name == "connect" else f"s.sendto(b'x', {where})"
    kind = "STREAM" if name == "connect" else "DGRAM"
    program = f"import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_{kind})\ntry:\n    {call}\n"
    out, events = observed(program + "except OSError as e: print(e.errno)")
    assert out == b"%d\n" % errno.ENOENT
    assert [(e.syscall, e.text("fam"), e.text("addr")) for e in of(events, "net")] == [
        (name, "unix", "/var/run/docker.sock")
    ]
