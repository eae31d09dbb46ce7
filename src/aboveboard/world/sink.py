"""The other end of every connection: it accepts all, believes nothing, keeps everything.

In a world every address is local (:mod:`.netlink`) and the supervisor tells the sink of each destination before the
call that goes there continues (:meth:`Sink.expect`). The sink then owns that address and port. For TCP it is the peer,
so that back-pressure makes its transcript complete whatever system call the bytes came from; datagrams are read from
raw sockets, which see each one once, however it was sent and whether or not its destination was announced.

There is no loop, no thread and no clock in here: the caller owns an ``epoll`` object and passes two functions that add
and remove descriptors, calls :meth:`Sink.tick` now and then, and :meth:`Sink.drain` and :meth:`Sink.close` at the end.
Nothing ever blocks.
"""

from __future__ import annotations

import errno
import hashlib
import os
import select
import socket
import struct
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from .certificates import CertificateAuthority, shared_authority
from .connections import ROUNDS, Endpoint, Relay, ServiceAddress, Stream
from .netlink import is_loopback, normal_address
from .protocols import (
    Datagram,
    Names,
    ProtocolError,
    dns_answer,
    dns_query,
    echo_from_ip4,
    ntp_answer,
    udp_from_ip4,
    udp_from_ip6,
)
from .transcript import Event, Payloads, Transcript

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .protocols import DnsQuery
    from .transcript import Hit, Scanner

__all__ = ["ServiceAddress", "Sink"]

_CHUNK = 262_144
_MOST_FOLDED = 1_024
_MOST_DATAGRAM_FLOWS = 4_096
_MOST_ZONE_BYTES = 4 << 20
_DATAGRAM_IDLE = 1.0

_IN = select.EPOLLIN

# From the kernel's headers; the socket module does not have them.
_IPV6_FREEBIND = 78
_SO_ATTACH_FILTER = 26
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8
_SOL_RAW = 255
_ICMP_FILTER = 1
_ICMP6_FILTER = 1
_ECHO_REQUEST, _ECHO_REQUEST6 = 8, 128


class _Raw:
    """A raw socket and what it delivers."""

    def __init__(self, sock: socket.socket, protocol: int, handle: Callable[[Datagram], None]) -> None:
        self.sock = sock
        self.handle = handle
        self._protocol = protocol

    def read(self) -> Datagram:
        """The next datagram. Raises :class:`OSError`, :class:`BlockingIOError` when there is none,
        :class:`ProtocolError`."""
        if self.sock.family == socket.AF_INET:
            packet = self.sock.recv(_CHUNK)
            return udp_from_ip4(packet) if self._protocol == socket.IPPROTO_UDP else echo_from_ip4(packet)
        # IPv6 raw sockets keep the IP header to themselves; the destination comes beside the data.
        data, ancillary, _, (source, *_) = self.sock.recvmsg(_CHUNK, 64)
        source = source.partition("%")[0]
        for level, kind, value in ancillary:
            if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and len(value) >= 16:
                destination = socket.inet_ntop(socket.AF_INET6, value[:16])
                if self._protocol == socket.IPPROTO_UDP:
                    return udp_from_ip6(data, source, destination)
                return Datagram(source, 0, destination, 0, data)
        raise ProtocolError("IPv6: a datagram without its destination")


class _DatagramFlow:
    """The datagrams one source sent to one destination, in order."""

    def __init__(self, proto: str, transcript: Transcript, cause: Mapping[str, object]) -> None:
        self.proto = proto
        self.transcript = transcript
        self.cause = cause
        self.count = 0
        self.touched = 0.0


class _Fold:
    """Flows to one destination beyond the number that is told one by one."""

    def __init__(self) -> None:
        self.count = 0
        self.length = 0
        self.digest = hashlib.sha256()
        self.canaries: list[object] = []
        self.cutoff = False


