"""What strangers say on the wire: DNS, HTTP, TLS ClientHello, NTP and datagram headers, parsed; and plausible answers
to them.

Every byte that is parsed here was chosen by an attacker. The parsers therefore hold a bounded amount of state, look at
each byte a bounded number of times, and answer malformed input with :class:`ProtocolError` or by giving up on structure
(the bytes themselves are recorded elsewhere, whole, whether or not they make sense). Nothing here does I/O.
"""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "ClientHello",
    "Datagram",
    "DnsQuery",
    "HttpRequest",
    "Names",
    "ProtocolError",
    "RequestReader",
    "client_hello",
    "dns_answer",
    "dns_query",
    "echo_from_ip4",
    "http_answer",
    "looks_like_http",
    "ntp_answer",
    "tls_alert",
    "udp_from_ip4",
    "udp_from_ip6",
]


class ProtocolError(ValueError):
    """The bytes are not what the protocol allows. The message says where."""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


# --- DNS (RFC 1035, 3596, 6891, 9460) ---------------------------------------------------------------------------------

_DNS_TYPES = {
    1: "A", 2: "NS", 5: "CNAME", 6: "SOA", 10: "NULL", 12: "PTR", 13: "HINFO", 15: "MX", 16: "TXT", 28: "AAAA",
    33: "SRV", 35: "NAPTR", 41: "OPT", 43: "DS", 48: "DNSKEY", 64: "SVCB", 65: "HTTPS", 251: "IXFR", 252: "AXFR",
    255: "ANY", 257: "CAA",
}  # fmt: skip


class DnsQuery(NamedTuple):
    """One question. ``name`` is text without the final dot; a dot or backslash inside a label is escaped, other
    bytes survive."""

    identifier: int
    flags: int
    name: str
    labels: tuple[bytes, ...]
    kind: int
    klass: int
    question: bytes
    edns: bool

    @property
    def type(self) -> str:
        """The mnemonic of the record type, ``TYPE1234`` when it has none (RFC 3597)."""
        return _DNS_TYPES.get(self.kind, f"TYPE{self.kind}")


def dns_query(message: bytes) -> DnsQuery:
    """The first question of a DNS message. Raises :class:`ProtocolError` when there is none or it is malformed.

    A question needs no compression, so a pointer in it is malformed: following one is how DNS parsers are made to loop.
    """
    if len(message) < 17:
        raise ProtocolError("DNS: shorter than a header and the smallest question")
    identifier, flags, questions, _, _, additional = struct.unpack_from("!6H", message)
    if flags & 0x8000:
        raise ProtocolError("DNS: a response, not a query")
    if not questions:
        raise ProtocolError("DNS: no question")
    labels = []
    position = 12
    while True:
        if position >= len(message):
            raise ProtocolError("DNS: the name runs out of the message")
        length = message[position]
        position += 1
        if not length:
            break
        if length > 63:
            raise ProtocolError("DNS: a compressed or extended label in a question")
        if position + length > len(message):
            raise ProtocolError("DNS: a label runs out of the message")
        labels.append(message[position : position + length])
        position += length
        if position - 12 > 254:
            raise ProtocolError("DNS: a name of more than 255 bytes")
    if position + 4 > len(message):
        raise ProtocolError("DNS: the question has no type")
    kind, klass = struct.unpack_from("!HH", message, position)
    position += 4
    # An OPT record stands directly behind the question in practice: root name, type 41.
    edns = bool(additional) and questions == 1 and message[position : position + 3] == b"\0\0\x29"
    name = ".".join(_text(label).replace("\\", "\\\\").replace(".", "\\.") for label in labels)
    return DnsQuery(identifier, flags, name, tuple(labels), kind, klass, message[12:position], edns)


def _wire_name(name: str) -> bytes:
    """A plain (unescaped, ASCII) name on the wire."""
    return (
        b"".join(bytes((len(label),)) + label for label in name.encode("ascii", "replace").split(b".") if label) + b"\0"
    )


