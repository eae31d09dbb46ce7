"""A supervisor in small: an epoll loop, a sink, and a client process that talks to it."""

from __future__ import annotations

import os
import select
import signal
import socket
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aboveboard.world.netlink import raise_loopback
from aboveboard.world.sink import Sink

from .netns import in_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aboveboard.world.sink import ServiceAddress
    from aboveboard.world.transcript import Event, Scanner

Destination = tuple[int, str, int]
TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM


class Service(NamedTuple):
    name: str
    host: str
    port: int
    upstream: str


class Record(NamedTuple):
    """What a play left: the events, the payload files, what the client printed, the results of expect, the CA."""

    events: list[Event]
    files: dict[str, bytes]
    said: object
    expected: list[str]
    drops: int
    unfinished: int

    def flows(self, proto: str) -> list[Event]:
        return [event for event in self.events if event["e"] == "flow" and event["proto"] == proto]

    def only(self, proto: str) -> Event:
        flows = self.flows(proto)
        assert len(flows) == 1, self.events
        return flows[0]


class Stage:
    """The supervisor's side: descriptors and their callbacks in one epoll."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.epoll = select.epoll()
        self.callbacks: dict[int, Callable[[int], object]] = {}
        self.events: list[Event] = []
        self.fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        loopback = raise_loopback()
        self.sink = Sink(
            self.events.append,
            payload_dir_fd=self.fd,
            register=self.register,
            unregister=self.unregister,
            own=loopback.addresses,
            ipv6=loopback.ipv6,
            **options,  # type: ignore[arg-type]
        )
        self.sink.start()

    def register(self, fd: int, mask: int, callback: Callable[[int], object]) -> None:
        assert fd not in self.callbacks
        self.epoll.register(fd, mask)
        self.callbacks[fd] = callback

    def unregister(self, fd: int) -> None:
        self.epoll.unregister(fd)
        del self.callbacks[fd]

    def turn(self, seconds: float) -> None:
        for fd, mask in self.epoll.poll(seconds):
            callback = self.callbacks.get(fd)
            if callback is not None:
                callback(mask)
        self.sink.tick()


def _client(body: Callable[[], object], writer: int) -> None:
    import pickle

    try:
        answer = ("ok", body())
    except BaseException:
        answer = ("failed", traceback.format_exc())
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(pickle.dumps(answer))


def play(
    client: Callable[[], object],
    destinations: Sequence[Destination] = (),
    *,
    services: Sequence[ServiceAddress] = (),
    dial: Callable[[ServiceAddress], socket.socket] | None = None,
    scanner: Callable[[], Scanner] | None = None,
    before: Callable[[Stage], object] | None = None,
    trust: str = "",
    seconds: float = 25.0,
    kill_client: bool = False,
    **options: object,
) -> Record:
    """Run ``client`` in a process of its own in a fresh world, the sink expecting ``destinations``, and return what was
    recorded.

    ``before`` runs in the world before the client; ``trust`` is the name of the variable in which the client finds the
    path of the CA certificate; ``kill_client`` kills it as soon as it has answered, with its sockets open.
    """

    def body() -> Record:
        import pickle

        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            stage = Stage(folder, services=services, dial=dial, scanner=scanner, **options)
            sink = stage.sink
            if trust:
                bundle = folder / "ca"
                bundle.write_bytes(sink.ca_pem())
                os.environ[trust] = str(bundle)
            if before is not None:
                before(stage)
            expected = [
                sink.expect(
                    socket.AF_INET6 if ":" in address else socket.AF_INET, kind, address, port, {"p": 77, "c": 1}
                )
                for kind, address, port in destinations
            ]
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                stage.epoll.close()
                os.closerange(3, writer)
                os.closerange(writer + 1, 1024)
                try:
                    _client(client, writer)
                    if kill_client:
                        signal.pause()
                finally:
                    os._exit(0)
            os.close(writer)
            answer = b""
            end = time.monotonic() + seconds - 2
            done = False

            def hear(_: int) -> None:
                nonlocal answer, done
                part = os.read(reader, 1 << 20)
                answer += part
                done = not part

            stage.register(reader, select.EPOLLIN, hear)
            while not done:
                assert time.monotonic() < end, f"the client hangs; events so far: {stage.events}"
                stage.turn(0.05)
            stage.unregister(reader)
            os.close(reader)
            os.kill(child, signal.SIGKILL) if kill_client else None
            os.waitpid(child, 0)
            sink.drain(time.monotonic() + 5)
            unfinished = len(sink.close())
            kind, said = pickle.loads(answer)
            assert kind == "ok", said
            assert not stage.callbacks, "descriptors left registered"
            files = {f"payloads/{path.name}": path.read_bytes() for path in folder.iterdir() if path.suffix == ".bin"}
            return Record(stage.events, files, said, expected, sink.drops(), unfinished)

    return in_namespace(body, seconds)