class Sink:
    """The network peer of one world.

    ``report`` takes each finished event (``flow`` and ``limit``, see ``docs/reference/evidence.md``) without its common
    fields, except those in the ``cause`` given to :meth:`expect`. ``register(fd, mask, callback)`` and
    ``unregister(fd)`` add and remove descriptors of the caller's epoll; ``callback(mask)`` is to be called when one is
    ready; a descriptor is never registered twice. ``own`` are the world's own addresses (:class:`~.netlink.Loopback`),
    ``dial`` opens a stream socket to a service's upstream, ``scanner`` makes a canary scanner for a new stream,
    ``scan_names`` searches the DNS names asked for below one domain, ``intercept`` says whether TLS is terminated,
    ``proc`` where the caller's own procfs is reached.
    Bytes: ``payload_bytes`` for all payload files, ``flow_bytes`` for each.

    Reaching ``max_listeners``, ``max_connections`` or ``max_flows`` loses no payload: old listeners are closed, the
    longest silent connection is ended (and marked ``cutoff``), further flows are told in sum.
    """

    def __init__(
        self,
        report: Callable[[Event], None],
        *,
        payload_dir_fd: int,
        register: Callable[[int, int, Callable[[int], object]], None],
        unregister: Callable[[int], None],
        own: frozenset[str] = frozenset(),
        ipv6: bool = True,
        services: Sequence[ServiceAddress] = (),
        dial: Callable[[ServiceAddress], socket.socket] | None = None,
        names: Names | None = None,
        scanner: Callable[[], Scanner] | None = None,
        scan_names: Callable[[Sequence[str]], Iterable[Hit]] | None = None,
        intercept: bool = True,
        payload_bytes: int = 64 << 20,
        flow_bytes: int = 64 << 20,
        max_listeners: int = 512,
        max_connections: int = 384,
        max_flows: int = 20_000,
        now: Callable[[], float] = time.monotonic,
        proc: str = "/proc",
    ) -> None:
        self._proc = proc
        self.register = register
        self.unregister = unregister
        self.names = names if names is not None else Names()
        self.intercept = intercept
        self.now = now
        self.buffer = bytearray(_CHUNK)
        self._report = report
        self._own = own
        self._ipv6 = ipv6
        self._services = tuple(services)
        self._dial = dial
        self._scanner = scanner
        self._scan_names = scan_names
        self._payloads = Payloads(payload_dir_fd, payload_bytes, flow_bytes, self._limit)
        self._max_listeners = max_listeners
        self._max_connections = max_connections
        self._max_flows = max_flows
        self._endpoints: OrderedDict[tuple[int, str, int], Endpoint] = OrderedDict()
        self._service_endpoints: dict[tuple[int, str, int], Endpoint] = {}
        self._connections: dict[Stream | Relay, None] = {}
        self._datagrams: OrderedDict[tuple[str, str, int, str, int], _DatagramFlow] = OrderedDict()
        self._raw: list[_Raw] = []
        self._limits: set[str] = set()
        self._taken: set[tuple[int, str, int]] = set()
        self._told = 0
        self._folded: dict[tuple[str, str, int], _Fold] = {}
        self._zones: dict[bytes, list[str]] = {}
        self._zone_bytes = 0
        self._authority: CertificateAuthority | None = None
        self._contexts: OrderedDict[tuple[str, str], ssl.SSLContext] = OrderedDict()
        self._paused = False
        self._lost = 0

    # --- set-up ---

    def start(self) -> None:
        """Open the raw sockets and the listeners of the services. Raises :class:`OSError` naming what could not be
        opened."""
        self._open_raw(socket.AF_INET, socket.IPPROTO_UDP, self._udp)
        self._open_raw(socket.AF_INET, socket.IPPROTO_ICMP, self._icmp)
        if self._ipv6:
            self._open_raw(socket.AF_INET6, socket.IPPROTO_UDP, self._udp)
            self._open_raw(socket.AF_INET6, socket.IPPROTO_ICMPV6, self._icmp)
        for service in self._services:
            for address in self.service_addresses(service):
                if service.upstream == f"inside:{service.port}" and is_loopback(address, self._own):
                    continue  # the service itself listens there
                endpoint = self._open(socket.SOCK_STREAM, address, service.port)
                endpoint.service = service
                self._service_endpoints[socket.SOCK_STREAM, address, service.port] = endpoint
                self._watch(endpoint)

    def service_addresses(self, service: ServiceAddress) -> tuple[str, ...]:
        """The addresses at which a service is reached: its own if it is an address, else those its name resolves to."""
        try:
            return (normal_address(service.host)[1],)
        except ValueError:
            addresses = self.names.addresses(service.host)
            return addresses if self._ipv6 else tuple(address for address in addresses if ":" not in address)

    def ca_pem(self) -> bytes:
        """The certificate that clients must trust for their TLS to be read; empty without interception."""
        if not self.intercept:
            return b""
        if self._authority is None:
            self._authority = shared_authority()
        return self._authority.pem()

    def _open_raw(self, family: int, protocol: int, handle: Callable[[Datagram], None]) -> None:
        kind = "IPv4" if family == socket.AF_INET else "IPv6"
        try:
            sock = socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the network sink cannot open a raw {kind} socket: {error.strerror}; it needs CAP_NET_RAW in the "
                "world's user namespace, `aboveboard doctor` shows what withholds it",
            ) from None
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)  # the kernel cuts this to net.core.rmem_max
        if family == socket.AF_INET:
            _attach_filter(sock, _not_loopback4())
            if protocol == socket.IPPROTO_ICMP:
                sock.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("=I", ~(1 << _ECHO_REQUEST) & 0xFFFFFFFF))
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            if protocol == socket.IPPROTO_ICMPV6:
                words = [0xFFFFFFFF] * 8
                words[_ECHO_REQUEST6 >> 5] &= ~(1 << (_ECHO_REQUEST6 & 31))
                sock.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("=8I", *words))
            else:
                _attach_filter(sock, _not_loopback6())
        raw = _Raw(sock, protocol, handle)
        self._raw.append(raw)
        self.register(sock.fileno(), _IN, lambda _: self._read_raw(raw, 256))

    # --- destinations ---

    def expect(self, family: int, kind: int, address: str, port: int, cause: Mapping[str, object] | None = None) -> str:
        """Be there for what is about to be sent to (``address``, ``port``); to be called before the trapped call
        continues.

        ``kind`` is the socket's type (flags are ignored), ``cause`` the common event fields (``p``, ``c``, ``f``) of
        who sends; it is put on flows to this destination. Returns ``"sink"`` (it will be received), ``"loopback"`` (the
        world talks to itself), ``"taken"`` (a socket of the candidate's owns the address: the bytes never leave, and
        the sink will not see them) or ``"invalid"`` (no such destination; the call will fail by itself).
        """
        if family not in (socket.AF_INET, socket.AF_INET6):
            return "invalid"
        kind &= 0xF
        try:
            _, text = normal_address(address)
        except ValueError:
            return "invalid"
        if (
            kind not in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
            or not 0 < port < 65_536
            or (":" in text and not self._ipv6)
        ):
            return "invalid"
        key = (kind, text, port)
        endpoint = self._service_endpoints.get(key)
        if endpoint is None and is_loopback(text, self._own):
            return "loopback"
        endpoint = endpoint or self._endpoints.get(key)
        if endpoint is None:
            while len(self._endpoints) >= self._max_listeners:
                self._limit(
                    "listeners", f"more than {self._max_listeners} destinations: the oldest listeners were closed"
                )
                self._release(next(iter(self._endpoints)))
            try:
                endpoint = self._open(kind, text, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    self._limit("listeners", str(error))
                    return "invalid" if error.errno in (errno.EADDRNOTAVAIL, errno.EINVAL) else "taken"
                if key not in self._taken and len(self._taken) < 64:
                    self._taken.add(key)
                    where = f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
                    self._report(
                        {"e": "limit", "what": "payload", "d": f"{where} belongs to a socket of the candidate"}
                    )
                return "taken"
            self._endpoints[key] = endpoint
            self._watch(endpoint)
        elif key in self._endpoints:
            self._endpoints.move_to_end(key)
        endpoint.cause = dict(cause or {})
        return "sink"

    def make_room(self, kind: int, port: int) -> None:
        """Give up the sink's own claims to a port that the candidate is about to bind as a server, as it could on a
        real machine."""
        for key in [key for key in self._endpoints if key[0] == kind & 0xF and key[2] == port]:
            self._release(key)

    def name_of(self, address: str) -> str | None:
        """The DNS name an address was given out for in this world."""
        try:
            return self.names.name_of(normal_address(address)[1])
        except ValueError:
            return None

    def _open(self, kind: int, address: str, port: int) -> Endpoint:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            target: tuple[str, int] | tuple[str, int, int, int] = (address, port)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # The address is routed here but assigned to no device, which IPv6 otherwise insists on.
                sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
                packed = socket.inet_pton(family, address)
                scoped = packed[0] == 0xFF or (packed[0] == 0xFE and packed[1] & 0xC0 == 0x80)
                target = (address, port, 0, 1 if scoped else 0)
            if kind == socket.SOCK_STREAM:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            else:
                # Never read: it only exists so that the sender is not told "connection refused", and to answer from.
                # The raw socket is the one reader, so that each datagram is seen once.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            sock.bind(target)
            if kind == socket.SOCK_STREAM:
                sock.listen(1024)
            else:
                _join_group(sock, family, address)
        except OSError as error:
            sock.close()
            raise OSError(
                error.errno, f"the network sink cannot listen on {address} port {port}: {error.strerror}"
            ) from None
        return Endpoint(sock, kind, address, port)

    def _watch(self, endpoint: Endpoint) -> None:
        if endpoint.kind == socket.SOCK_STREAM and not endpoint.watched and not self._paused:
            endpoint.watched = True
            self.register(endpoint.sock.fileno(), _IN, lambda _: self._accept(endpoint, 64))

    def _unwatch(self, endpoint: Endpoint) -> None:
        if endpoint.watched:
            endpoint.watched = False
            self.unregister(endpoint.sock.fileno())

    def _release(self, key: tuple[int, str, int]) -> None:
        endpoint = self._endpoints[key]
        if endpoint.kind == socket.SOCK_STREAM:
            while self._accept(endpoint, 64):
                pass
        else:
            self._drain_raw()  # replies of ours still queued there are recognised by the endpoint they came from
        self._unwatch(endpoint)
        endpoint.sock.close()
        self._endpoints.pop(key, None)

    # --- TCP ---

    def _accept(self, endpoint: Endpoint, rounds: int) -> bool:
        accepted = False
        for _ in range(rounds):
            if len(self._connections) >= self._max_connections and not self._make_place():
                self._pause()
                return False
            try:
                sock, source = endpoint.sock.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._limit("connections", f"a connection cannot be accepted: {error.strerror}")
                    if not self._make_place():
                        self._pause()
                        return False
                    continue
                break
            accepted = True
            peer = (normal_address(source[0])[1], int(source[1]))
            connection: Stream | Relay
            if endpoint.service is not None:
                connection = Relay(self, sock, peer, endpoint, endpoint.service)
            else:
                connection = Stream(self, sock, peer, endpoint)
            self._connections[connection] = None
            connection.begin()
        return accepted

    def _make_place(self) -> bool:
        """End the connection that has been silent longest, if that is a second or more."""
        self._limit(
            "connections", f"more than {self._max_connections} connections at once: the most silent ones were ended"
        )
        oldest = min(self._connections, key=lambda connection: connection.touched, default=None)
        if oldest is None or self.now() - oldest.touched < 1.0:
            return False
        oldest.pump(ROUNDS)
        if oldest in self._connections:
            oldest.close(True)
        return True

    def _pause(self) -> None:
        """Leave new connections in the kernel's queues, where they lose nothing, until there is room."""
        self._paused = True
        for endpoint in (*self._endpoints.values(), *self._service_endpoints.values()):
            self._unwatch(endpoint)

    def _resume(self) -> None:
        self._paused = False
        for endpoint in (*self._endpoints.values(), *self._service_endpoints.values()):
            self._watch(endpoint)

    def ended(self, connection: Stream | Relay, event: Event) -> None:
        """A connection has closed: tell it and forget it."""
        self._connections.pop(connection, None)
        self._tell(event)
        if self._paused and len(self._connections) < self._max_connections:
            self._resume()

    def dial(self, service: ServiceAddress) -> socket.socket:
        """A stream socket to the upstream of a service. Raises :class:`OSError`."""
        if self._dial is None:
            raise OSError(errno.ECONNREFUSED, "no way to reach services was given")
        return self._dial(service)

    def tls_context(self, name: str, address: str) -> ssl.SSLContext | None:
        """A server context for a client that asked for ``name`` (may be empty) at ``address``."""
        import ssl

        key = (name, address)
        context = self._contexts.get(key)
        if context is None:
            if self._authority is None:
                self._authority = CertificateAuthority()
            names = [part for part in (name, address, self.name_of(address)) if part]
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(["http/1.1", "http/1.0"])
            # The only interface that takes a certificate takes a path.
            fd = os.memfd_create("leaf", os.MFD_CLOEXEC)
            try:
                os.write(fd, self._authority.leaf(*dict.fromkeys(names)))
                context.load_cert_chain(f"{self._proc}/self/fd/{fd}")
            finally:
                os.close(fd)
            while len(self._contexts) >= 64:
                self._contexts.popitem(last=False)
            self._contexts[key] = context
        return context

    # --- datagrams ---

    def _read_raw(self, raw: _Raw, rounds: int) -> bool:
        """Take up to ``rounds`` datagrams from a raw socket; say whether there was any."""
        for done in range(rounds):
            try:
                datagram = raw.read()
            except (BlockingIOError, InterruptedError):
                return done > 0
            except (OSError, ProtocolError):
                continue  # an error queued for the socket, cleared by reporting it; a header the kernel did not build
            raw.handle(datagram)
        return True

    def _drain_raw(self) -> bool:
        moved = False
        for raw in self._raw:
            moved = self._read_raw(raw, 65_536) or moved
        return moved

    def _icmp(self, datagram: Datagram) -> None:
        self._keep_datagram("icmp", datagram)

    def _udp(self, datagram: Datagram) -> None:
        if (socket.SOCK_DGRAM, datagram.source, datagram.sport) in self._endpoints:
            return  # our own answer: nobody else can have that address and port while we do
        endpoint = self._endpoints.get((socket.SOCK_DGRAM, datagram.destination, datagram.dport))
        cause = endpoint.cause if endpoint is not None else {}
        reply: bytes | None = None
        if datagram.dport == 53:
            source = (datagram.source, datagram.sport)
            reply = self.dns(datagram.payload, datagram.destination, 53, source, cause)
            if reply is None:
                self._keep_datagram("udp", datagram, cause)
        else:
            self._keep_datagram("udp", datagram, cause)
            if datagram.dport == 123:
                reply = ntp_answer(datagram.payload, time.time())
        if reply is not None and endpoint is not None:
            try:
                endpoint.sock.sendto(reply, (datagram.source, datagram.sport))
            except OSError:
                pass  # the sender is gone, or does not want to hear it

    def _keep_datagram(self, proto: str, datagram: Datagram, cause: Mapping[str, object] | None = None) -> None:
        if is_loopback(datagram.destination, self._own):
            return
        key = (proto, datagram.source, datagram.sport, datagram.destination, datagram.dport)
        flow = self._datagrams.get(key)
        if flow is None:
            while len(self._datagrams) >= _MOST_DATAGRAM_FLOWS:
                self._end_datagrams(next(iter(self._datagrams)))
            flow = self._datagrams[key] = _DatagramFlow(proto, self.transcript(proto), cause or {})
        else:
            self._datagrams.move_to_end(key)
        flow.count += 1
        flow.touched = self.now()
        flow.transcript.keep(datagram.payload)

    def _end_datagrams(self, key: tuple[str, str, int, str, int]) -> None:
        flow = self._datagrams.pop(key)
        _, source, sport, destination, dport = key
        event = self.flow(flow.proto, destination, dport, (source, sport), flow.cause)
        event.update(flow.transcript.close())
        event["n"] = flow.count
        self._tell(event)

    def dns(
        self, message: bytes, address: str, port: int, source: tuple[str, int], cause: Mapping[str, object]
    ) -> bytes | None:
        """Answer and report one DNS query; None when the message is no query."""
        if is_loopback(address, self._own):
            return None
        try:
            query = dns_query(message)
        except ProtocolError:
            return None
        reply = dns_answer(query, self.names)
        if self.names.overflowed:
            self._limit("names", "too many DNS names: further ones share one address")
        transcript = self.transcript("dns", store=False)
        transcript.keep(message)
        transcript.scan(query.name.encode("utf-8", "surrogateescape"))
        event = self.flow("dns", address, port, source, cause)
        event.update(transcript.close())
        event["dns"] = {"name": query.name[:1024], "type": query.type}
        self._tell(event)
        self._follow_zone(query)
        return reply

    def _follow_zone(self, query: DnsQuery) -> None:
        """Keep the names asked for below one domain: a secret cut into labels is whole only across them."""
        if len(query.labels) < 3 or self._scan_names is None:
            return
        zone = b".".join(query.labels[-2:]).lower()
        names = self._zones.setdefault(zone, [])
        if names and names[-1] == query.name:
            return  # a resolver asks for A and AAAA, and repeats itself
        if self._zone_bytes > _MOST_ZONE_BYTES:
            self._limit("names", "too many DNS names: further ones are searched one by one, not across each other")
            return
        self._zone_bytes += len(query.name) + 100
        names.append(query.name)

    def _end_zones(self) -> None:
        for zone, names in self._zones.items():
            hits = [hit.to_dict() for hit in self._scan_names(names)] if self._scan_names is not None else []
            if hits and len(names) > 1:
                data = "\n".join(names).encode("utf-8", "surrogateescape")
                transcript = self.transcript("dns", store=False, scan=False)
                transcript.keep(data)
                name = zone.decode("utf-8", "surrogateescape")
                event: Event = {"e": "flow", "proto": "dns", "dst": "", "port": 53, "name": name, "n": len(names)}
                self._tell({**event, **transcript.close(), "canaries": hits, "zone": True})
        self._zones.clear()

    # --- telling ---

    def transcript(self, kind: str, *, store: bool = True, scan: bool = True) -> Transcript:
        """A new transcript whose file is named after ``kind``."""
        return Transcript(kind, self._payloads if store else None, self._scanner if scan else None)

    def flow(self, proto: str, address: str, port: int, source: tuple[str, int], cause: Mapping[str, object]) -> Event:
        """The first fields of a ``flow`` event."""
        event: Event = {
            "e": "flow",
            **cause,
            "proto": proto,
            "dst": address,
            "port": port,
            "src": [source[0], source[1]],
        }
        name = self.names.name_of(address)
        if name is not None:
            event["name"] = name
        return event

    def _tell(self, event: Event) -> None:
        if self._told < self._max_flows:
            self._told += 1
            self._report(event)
            return
        self._limit("flows", f"more than {self._max_flows} flows: further ones are told in sum, by destination")
        key = (str(event["proto"]), str(event["dst"]), int(str(event["port"])))
        if key not in self._folded and len(self._folded) >= _MOST_FOLDED:
            key = (key[0], "", 0)
        fold = self._folded.setdefault(key, _Fold())
        fold.count += 1
        fold.length += int(str(event["len"]))
        fold.digest.update(bytes.fromhex(str(event["sha256"])))
        fold.cutoff = fold.cutoff or bool(event.get("cutoff"))
        hits = event.get("canaries")
        for hit in hits if isinstance(hits, list) else []:
            if hit not in fold.canaries and len(fold.canaries) < 64:
                fold.canaries.append(hit)

    def _limit(self, what: str, detail: str) -> None:
        if what not in self._limits:
            self._limits.add(what)
            self._report({"e": "limit", "what": what, "d": detail})

    # --- time ---

    def tick(self) -> float | None:
        """Do what time demands; return the seconds after which to call again, None when nothing is open."""
        now = self.now()
        for connection in tuple(self._connections):
            connection.tick(now)
        for key in [key for key, flow in self._datagrams.items() if now - flow.touched > _DATAGRAM_IDLE]:
            self._end_datagrams(key)
        if self._paused and self._make_place() and self._paused:
            self._resume()
        return 0.25 if self._connections or self._datagrams else None

    def drain(self, deadline: float) -> bool:
        """Read until every client has finished or ``deadline`` (on the monotonic clock) has passed; say which.

        To be called when the candidate's processes are dead: the kernel then closes their sockets, and all that is left
        is in queues.
        """
        while True:
            moved = self._drain_raw()
            for endpoint in (*self._endpoints.values(), *self._service_endpoints.values()):
                if endpoint.kind == socket.SOCK_STREAM:
                    moved = self._accept(endpoint, 256) or moved
            for connection in tuple(self._connections):
                if connection in self._connections and connection.pump(ROUNDS):
                    moved = True
                    connection.handle(0)
            if not self._connections and not moved:
                return True
            if time.monotonic() >= deadline:
                return not self._connections
            if not moved:
                self.tick()
                select.select([], [], [], 0.002)

    def drops(self) -> int:
        """How many datagrams the kernel could not queue for the sink; any makes the datagram record incomplete."""
        return self._lost + sum(_drops(raw.sock) for raw in self._raw)

    def close(self) -> list[Event]:
        """Report everything that is still open, close all descriptors, and return the flows whose clients had not
        finished."""
        self._drain_raw()
        self._paused = False
        unfinished = [connection.close(True) for connection in tuple(self._connections)]
        for key in tuple(self._datagrams):
            self._end_datagrams(key)
        self._end_zones()
        for (proto, address, port), fold in self._folded.items():
            event = {"e": "flow", "proto": proto, "dst": address, "port": port, "n": fold.count, "len": fold.length}
            event["sha256"] = fold.digest.hexdigest()
            if fold.canaries:
                event["canaries"] = fold.canaries
            if fold.cutoff:
                event["cutoff"] = True
            self._report(event)
        self._folded.clear()
        for endpoint in (*self._endpoints.values(), *self._service_endpoints.values()):
            self._unwatch(endpoint)
            endpoint.sock.close()
        self._endpoints.clear()
        self._service_endpoints.clear()
        self._lost = self.drops()
        for raw in self._raw:
            self.unregister(raw.sock.fileno())
            raw.sock.close()
        self._raw.clear()
        return unfinished


def _join_group(sock: socket.socket, family: int, address: str) -> None:
    packed = socket.inet_pton(family, address)
    try:
        if family == socket.AF_INET and packed[0] >> 4 == 14:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, packed + struct.pack("=4si", b"\0" * 4, 1))
        elif family == socket.AF_INET6 and packed[0] == 0xFF:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, packed + struct.pack("=i", 1))
    except OSError:
        pass  # a reserved group: nothing can be sent to it either