class Names:
    """The name service of one world: each name gets an address of its own, each address leads back to its name.

    Addresses are a function of the name alone (so that two runs of the same code see the same addresses), except where
    two names collide. IPv4 addresses come from 198.18.0.0/15 (RFC 2544), IPv6 addresses from 2001:db8::/32 (RFC 3849):
    neither exists on the Internet. After ``most`` names every new one shares a single address and ``overflowed`` is
    set.
    """

    _IP4 = 0xC612_0000
    _IP6 = 0x2001_0DB8_0007 << 80

    def __init__(self, fixed: Mapping[str, tuple[str, ...]] | None = None, most: int = 65_536) -> None:
        self._most = min(most, (1 << 17) - 1024)
        self._slots: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._fixed: dict[str, tuple[str, ...]] = {"localhost": ("127.0.0.1", "::1")}
        self._fixed.update({name.lower().rstrip("."): addresses for name, addresses in (fixed or {}).items()})
        self._reverse: dict[str, str] = {}
        self.overflowed = False
        for name, addresses in self._fixed.items():
            for address in addresses:
                self._reverse.setdefault(address, name)

    def addresses(self, name: str) -> tuple[str, ...]:
        """The IPv4 and then the IPv6 address of a name (a fixed name may have only some). Names are compared
        without case."""
        key = name.lower().rstrip(".")
        if key in self._fixed:
            return self._fixed[key]
        slot = self._slots.get(key)
        if slot is None:
            slot = self._allocate(key)
        return (
            socket.inet_ntop(socket.AF_INET, (self._IP4 + slot).to_bytes(4, "big")),
            socket.inet_ntop(socket.AF_INET6, (self._IP6 + slot).to_bytes(16, "big")),
        )

    def _allocate(self, key: str) -> int:
        if len(self._slots) >= self._most:
            self.overflowed = True
            return 255
        # The first and last 256 addresses are left out: they look like network and broadcast addresses, and 255 is
        # the shared one.
        span = (1 << 17) - 512
        slot = int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()[:8], "big") % span
        while slot + 256 in self._names:
            slot = (slot + 1) % span
        self._slots[key] = slot + 256
        self._names[slot + 256] = key
        return slot + 256

    def name_of(self, address: str) -> str | None:
        """The name an address was given out for, if any. ``address`` is in the form :mod:`ipaddress` would print."""
        if address in self._reverse:
            return self._reverse[address]
        try:
            if ":" in address:
                slot = int.from_bytes(socket.inet_pton(socket.AF_INET6, address), "big") - self._IP6
            else:
                slot = int.from_bytes(socket.inet_pton(socket.AF_INET, address), "big") - self._IP4
        except (OSError, ValueError):
            return None
        return self._names.get(slot)


def _reverse_lookup(query: DnsQuery, names: Names) -> str:
    labels = [_text(label).lower() for label in query.labels]
    address = ""
    if labels[-2:] == ["in-addr", "arpa"] and len(labels) == 6:
        address = ".".join(reversed(labels[:4]))
    elif labels[-2:] == ["ip6", "arpa"] and len(labels) == 34:
        digits = "".join(reversed(labels[:32]))
        try:
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
        except ValueError:
            pass
    known = names.name_of(address) if address else None
    if known and known.isascii() and all(0 < len(part) <= 63 for part in known.split(".")):
        return known
    return "host.invalid"


