"""The network of a world: every address is local, nothing leaves, and the machine looks like a laptop."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.world.netlink import (
    LAN_ADDRESS,
    LAN_ADDRESS6,
    Loopback,
    NetworkSetupError,
    is_loopback,
    normal_address,
    raise_loopback,
)

from .netns import in_namespace

IPV6_FREEBIND = 78  # <linux/in6.h>: a route is enough for IPv4, IPv6 also wants the address assigned


def _exchange(family: int, address: str) -> tuple[str, str]:
    """Connect to ``address`` and return (what the server thinks its own address is, what the client thinks its own
    is)."""
    with socket.socket(family, socket.SOCK_STREAM) as server, socket.socket(family, socket.SOCK_STREAM) as client:
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
        server.bind((address, 8080))
        server.listen()
        client.settimeout(5)
        client.connect((address, 8080))
        accepted, _ = server.accept()
        with accepted:
            return accepted.getsockname()[0], client.getsockname()[0]


def test_every_ipv4_address_is_local_and_the_source_is_the_lan_address() -> None:
    def body() -> tuple[Loopback, list[tuple[str, str]]]:
        loopback = raise_loopback()
        return loopback, [
            _exchange(socket.AF_INET, address) for address in ("203.0.113.9", "198.51.100.7", "127.0.0.1")
        ]

    loopback, seen = in_namespace(body)
    assert LAN_ADDRESS in loopback.addresses
    assert seen == [("203.0.113.9", LAN_ADDRESS), ("198.51.100.7", LAN_ADDRESS), ("127.0.0.1", "127.0.0.1")]


def test_every_ipv6_address_is_local() -> None:
    def body() -> tuple[Loopback, list[tuple[str, str]]]:
        loopback = raise_loopback()
        return loopback, [_exchange(socket.AF_INET6, a) for a in ("2001:db8::99", "::1")] if loopback.ipv6 else []

    loopback, seen = in_namespace(body)
    if not loopback.ipv6:
        pytest.skip("this kernel has no IPv6")
    assert seen == [("2001:db8::99", LAN_ADDRESS6), ("::1", "::1")]


def test_asking_for_ones_own_address_shows_a_laptop_not_the_destination() -> None:
    def body() -> str:
        raise_loopback()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("203.0.113.53", 53))
            return str(probe.getsockname()[0])

    assert in_namespace(body) == LAN_ADDRESS


def test_an_unprivileged_echo_socket_can_be_opened() -> None:
    def body() -> tuple[bool, bytes]:
        ping = raise_loopback().ping
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as echo:
            echo.settimeout(5)
            echo.sendto(b"\x08\0\0\0\0\0\0\x01hello", ("198.51.100.1", 0))
            return ping, echo.recv(100)[8:]

    assert in_namespace(body) == (True, b"hello")


def test_sysctls_are_written_through_a_given_proc_directory() -> None:
    def body() -> tuple[bool, str]:
        fd = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        ping = raise_loopback(fd).ping
        with open("/proc/sys/net/ipv4/ping_group_range") as file:
            return ping, " ".join(file.read().split())

    assert in_namespace(body) == (True, "1000 1000")


def test_running_it_twice_is_harmless() -> None:
    assert in_namespace(lambda: raise_loopback() == raise_loopback())


def test_without_the_capability_the_failing_step_and_the_next_step_are_named() -> None:
    def body() -> str:
        os.setresuid(1000, 1000, 1000)
        import ctypes

        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0
        try:
            raise_loopback()
        except NetworkSetupError as error:
            return str(error)
        return "no error"

    message = in_namespace(body)
    for part in ("loopback device up", "not permitted", "CAP_NET_ADMIN"):
        assert part in message


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("0.0.0.0", True),
        ("::1", True),
        ("::", True),
        ("::ffff:127.0.0.1", True),
        ("0:0:0:0:0:ffff:7f00:1", True),
        ("128.0.0.1", False),
        ("203.0.113.9", False),
        ("::ffff:203.0.113.9", False),
        ("2001:db8::1", False),
        ("fe80::1%lo", False),
    ],
)
def test_loopback_is_recognised_in_every_spelling(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_the_worlds_own_addresses_are_loopback_too() -> None:
    assert is_loopback("192.0.2.7", frozenset({"192.0.2.7"}))


@given(st.ip_addresses())
def test_normal_form_is_stable(address: object) -> None:
    family, text = normal_address(str(address))
    assert normal_address(text) == (family, text)


@given(st.text(max_size=40))
def test_anything_else_is_a_value_error(text: str) -> None:
    try:
        family, normal = normal_address(text)
    except ValueError:
        return
    assert socket.inet_pton(family, normal)