def _drops(sock: socket.socket) -> int:
    values = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64)
    count = len(values) // 4
    return int(struct.unpack(f"={count}I", values)[_MEMINFO_DROPS]) if count > _MEMINFO_DROPS else 0


# Classic BPF for raw sockets: traffic of the world with itself must not fill the queue that the evidence goes
# through. Offsets from SKF_NET_OFF are counted from the network header, which a raw IPv6 socket does not otherwise
# show.
_NET = 0xFFF0_0000
_LD_ABS, _JEQ, _AND, _RET = 0x20, 0x15, 0x54, 0x06


def _not_loopback4() -> list[tuple[int, int, int, int]]:
    return [
        (_LD_ABS, 0, 0, _NET + 16),
        (_AND, 0, 0, 0xFF00_0000),
        (_JEQ, 0, 1, 0x7F00_0000),
        (_RET, 0, 0, 0),
        (_RET, 0, 0, 0x4_0000),
    ]


def _not_loopback6() -> list[tuple[int, int, int, int]]:
    program = []
    for at, word in enumerate((0, 0, 0, 1)):
        program += [(_LD_ABS, 0, 0, _NET + 24 + 4 * at), (_JEQ, 0, 7 - 2 * at, word)]
    return [*program, (_RET, 0, 0, 0), (_RET, 0, 0, 0x4_0000)]


def _attach_filter(sock: socket.socket, program: Sequence[tuple[int, int, int, int]]) -> None:
    import ctypes

    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    held = ctypes.create_string_buffer(code, len(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(held)))