def dns_answer(query: DnsQuery, names: Names) -> bytes:
    """A NOERROR answer: every name exists, has the addresses :class:`Names` gives it, a mail exchanger and a text
    record.

    Types without a plausible value (HTTPS, CNAME, NULL …) are answered with no record, which makes clients fall back to
    A and AAAA.
    """
    records: list[tuple[int, bytes]] = []
    addresses = names.addresses(query.name) if query.kind in (1, 28, 255) else ()
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        kind = 28 if family == socket.AF_INET6 else 1
        if query.kind in (kind, 255):
            records.append((kind, socket.inet_pton(family, address)))
    if query.kind == 15:
        records.append((15, b"\0\x0a\x04mail\xc0\x0c" if len(query.question) < 250 else b"\0\x0a\xc0\x0c"))
    elif query.kind == 16:
        text = b"v=spf1 -all"
        records.append((16, bytes((len(text),)) + text))
    elif query.kind == 33:
        # _service._proto.host: the service runs on the host itself.
        host = b".".join(label for label in query.labels if not label.startswith(b"_"))
        records.append(
            (33, struct.pack("!HHH", 0, 0, 443) + _wire_name(_text(host).encode("ascii", "replace").decode()))
        )
    elif query.kind == 12:
        records.append((12, _wire_name(_reverse_lookup(query, names))))
    elif query.kind == 2:
        records.append((2, b"\x03ns1\xc0\x0c" if len(query.question) < 250 else b"\xc0\x0c"))
    elif query.kind == 6:
        records.append((6, b"\xc0\x0c\xc0\x0c" + struct.pack("!5I", 1, 7200, 3600, 1_209_600, 300)))
    flags = 0x8080 | (query.flags & 0x7900)  # response, recursion available; opcode and recursion desired are echoed
    out = [struct.pack("!6H", query.identifier, flags, 1, len(records), 0, int(query.edns)), query.question]
    for kind, data in records:
        out.append(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(data)) + data)
    if query.edns:
        out.append(b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0))
    return b"".join(out)


# --- HTTP/1 (RFC 9110, 9112) ------------------------------------------------------------------------------------------

_REQUEST_START = re.compile(rb"[A-Z][A-Z_-]{0,23}(?: |\Z)")
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z_-]{0,23}) +(\S{1,65536})(?: +HTTP/\d\.\d)? *")
_HEAD_END = re.compile(rb"\n\r?\n")
_MOST_HEAD = 65_536
_MOST_HEADERS = 64
_MOST_VALUE = 1_024


def looks_like_http(first: bytes) -> bool:
    """Whether bytes at the start of a stream may be (the beginning of) an HTTP/1 request line."""
    return bool(first) and _REQUEST_START.match(first[:25]) is not None and not first.startswith(b"PRI * HTTP/2")


class HttpRequest(NamedTuple):
    """One request head. Header names are lower case; what is too long is cut, repeated headers are joined with a
    comma."""

    method: str
    path: str
    host: str
    headers: dict[str, str]
    length: int | None
    """Announced body length in bytes; None for a chunked body."""
    closes: bool
    expects_continue: bool
    upgrade: str


