"""Messages between client, spawner, supervisor and PID 1: whole, in order, with their descriptors."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.world import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.binary(max_size=30)
    | st.text(max_size=30)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@given(messages=st.lists(st.dictionaries(st.text(max_size=8), VALUES, max_size=5), min_size=1, max_size=5))
def test_given_messages_when_sent_one_after_another_then_they_arrive_equal_and_apart(
    messages: list[wire.Message],
) -> None:
    one, other = socket.socketpair()
    with one, other:
        for message in messages:
            wire.send(one, message)
        assert [wire.receive(other) for _ in messages] == [(message, []) for message in messages]


@pytest.mark.parametrize("size", [0, (1 << 16) - 100, 1 << 16, 1 << 20, 5 << 20])
def test_given_a_message_larger_than_any_buffer_when_sent_then_it_arrives_whole_with_its_descriptors(
    pair: tuple[socket.socket, socket.socket], size: int
) -> None:
    one, other = pair
    reader, writer = os.pipe()
    message = {"data": b"x" * size}
    sender = threading.Thread(target=wire.send, args=(one, message, [writer]))
    sender.start()
    received = wire.receive(other)
    sender.join(10)
    os.close(writer)
    assert received is not None
    assert received[0] == message
    (fd,) = received[1]
    os.write(fd, b"through")
    os.close(fd)
    assert os.read(reader, 100) == b"through"
    os.close(reader)


def test_given_descriptors_when_received_then_they_are_close_on_exec_and_in_order(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    one, other = pair
    pipes = [os.pipe() for _ in range(8)]
    wire.send(one, {"first": 1}, [writer for _, writer in pipes])
    wire.send(one, {"second": 2})
    received, second = wire.receive(other), wire.receive(other)
    assert received is not None
    assert second == ({"second": 2}, [])
    assert [os.get_inheritable(fd) for fd in received[1]] == [False] * 8
    for n, fd in enumerate(received[1]):
        os.write(fd, b"%d" % n)
    assert [os.read(reader, 10) for reader, _ in pipes] == [b"%d" % n for n in range(8)]
    for fd in [*received[1], *(fd for both in pipes for fd in both)]:
        os.close(fd)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 5, 20])
def test_given_a_peer_that_dies_in_a_message_when_received_then_it_is_the_end_and_no_error(
    pair: tuple[socket.socket, socket.socket], cut: int
) -> None:
    one, other = pair
    recorder, copy = socket.socketpair()
    with recorder, copy:
        wire.send(recorder, {"some": "message", "with": [1, 2, 3]})
        whole = copy.recv(1 << 16)
    assert len(whole) > cut
    one.sendall(whole[:cut])
    one.close()
    assert wire.receive(other) is None


def test_given_bytes_that_dribble_in_when_received_then_the_message_is_whole(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    one, other = pair
    recorder, copy = socket.socketpair()
    with recorder, copy:
        wire.send(recorder, {"a": 1})
        whole = copy.recv(1 << 16)

    def dribble() -> None:
        for n in range(len(whole)):
            one.sendall(whole[n : n + 1])

    sender = threading.Thread(target=dribble)
    sender.start()
    assert wire.receive(other) == ({"a": 1}, [])
    sender.join(10)
