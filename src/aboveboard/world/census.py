"""The packet census: who sent anything to whom, seen by the kernel and not by the sink.

A packet socket on the loopback device, opened before the candidate starts, sees the first packet of every flow whatever
system call made it. It says nothing about content (the sink does) and everything about existence: a flow that is in the
census and not in the sink's record is a transmission nobody read, and a drop counter above zero means the census itself
is not complete.

Two measures keep it from dropping (measured; see ``docs/explanation/network.md``): the loopback device shows each
packet twice, so the outgoing copy is ignored, and a classic BPF program passes only packets that can start a flow, cut
to their headers.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from .netlink import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Census", "Packet", "parse_packet"]

_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_IGNORE_OUTGOING = 23
_SO_ATTACH_FILTER = 26
_ETH_P_ALL, _ETH_P_IP, _ETH_P_IPV6 = 0x0003, 0x0800, 0x86DD
_SNAP = 512
_ROUNDS = 1024

_PROTOCOLS = {1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 33: "dccp", 58: "icmp", 132: "sctp", 136: "udplite"}
_WITH_PORTS = (6, 17, 33, 132, 136)
# Headers an IPv6 packet may carry before its payload: hop-by-hop, routing, destination options (RFC 8200).
_OPTIONS, _FRAGMENT = (0, 43, 60), 44
# Neighbour discovery and multicast listener reports: the kernel's own housekeeping (RFC 4861, 2710, 3810).
_HOUSEKEEPING6 = frozenset((130, 131, 132, 133, 134, 135, 136, 137, 143))


class Packet(NamedTuple):
    """Addresses and ports of one packet; ports are 0 where the protocol has none, ``proto`` is a name or
    ``ip-NUMBER``."""

    proto: str
    source: str
    destination: str
    sport: int
    dport: int
    housekeeping: bool


def parse_packet(ethertype: int, packet: bytes) -> Packet | None:
    """What a packet says about its flow, from its network header on; None when it is cut off before that can be told.

    A protocol that is neither IPv4 nor IPv6 is told as ``ether-NUMBER`` without addresses.
    """
    if ethertype == _ETH_P_IP:
        if len(packet) < 20:
            return None
        number, offset = packet[9], (packet[0] & 15) * 4
        source = socket.inet_ntop(socket.AF_INET, packet[12:16])
        destination = socket.inet_ntop(socket.AF_INET, packet[16:20])
        first = not struct.unpack_from("!H", packet, 6)[0] & 0x1FFF
    elif ethertype == _ETH_P_IPV6:
        if len(packet) < 40:
            return None
        number, offset, first = packet[6], 40, True
        source = socket.inet_ntop(socket.AF_INET6, packet[8:24])
        destination = socket.inet_ntop(socket.AF_INET6, packet[24:40])
        # Each header is at least eight bytes long, so the snap length bounds this.
        while number in (*_OPTIONS, _FRAGMENT) and len(packet) >= offset + 8:
            if number == _FRAGMENT:
                first = first and not struct.unpack_from("!H", packet, offset + 2)[0] & 0xFFF8
                number, offset = packet[offset], offset + 8
            else:
                number, offset = packet[offset], offset + 8 + packet[offset + 1] * 8
    else:
        return Packet(f"ether-{ethertype}", "", "", 0, 0, False)
    sport = dport = 0
    if first and number in _WITH_PORTS and len(packet) >= offset + 4:
        sport, dport = struct.unpack_from("!HH", packet, offset)
    housekeeping = number == 2 or (number == 58 and len(packet) > offset and packet[offset] in _HOUSEKEEPING6)
    return Packet(_PROTOCOLS.get(number, f"ip-{number}"), source, destination, sport, dport, housekeeping)


class Census:
    """Counts the packets that start flows in the current network namespace.

    ``own`` are the world's own addresses (:class:`~.netlink.Loopback`): traffic to them and to the loopback range is
    the world talking to itself. It is counted too, but without the (ephemeral) source port, so that a busy local server
    does not use up ``max_flows``. Needs CAP_NET_RAW in the user namespace that owns the network namespace; raises
    :class:`OSError` saying so.
    """

    def __init__(self, own: frozenset[str] = frozenset(), *, max_flows: int = 8_192) -> None:
        self._own = own
        self._max_flows = max_flows
        self._counts: dict[tuple[str, str, str, int, int, bool], int] = {}
        self._drops = 0
        self.overflow = 0
        """Packets of flows beyond ``max_flows``, which are not told apart any more."""
        self.unparsed = 0
        """Packets too short to be told."""
        try:
            # Protocol 0 receives nothing: the filter is in place before the first packet can come.
            self._sock = socket.socket(
                socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0
            )
        except OSError as error:
            raise OSError(
                error.errno,
                f"the packet census cannot open a packet socket: {error.strerror}; it needs CAP_NET_RAW in the world's "
                "user namespace, `aboveboard doctor` shows what withholds it",
            ) from None
        try:
            self._sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            self._sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20
            )  # cut to net.core.rmem_max by the kernel
            _attach(self._sock, _program())
            self._sock.bind(("lo", _ETH_P_ALL))
        except OSError as error:
            self._sock.close()
            raise OSError(
                error.errno, f"the packet census cannot be set up: {error.strerror}; Linux 4.20 or newer is needed"
            ) from None

    def fileno(self) -> int:
        """The descriptor to watch for input, with :meth:`drain` as its callback."""
        return self._sock.fileno()

    def drain(self, rounds: int = _ROUNDS) -> int:
        """Count what has arrived, at most ``rounds`` packets; return how many there were."""
        for done in range(rounds):
            try:
                packet, where = self._sock.recvfrom(_SNAP)
            except (BlockingIOError, InterruptedError):
                return done
            except OSError:
                continue  # the device went down: said once, by reporting it cleared
            self._count(parse_packet(where[1], packet))
        return rounds

    def _count(self, packet: Packet | None) -> None:
        if packet is None:
            self.unparsed += 1
            return
        if packet.housekeeping:
            return
        local = bool(packet.destination) and is_loopback(packet.destination, self._own)
        sport = 0 if local else packet.sport
        key = (packet.proto, packet.source, packet.destination, sport, packet.dport, local)
        count = self._counts.get(key)
        if count is not None:
            self._counts[key] = count + 1
        elif len(self._counts) < self._max_flows:
            self._counts[key] = 1
        else:
            self.overflow += 1

    def drops(self) -> int:
        """Packets the kernel could not queue since the census was opened. Above 0 it has not seen everything."""
        if self._sock.fileno() >= 0:
            _, drops = struct.unpack("=II", self._sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
            self._drops += drops  # reading resets the kernel's counter
        return self._drops

    def flows(self) -> Iterator[dict[str, object]]:
        """The flows so far: ``proto``, ``src``, ``dst``, ``sport``, ``dport``, ``n``, and ``loopback`` where it is
        true."""
        for (proto, source, destination, sport, dport, local), count in self._counts.items():
            flow: dict[str, object] = {
                "proto": proto, "src": source, "dst": destination, "sport": sport, "dport": dport, "n": count,
            }  # fmt: skip
            if local:
                flow["loopback"] = True
            yield flow

    def event(self) -> dict[str, object]:
        """The ``packets`` event: everything counted, after a last look."""
        while self.drain() == _ROUNDS:
            pass
        event: dict[str, object] = {"e": "packets", "flows": list(self.flows()), "drops": self.drops()}
        if self.overflow:
            event["overflow"] = self.overflow
        if self.unparsed:
            event["unparsed"] = self.unparsed
        return event

    def close(self) -> None:
        """Close the socket. Counts stay readable."""
        self.drops()
        self._sock.close()


# Classic BPF (Linux ``socket-filter``). A datagram packet socket shows the packet from its network header on.
_LD_W, _LD_B, _LDX_IHL, _LD_IND_B, _JEQ, _JSET, _AND, _RET = 0x20, 0x30, 0xB1, 0x50, 0x15, 0x45, 0x54, 0x06
_LD_H = 0x28
_AD_PROTOCOL = 0xFFFF_F000  # SKF_AD_OFF + SKF_AD_PROTOCOL
_SYN_ACK, _SYN = 0x12, 0x02


def _program() -> list[tuple[int, int, int, int]]:
    """Pass everything but those TCP segments that do not open a connection; cut what passes."""
    return [
        (_LD_W, 0, 0, _AD_PROTOCOL),
        (_JEQ, 0, 9, _ETH_P_IP),  # else 11
        (_LD_B, 0, 0, 9),
        (_JEQ, 0, 14, socket.IPPROTO_TCP),  # else pass
        (_LD_H, 0, 0, 6),
        (_JSET, 12, 0, 0x1FFF),  # a later fragment has no TCP header: pass, it is not normal
        (_LDX_IHL, 0, 0, 0),
        (_LD_IND_B, 0, 0, 13),
        (_AND, 0, 0, _SYN_ACK),
        (_JEQ, 8, 0, _SYN),
        (_RET, 0, 0, 0),
        (_JEQ, 0, 6, _ETH_P_IPV6),  # else pass
        (_LD_B, 0, 0, 6),
        (_JEQ, 0, 4, socket.IPPROTO_TCP),  # else pass: extension headers are looked at in Python
        (_LD_B, 0, 0, 53),
        (_AND, 0, 0, _SYN_ACK),
        (_JEQ, 1, 0, _SYN),
        (_RET, 0, 0, 0),
        (_RET, 0, 0, _SNAP),
    ]


def _attach(sock: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    held = ctypes.create_string_buffer(code, len(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(held)))