class RequestReader:
    """Splits the client's half of an HTTP/1 connection into requests, however the bytes are cut.

    :meth:`feed` yields ``("head", HttpRequest)``, ``("body", bytes)`` with transfer coding removed, and ``("end", body
    length)``. After CONNECT, an upgrade that was granted, or bytes that are not HTTP, the reader stops and
    :attr:`opaque` is True: what follows is yielded as ``("rest", bytes)``. At most 64 KiB of an unfinished head are
    held.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._state = "head"
        self._left = 0
        self._length = 0
        self.opaque = False

    @property
    def between(self) -> bool:
        """Whether the stream stands exactly between two requests."""
        return self._state == "head" and not self._buffer

    def feed(self, data: bytes) -> Iterator[tuple[str, HttpRequest | bytes | int]]:
        """Take the next bytes of the stream; the iterator must be exhausted before the next call."""
        self._buffer += data
        while self._buffer or self._state == "done":
            if self.opaque:
                yield "rest", self._take(len(self._buffer))
                return
            if self._state == "head":
                head = self._take_head()
                if head is None:
                    return
                if not head.strip():
                    continue  # RFC 9112 2.2: empty lines before a request line are ignored
                request = _request_head(head)
                if request is None:
                    self.opaque = True
                    yield "rest", head
                    continue
                self._length = 0
                self._left = request.length or 0
                self._state = "chunk" if request.length is None else "body" if request.length else "done"
                if request.method == "CONNECT":
                    self.opaque, self._state = True, "head"
                yield "head", request
            elif self._state in ("body", "data"):
                piece = self._take(min(self._left, len(self._buffer)))
                self._left -= len(piece)
                self._length += len(piece)
                if not self._left:
                    self._state = "done" if self._state == "body" else "data-end"
                yield "body", piece
            elif self._state == "done":
                self._state = "head"
                yield "end", self._length
            else:
                line = self._take_line()
                if line is None:
                    return
                self._chunk_line(line)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._scanned = 0
        return taken

    def _take_head(self) -> bytes | None:
        """A complete head, or all there is when it can be none, or None when more bytes are needed."""
        # Only new bytes are searched: a head that drips in byte by byte costs no more than one that comes at once.
        start = max(0, self._scanned - 3)
        if self._buffer.startswith((b"\r\n", b"\n")):
            return self._take(2 if self._buffer.startswith(b"\r") else 1)
        end = _HEAD_END.search(self._buffer, start)
        if end is not None:
            return self._take(end.end())
        self._scanned = len(self._buffer)
        hopeful = looks_like_http(bytes(self._buffer[:32])) or self._buffer == b"\r"
        return None if hopeful and len(self._buffer) <= _MOST_HEAD else self._take(len(self._buffer))

    def _take_line(self) -> bytes | None:
        at = self._buffer.find(b"\n", self._scanned)
        if at < 0:
            self._scanned = len(self._buffer)
            if len(self._buffer) > _MOST_HEAD:
                self.opaque = True
                return b""
            return None
        return self._take(at + 1)

    def _chunk_line(self, line: bytes) -> None:
        if self.opaque:
            return
        text = line.strip()
        if self._state == "data-end":
            self._state = "chunk"
            if text:
                self.opaque = True
        elif self._state == "chunk":
            size = text.partition(b";")[0].strip()
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", size):
                self.opaque = True
                return
            self._left = int(size, 16)
            self._state = "data" if self._left else "trailer"
        elif not text:  # the empty line behind the trailer
            self._state = "done"


def _request_head(head: bytes) -> HttpRequest | None:
    lines = head.split(b"\n")
    match = _REQUEST_LINE.fullmatch(lines[0].rstrip(b"\r"))
    if match is None:
        return None
    headers: dict[str, str] = {}
    lengths: set[bytes] = set()
    chunked = False
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon:
            continue
        key, value = _text(name.strip().lower())[:128], value.strip()
        if key == "content-length":
            lengths.update(part.strip() for part in value.split(b","))
        elif key == "transfer-encoding":
            chunked = chunked or value.lower().endswith(b"chunked")
        if key in headers:
            headers[key] = f"{headers[key]}, {_text(value)}"[:_MOST_VALUE]
        elif len(headers) < _MOST_HEADERS:
            headers[key] = _text(value)[:_MOST_VALUE]
    length: int | None = None
    if not chunked:
        if len(lengths) > 1 or any(re.fullmatch(rb"\d{1,15}", value) is None for value in lengths):
            return None  # ambiguous framing: treated as bytes, not guessed
        length = int(lengths.pop()) if lengths else 0
    connection = headers.get("connection", "").lower()
    return HttpRequest(
        method=_text(match[1]),
        path=_text(match[2])[:4096],
        host=headers.get("host", ""),
        headers=headers,
        length=length,
        closes="close" in connection or (b"HTTP/1.0" in lines[0] and "keep-alive" not in connection),
        expects_continue=headers.get("expect", "").lower() == "100-continue",
        upgrade=headers.get("upgrade", "") if "upgrade" in connection else "",
    )


def http_answer(request: HttpRequest) -> bytes:
    """A small, successful answer in the kind of content the client says it accepts; 503 to a protocol upgrade.

    The answer to CONNECT is the start of the tunnel.
    """
    if request.method == "CONNECT":
        return b"HTTP/1.1 200 Connection established\r\n\r\n"
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    if request.upgrade and request.upgrade.lower() not in ("h2c",):
        head = f"HTTP/1.1 503 Service Unavailable\r\nDate: {date}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        return head.encode()
    accept = request.headers.get("accept", "").lower()
    if "json" in accept or not accept or accept.startswith("*/*"):
        kind, body = "application/json", b"{}"
    elif "html" in accept:
        kind, body = (
            "text/html; charset=utf-8",
            b"<!DOCTYPE html><html><head><title>OK</title></head><body>OK</body></html>\n",
        )
    else:
        kind, body = "text/plain; charset=utf-8", b"OK\n"
    connection = "close" if request.closes else "keep-alive"
    head = (
        f"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: {date}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: {connection}\r\n\r\n"
    )
    return head.encode() + (b"" if request.method == "HEAD" else body)


# --- TLS (RFC 8446, 6066, 7301) ---------------------------------------------------------------------------------------

_MOST_HELLO = 65_536
_MOST_RECORDS = 32  # real clients use one or two; a byte a record would make each parse slow
_TLS_VERSIONS = {0x0300: "SSL 3.0", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", 0x0304: "TLS 1.3"}


class ClientHello(NamedTuple):
    """What a TLS client says in the clear: server name (empty: none), application protocols, best version,
    encrypted hello or not."""

    sni: str
    alpn: tuple[str, ...]
    version: str
    ech: bool


def client_hello(data: bytes) -> ClientHello | None:
    """Parse a ClientHello from the first bytes of a stream; None while it is incomplete.

    Raises :class:`ProtocolError` when the bytes cannot become one, or when it is longer than 64 KiB.
    """
    message = bytearray()
    position = 0
    for _ in range(_MOST_RECORDS + 1):
        if len(message) >= 4:
            if message[0] != 1:
                raise ProtocolError("TLS: the first handshake message is no ClientHello")
            length = int.from_bytes(message[1:4], "big")
            if length > _MOST_HELLO:
                raise ProtocolError("TLS: a ClientHello of more than 64 KiB")
            if len(message) >= 4 + length:
                return _hello_body(bytes(message[4 : 4 + length]))
        header = data[position : position + 5]
        if header[:1] not in (b"", b"\x16") or header[1:2] not in (b"", b"\x03"):
            raise ProtocolError("TLS: not a handshake record")
        if len(header) < 5:
            break
        size = int.from_bytes(header[3:5], "big")
        if not 0 < size <= 16_640:
            raise ProtocolError("TLS: a record of impossible length")
        # A record is used as far as it has come: the message inside tells how much is still missing.
        message += data[position + 5 : position + 5 + size]
        position += 5 + size
        if position > len(data):
            if len(message) >= 4 and message[0] != 1:
                raise ProtocolError("TLS: the first handshake message is no ClientHello")
            break
    else:
        raise ProtocolError("TLS: a ClientHello cut into too many records")
    return None


class _Cursor:
    """Length-prefixed fields of a byte string; running out of bytes is a :class:`ProtocolError`."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        piece = self.data[self.position : self.position + count]
        if len(piece) < count:
            raise ProtocolError("TLS: a field runs out of the ClientHello")
        self.position += count
        return piece

    def vector(self, width: int) -> bytes:
        return self.take(int.from_bytes(self.take(width), "big"))

    def more(self) -> bool:
        return self.position < len(self.data)


