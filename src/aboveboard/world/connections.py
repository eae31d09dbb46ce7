"""The TCP connections of a sink: answered by itself, or passed on to a declared service. Nothing blocks, every
queue is bounded."""

from __future__ import annotations

import errno
import select
import socket
import time
from typing import TYPE_CHECKING, Protocol

from .conversation import BANNERS, Conversation

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from .protocols import ClientHello
    from .sink import Sink
    from .transcript import Event

__all__ = ["ROUNDS", "Endpoint", "Relay", "ServiceAddress", "Stream"]

ROUNDS = 8  # chunks read from one connection before the others have their turn ...
_TURN = 0.01  # ... or seconds
_MOST_OUT = 262_144
_SILENCE = 2.0  # seconds after which a client that says nothing is taken to be waiting for us
_GREETING = 0.3  # the same where the protocol of the port has the server speak first
_PATIENCE = 30.0  # the same for one that has already spoken a protocol we answer
_LINGER = 5.0  # seconds a client that closed its half has to fetch the rest of an answer

_IN, _OUT, _GONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP | select.EPOLLERR


class ServiceAddress(Protocol):
    """What the sink needs of a declared service."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def upstream(self) -> str: ...


class Endpoint:
    """An address and port the sink owns."""

    def __init__(self, sock: socket.socket, kind: int, address: str, port: int) -> None:
        self.sock = sock
        self.kind = kind
        self.address = address
        self.port = port
        self.cause: Mapping[str, object] = {}
        self.service: ServiceAddress | None = None
        self.watched = False


class _Half:
    """One non-blocking stream socket with a bounded queue of bytes to send."""

    def __init__(self, sink: Sink, sock: socket.socket, callback: Callable[[int], object]) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.out = bytearray()
        self.ended = False  # the peer will send no more
        self.broken = False  # nothing can be sent to the peer any more
        self.shut = False  # we will send no more
        self._sink = sink
        self._callback = callback
        self._mask = 0
        sock.setblocking(False)

    def read(self) -> bytes | None:
        """The next bytes; empty at the end; None when there are none now."""
        try:
            count = self.sock.recv_into(self._sink.buffer)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            # After a reset the kernel first hands out what had arrived, then the error: nothing is lost by ending here.
            self.broken = True
            count = 0
        if not count:
            self.ended = True
            return b""
        return bytes(memoryview(self._sink.buffer)[:count])

    def flush(self) -> None:
        while self.out and not self.broken:
            try:
                sent = self.sock.send(self.out)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno == errno.ENOTCONN:  # an upstream that is still connecting
                    return
                self.broken = True
                break
            del self.out[:sent]
        if self.broken:
            self.out.clear()

    def shutdown(self) -> None:
        if not self.shut:
            self.shut = True
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def watch(self, reading: bool) -> None:
        """Ask for the events that matter now. A half that needs none is not registered: it would report its hang-up
        for ever."""
        mask = (_IN if reading and not self.ended else 0) | (_OUT if self.out else 0)
        if mask != self._mask:
            if self._mask:
                self._sink.unregister(self.fd)
            if mask:
                self._sink.register(self.fd, mask, self._callback)
            self._mask = mask

    def close(self) -> None:
        if self._mask:
            self._sink.unregister(self.fd)
            self._mask = 0
        self.sock.close()


class Stream:
    """A TCP connection the sink answers itself."""

    def __init__(self, sink: Sink, sock: socket.socket, source: tuple[str, int], endpoint: Endpoint) -> None:
        self._sink = sink
        self._endpoint = endpoint
        self._source = source
        self._cause = endpoint.cause
        self._transcript = sink.transcript("tcp")
        self._wire = 0
        self._failed = ""
        interceptor = _Interception(sink, endpoint.address) if sink.intercept else None
        self._talk = Conversation(
            endpoint.address,
            endpoint.port,
            self._transcript,
            interceptor=interceptor,
            dns=lambda message: sink.dns(message, endpoint.address, endpoint.port, source, self._cause),
        )
        self._half = _Half(sink, sock, self.handle)
        self.touched = sink.now()

    def begin(self) -> None:
        """Start to listen to the client."""
        self._half.watch(True)

    def handle(self, mask: int) -> None:
        if mask & (_IN | _GONE):
            self.pump(ROUNDS)
        self._settle()

    def pump(self, rounds: int) -> bool:
        """Read what is there; say whether there was anything."""
        start = time.monotonic()
        for done in range(rounds):
            # Searching a stream for canaries can be slow, and every trapped call of the world waits meanwhile.
            if time.monotonic() - start > _TURN:
                return True
            data = self._half.read()
            if data is None:
                return done > 0
            self.touched = self._sink.now()
            if not data:
                self._answer(self._talk.finish)
                return True
            self._wire += len(data)
            self._answer(lambda data=data: self._talk.receive(data), data)  # type: ignore[misc]
        return True

    def _answer(self, say: Callable[[], bytes], data: bytes = b"") -> None:
        if self._failed:
            self._transcript.keep(data)
            return
        try:
            reply = say()
        except (
            Exception
        ) as error:  # the supervisor must outlive a mistake in a parser; the flow is then marked as not whole
            self._failed = f"{type(error).__name__}: {error}"[:200]
            return
        # A client that sends for ever and never reads gets no more answers; what it sends is still read.
        if len(self._half.out) + len(reply) <= _MOST_OUT:
            self._half.out += reply

    def _settle(self) -> None:
        half = self._half
        half.flush()
        if half.ended and (half.broken or not half.out):
            self.close(False)
            return
        if self._talk.closing and not half.out and not half.shut:
            self._answer(self._talk.goodbye)
            half.flush()
            if not half.out:
                half.shutdown()
        half.watch(True)

    def tick(self, now: float) -> None:
        idle = now - self.touched
        if self._half.ended:
            if idle > _LINGER:
                self.close(False)
            return
        if self._half.shut or idle < (_GREETING if not self._wire and self._endpoint.port in BANNERS else _SILENCE):
            return
        known = self._talk.facts()
        if ("http" in known or "tls" in known) and idle < _PATIENCE:
            return
        before = len(self._half.out)
        self._answer(self._talk.silence)
        if len(self._half.out) == before:
            # Whoever waits for an answer we cannot give gets the end of the stream rather than waiting for ever.
            # Reading goes on.
            self._half.flush()
            self._half.shutdown()
        else:
            self.touched = now
        self._settle()

    def close(self, cutoff: bool) -> Event:
        """End the connection and report it. ``cutoff``: the client had not finished."""
        self._half.close()
        event = self._sink.flow("tcp", self._endpoint.address, self._endpoint.port, self._source, self._cause)
        event.update(self._transcript.close())
        event.update(self._talk.facts())
        if self._wire != self._transcript.length:
            event["wire"] = self._wire
        if self._failed:
            event["failed"] = self._failed
        if cutoff or self._failed:
            event["cutoff"] = True
        self._sink.ended(self, event)
        return event


class Relay:
    """A TCP connection to a declared service: passed on, both directions recorded."""

    def __init__(
        self, sink: Sink, sock: socket.socket, source: tuple[str, int], endpoint: Endpoint, service: ServiceAddress
    ) -> None:
        self._sink = sink
        self._endpoint = endpoint
        self._source = source
        self._cause = endpoint.cause
        self._service = service
        self._transcript = sink.transcript("tcp")
        self._reply = sink.transcript("reply", scan=False)
        self._talk = Conversation(endpoint.address, endpoint.port, self._transcript, passive=True)
        self._error = ""
        self.touched = sink.now()
        self._client = _Half(sink, sock, self.handle)
        self._upstream: _Half | None = None

    def begin(self) -> None:
        """Reach the service and start to pass on."""
        try:
            self._upstream = _Half(self._sink, self._sink.dial(self._service), self.handle)
        except OSError as error:
            self._error = f"the service cannot be reached: {error.strerror or error}"
        self._settle()

    def handle(self, _: int) -> None:
        self.pump(ROUNDS)
        self._settle()

    def pump(self, rounds: int) -> bool:
        """Move what is there in both directions; say whether there was anything."""
        moved = False
        client, upstream = self._client, self._upstream
        for _ in range(rounds):
            # Back-pressure: a side is only read while the other side takes what it gets.
            if not client.ended and (upstream is None or len(upstream.out) < _MOST_OUT):
                data = client.read()
                if data is not None:
                    moved = True
                    self._hear(data)
                    if upstream is not None and not upstream.broken:
                        upstream.out += data
                        upstream.flush()
                    continue
            break
        for _ in range(rounds):
            if upstream is not None and not upstream.ended and len(client.out) < _MOST_OUT:
                data = upstream.read()
                if data is not None:
                    moved = True
                    self._reply.keep(data)
                    if not client.broken:
                        client.out += data
                        client.flush()
                    continue
            break
        if moved:
            self.touched = self._sink.now()
        return moved

    def _hear(self, data: bytes) -> None:
        if self._error.startswith("parser"):
            self._transcript.keep(data)
            return
        try:
            self._talk.receive(data) if data else self._talk.finish()
        except Exception as error:  # as in Stream: a mistake in a parser must not end the world
            self._error = f"parser: {type(error).__name__}: {error}"[:200]

    def _settle(self) -> None:
        client, upstream = self._client, self._upstream
        client.flush()
        if upstream is None:
            # Nobody to pass it on to: the client gets the end of the stream, what it still says is recorded.
            client.shutdown()
        else:
            upstream.flush()
            if client.ended and not upstream.out:
                upstream.shutdown()
            if upstream.ended and not client.out:
                client.shutdown()
        over = upstream is None or upstream.ended or upstream.broken
        if client.ended and (client.broken or (over and not client.out)):
            self.close(False)
            return
        client.watch(upstream is None or len(upstream.out) < _MOST_OUT)
        if upstream is not None:
            upstream.watch(len(client.out) < _MOST_OUT)

    def tick(self, now: float) -> None:
        if self._client.ended and now - self.touched > _PATIENCE:
            self.close(False)

    def close(self, cutoff: bool) -> Event:
        self._client.close()
        if self._upstream is not None:
            self._upstream.close()
        event = self._sink.flow("tcp", self._endpoint.address, self._endpoint.port, self._source, self._cause)
        event.update(self._transcript.close())
        event.update(self._talk.facts())
        event["service"] = self._service.name
        event["reply"] = self._reply.close()
        if self._error:
            event["failed"] = self._error
        if cutoff or self._error.startswith("parser"):
            event["cutoff"] = True
        self._sink.ended(self, event)
        return event


class _Interception:
    """Server contexts for one connection: a leaf for the name the client asks for and for the address it connected
    to."""

    def __init__(self, sink: Sink, address: str) -> None:
        self._sink = sink
        self._address = address

    def context(self, hello: ClientHello) -> ssl.SSLContext | None:
        return self._sink.tls_context(hello.sni, self._address)
