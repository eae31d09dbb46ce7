"""The packet census: every flow is counted by the kernel's own view of the wire, and nothing is counted twice."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.world.census import Census, parse_packet
from aboveboard.world.netlink import LAN_ADDRESS, raise_loopback

from .netns import in_namespace

if TYPE_CHECKING:
    from collections.abc import Callable

WEB = "203.0.113.9"
WEB6 = "2001:db8::99"


def census_of(body: Callable[[], object], **options: int) -> dict[str, object]:
    """The ``packets`` event of what ``body`` does in a fresh world."""

    def run() -> dict[str, object]:
        census = Census(raise_loopback().addresses, **options)
        body()
        event = census.event()
        census.close()
        return event

    return in_namespace(run)


def external(event: dict[str, object]) -> list[tuple[object, ...]]:
    flows = event["flows"]
    assert isinstance(flows, list)
    return [(flow["proto"], flow["dst"], flow["dport"], flow["n"]) for flow in flows if "loopback" not in flow]


def exchange(family: int, address: str, port: int, data: bytes) -> None:
    """A whole TCP connection, both ends in this process."""
    with socket.socket(family) as server, socket.socket(family) as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND
        server.bind((address, port))
        server.listen()
        client.connect((address, port))
        accepted, _ = server.accept()
        with accepted:
            left = len(data)
            client.setblocking(False)
            while left:
                left -= client.send(data[:left])
                accepted.recv(1 << 20)


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, WEB), (socket.AF_INET6, WEB6)])
def test_a_connection_is_one_packet_however_much_it_carries(family: int, address: str) -> None:
    event = census_of(lambda: exchange(family, address, 8080, b"x" * (4 << 20)))
    assert external(event) == [("tcp", address, 8080, 1)]
    assert event["drops"] == 0


def test_a_refused_connection_is_counted_too() -> None:
    def body() -> None:
        with socket.socket() as sock:
            assert sock.connect_ex((WEB, 81)) != 0

    assert external(census_of(body)) == [("tcp", WEB, 81, 1)]


def test_each_datagram_is_counted_once() -> None:
    def body() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for _ in range(5):
                sock.sendto(b"beacon", (WEB, 53))

    assert external(census_of(body)) == [("udp", WEB, 53, 5)]


def test_an_echo_request_is_counted_and_the_answer_is_local() -> None:
    def body() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as sock:
            sock.sendto(b"\x08\0\0\0\0\0\0\x01", (WEB, 0))

    event = census_of(body)
    assert external(event) == [("icmp", WEB, 0, 1)]
    assert {flow["dst"] for flow in event["flows"] if "loopback" in flow} == {LAN_ADDRESS}  # type: ignore[attr-defined]


def test_protocols_nobody_expects_are_counted_by_number() -> None:
    def body() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, 253) as sock:
            sock.sendto(b"experimental", (WEB, 0))

    assert external(census_of(body)) == [("ip-253", WEB, 0, 1)]


def test_multicast_is_counted_and_the_kernels_housekeeping_is_not() -> None:
    def body() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            group = socket.inet_aton("224.0.0.251") + struct.pack("=4si", b"\0" * 4, 1)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            sock.sendto(b"mdns", ("224.0.0.251", 5353))

    assert external(census_of(body)) == [("udp", "224.0.0.251", 5353, 1)]


def test_traffic_of_the_world_with_itself_is_loopback_and_takes_one_entry_a_server() -> None:
    def body() -> None:
        for _ in range(50):
            exchange(socket.AF_INET, "127.0.0.1", 5000, b"local")

    event = census_of(body)
    assert external(event) == []
    assert event["flows"] == [
        {"proto": "tcp", "src": "127.0.0.1", "dst": "127.0.0.1", "sport": 0, "dport": 5000, "n": 50, "loopback": True}
    ]


def test_the_source_port_leads_to_the_sinks_flow() -> None:
    def run() -> tuple[int, list[object]]:
        census = Census(raise_loopback().addresses)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", (WEB, 9))
            census.drain()
            return sock.getsockname()[1], [flow["sport"] for flow in census.flows() if flow["dst"] == WEB]

    port, seen = in_namespace(run)
    assert seen == [port]


def test_memory_is_bounded_and_the_overflow_is_told() -> None:
    def body() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for port in range(1, 101):
                sock.sendto(b"", (f"198.51.100.{port}", port))

    event = census_of(body, max_flows=20)
    assert len(event["flows"]) == 20  # type: ignore[arg-type]
    # Each datagram to a closed port is also answered by the kernel with an ICMP error to the sender.
    assert event["overflow"] >= 80  # type: ignore[operator]


def test_a_flood_shows_in_the_drop_counter_instead_of_passing_unseen() -> None:
    def body() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for _ in range(60_000):
                sock.sendto(b"", (WEB, 9))

    event = census_of(body)
    counted = sum(flow["n"] for flow in event["flows"] if flow["dst"] == WEB)  # type: ignore[attr-defined]
    assert counted < 60_000
    assert event["drops"] > 0  # type: ignore[operator]
    assert counted + event["drops"] >= 60_000  # type: ignore[operator]


def test_without_the_capability_the_error_names_it() -> None:
    def body() -> str:
        import ctypes
        import os

        os.setresuid(1000, 1000, 1000)
        assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
        try:
            Census()
        except OSError as error:
            return str(error)
        return "opened"

    assert "CAP_NET_RAW" in in_namespace(body)


@given(st.sampled_from([0x0800, 0x86DD, 0x0806]), st.binary(max_size=512))
def test_any_bytes_are_a_packet_or_none(ethertype: int, data: bytes) -> None:
    packet = parse_packet(ethertype, data)
    if packet is not None:
        assert 0 <= packet.sport < 65_536
        assert 0 <= packet.dport < 65_536


def test_extension_headers_do_not_hide_a_flow() -> None:
    addresses = socket.inet_pton(socket.AF_INET6, "2001:db8::1") + socket.inet_pton(socket.AF_INET6, WEB6)
    header = struct.pack("!IHBB", 6 << 28, 24, 60, 64) + addresses
    packet = parse_packet(0x86DD, header + bytes((17, 0)) + b"\0" * 6 + struct.pack("!HHHH", 4000, 53, 8, 0))
    assert packet is not None
    assert (packet.proto, packet.dport) == ("udp", 53)