def _hello_body(body: bytes) -> ClientHello:
    cursor = _Cursor(body)
    best = int.from_bytes(cursor.take(2), "big")
    cursor.take(32)
    cursor.vector(1)
    cursor.vector(2)
    cursor.vector(1)
    sni, ech = "", False
    alpn: list[str] = []
    extensions = _Cursor(cursor.vector(2) if cursor.more() else b"")
    while extensions.more():
        kind = int.from_bytes(extensions.take(2), "big")
        content = _Cursor(extensions.vector(2))
        if kind == 0 and content.more():
            names = _Cursor(content.vector(2))
            while names.more():
                sort, name = names.take(1), names.vector(2)
                if sort == b"\0" and not sni:
                    sni = _text(name)[:255]
        elif kind == 16:
            protocols = _Cursor(content.vector(2))
            while protocols.more() and len(alpn) < 32:
                alpn.append(_text(protocols.vector(1)))
        elif kind == 43:
            versions = content.vector(1)
            offered = [int.from_bytes(versions[i : i + 2], "big") for i in range(0, len(versions) - 1, 2)]
            best = max((v for v in offered if v in _TLS_VERSIONS), default=best)
        elif kind == 0xFE0D:
            ech = True
    return ClientHello(sni, tuple(alpn), _TLS_VERSIONS.get(best, f"0x{best:04x}"), ech)


def tls_alert(description: int = 40) -> bytes:
    """A fatal alert record in the clear; 40 is handshake_failure."""
    return bytes((21, 3, 3, 0, 2, 2, description))


# --- NTP (RFC 5905) ---------------------------------------------------------------------------------------------------

_NTP_EPOCH = 2_208_988_800  # seconds from 1900 to 1970


def ntp_answer(request: bytes, now: float) -> bytes | None:
    """The answer of a stratum 2 server whose clock is ``now`` (seconds since 1970); None when it is no client
    request."""
    if len(request) < 48 or request[0] & 7 != 3:
        return None
    stamp = int((now + _NTP_EPOCH) * (1 << 32)) & 0xFFFF_FFFF_FFFF_FFFF
    reference = stamp - (17 << 32)
    first = request[0] & 0x38 | 4
    return struct.pack(
        "!BBbbIIIQ8sQQ",
        first,
        2,
        6,
        -23,
        0x0000_0A00,
        0x0000_0B00,
        0xC633_6401,
        reference,
        request[40:48],
        stamp,
        stamp,
    )


# --- IP datagrams, as raw sockets deliver them (raw(7), RFC 791, 768, 792) --------------------------------------------


class Datagram(NamedTuple):
    """A datagram with its addresses as text; the ports of an ICMP message are 0."""

    source: str
    sport: int
    destination: str
    dport: int
    payload: bytes


def _ip4(packet: bytes) -> tuple[str, str, bytes]:
    if len(packet) < 20 or packet[0] >> 4 != 4:
        raise ProtocolError("IPv4: no header")
    length = (packet[0] & 15) * 4
    if length < 20 or len(packet) < length:
        raise ProtocolError("IPv4: an impossible header length")
    return (
        socket.inet_ntop(socket.AF_INET, packet[12:16]),
        socket.inet_ntop(socket.AF_INET, packet[16:20]),
        packet[length:],
    )


def udp_from_ip4(packet: bytes) -> Datagram:
    """A UDP datagram from an IPv4 packet with header. Raises :class:`ProtocolError`."""
    source, destination, rest = _ip4(packet)
    return udp_from_ip6(rest, source, destination)


def udp_from_ip6(segment: bytes, source: str, destination: str) -> Datagram:
    """A UDP datagram from its own header on, as a raw IPv6 socket delivers it. Raises :class:`ProtocolError`.

    The length field is not believed: with segmentation offload the kernel delivers one header and many datagrams' worth
    of bytes.
    """
    if len(segment) < 8:
        raise ProtocolError("UDP: no header")
    sport, dport = struct.unpack_from("!HH", segment)
    return Datagram(source, sport, destination, dport, segment[8:])


def echo_from_ip4(packet: bytes) -> Datagram:
    """An ICMP message from an IPv4 packet with header: the payload is the message from its type on. Raises
    :class:`ProtocolError`."""
    source, destination, rest = _ip4(packet)
    if len(rest) < 8:
        raise ProtocolError("ICMP: no header")
    return Datagram(source, 0, destination, 0, rest)
