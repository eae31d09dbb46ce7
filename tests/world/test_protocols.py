"""Parsers of attacker-chosen bytes: right on what clients send, bounded and calm on everything else."""

from __future__ import annotations

import ssl
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.world.conversation import Conversation
from aboveboard.world.protocols import (
    HttpRequest,
    Names,
    ProtocolError,
    RequestReader,
    client_hello,
    dns_answer,
    dns_query,
    echo_from_ip4,
    http_answer,
    looks_like_http,
    ntp_answer,
    tls_alert,
    udp_from_ip4,
    udp_from_ip6,
)

# --- DNS --------------------------------------------------------------------------------------------------------------


def question(*labels: bytes, kind: int = 1, edns: bool = False) -> bytes:
    name = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    tail = b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0) if edns else b""
    return struct.pack("!6H", 7, 0x0100, 1, 0, 0, int(edns)) + name + struct.pack("!HH", kind, 1) + tail


def records(answer: bytes, query: bytes) -> list[tuple[int, bytes]]:
    """The answer section, read back by the plainest possible reader."""
    _, flags, questions, count, _, _ = struct.unpack_from("!6H", answer)
    assert flags & 0x800F == 0x8000
    assert questions == 1
    position, out = len(query), []
    for _ in range(count):
        assert answer[position : position + 2] == b"\xc0\x0c"
        kind, _, _, size = struct.unpack_from("!HHIH", answer, position + 2)
        out.append((kind, answer[position + 12 : position + 12 + size]))
        position += 12 + size
    return out


def test_a_query_is_read_with_its_name_and_type() -> None:
    query = dns_query(question(b"API", b"example", b"test", kind=28))
    assert (query.name, query.type, query.edns) == ("API.example.test", "AAAA", False)


def test_odd_bytes_in_labels_survive() -> None:
    assert dns_query(question(b"a.b\\", b"\xff\x00")).name == "a\\.b\\\\.\udcff\x00"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (1, [1]),
        (28, [28]),
        (255, [1, 28]),
        (15, [15]),
        (16, [16]),
        (33, [33]),
        (12, [12]),
        (2, [2]),
        (6, [6]),
        (65, []),
    ],
)
def test_every_common_type_has_a_sensible_answer(kind: int, expected: list[int]) -> None:
    query = question(b"_x", b"_tcp", b"a", b"test", kind=kind)
    assert [record[0] for record in records(dns_answer(dns_query(query), Names()), query)] == expected


def test_edns_is_answered_with_edns() -> None:
    query = dns_query(question(b"a", b"test", edns=True))
    assert query.edns
    assert dns_answer(query, Names())[-11:-8] == b"\0\0\x29"


def test_names_have_addresses_of_their_own_that_lead_back() -> None:
    names = Names()
    addresses = {names.addresses(f"h{number}.test") for number in range(2000)}
    assert len(addresses) == 2000
    assert all(names.name_of(four) == names.name_of(six) for four, six in addresses)
    assert Names().addresses("h7.test") == names.addresses("H7.TEST.")


def test_a_reverse_lookup_gives_the_name() -> None:
    names = Names()
    four = names.addresses("who.test")[0].split(".")
    query = question(*[part.encode() for part in reversed(four)], b"in-addr", b"arpa", kind=12)
    assert records(dns_answer(dns_query(query), names), query) == [(12, b"\x03who\x04test\0")]


def test_names_beyond_the_bound_share_an_address_and_say_so() -> None:
    names = Names(most=3)
    given_out = [names.addresses(f"h{number}.test") for number in range(6)]
    assert len(set(given_out)) == 4
    assert names.overflowed


def test_a_fixed_name_keeps_its_address() -> None:
    names = Names({"model.test": ("198.51.100.7",)})
    assert names.addresses("Model.Test") == ("198.51.100.7",)
    assert names.name_of("198.51.100.7") == "model.test"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "shorter"),
        (struct.pack("!6H", 7, 0x8000, 1, 0, 0, 0) + b"\0" * 5, "response"),
        (struct.pack("!6H", 7, 0, 0, 0, 0, 0) + b"\0" * 5, "no question"),
        (struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", "compressed"),
        (struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\x3fabcdef", "runs out"),
        (question(*[b"a" * 60] * 5), "255"),
    ],
)
def test_a_malformed_query_is_refused_with_its_reason(message: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        dns_query(message)


@given(st.binary(max_size=600))
def test_any_bytes_are_a_query_or_a_protocol_error(data: bytes) -> None:
    try:
        dns_query(data)
    except ProtocolError:
        pass


@given(
    st.lists(st.binary(min_size=1, max_size=63), max_size=5).filter(lambda labels: sum(map(len, labels)) < 240),
    st.integers(0, 65_535),
)
def test_any_question_gets_a_well_formed_answer(labels: list[bytes], kind: int) -> None:
    message = question(*labels, kind=kind)
    for _, data in records(dns_answer(dns_query(message), Names()), message):
        assert len(data) < 512


# --- HTTP -------------------------------------------------------------------------------------------------------------


def events(*pieces: bytes) -> list[tuple[str, object]]:
    reader = RequestReader()
    return [event for piece in pieces for event in reader.feed(piece)]


def merged(found: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Neighbouring body pieces as one: how a body is cut says nothing."""
    out: list[tuple[str, object]] = []
    for kind, value in found:
        if out and kind == out[-1][0] and kind in ("body", "rest"):
            out[-1] = (kind, out[-1][1] + value)  # type: ignore[operator]
        else:
            out.append((kind, value))
    return out


PIPELINE = (
    b"GET /a HTTP/1.1\r\nHost: one.test\r\n\r\n"
    b"POST /b HTTP/1.1\r\nHost: two.test\r\nContent-Length: 5\r\n\r\nhello"
    b"\r\nPUT /c HTTP/1.1\r\nHost: three.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
    b"HEAD /d HTTP/1.0\n\n"
)


def test_pipelined_requests_are_told_apart() -> None:
    found = merged(events(PIPELINE))
    heads = [value for kind, value in found if kind == "head" and isinstance(value, HttpRequest)]
    assert [(head.method, head.path, head.host, head.length) for head in heads] == [
        ("GET", "/a", "one.test", 0),
        ("POST", "/b", "two.test", 5),
        ("PUT", "/c", "three.test", None),
        ("HEAD", "/d", "", 0),
    ]
    assert [value for kind, value in found if kind == "body"] == [b"hello", b"abcde"]
    assert [value for kind, value in found if kind == "end"] == [0, 5, 5, 0]


@given(st.lists(st.integers(1, 40), max_size=60))
def test_how_the_bytes_are_cut_changes_nothing(sizes: list[int]) -> None:
    pieces, rest = [], PIPELINE
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    assert merged(events(*pieces, rest)) == merged(events(PIPELINE))


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
        b"POST / HTTP/1.1\r\nContent-Length: -3\r\n\r\nabcde",
        b"POST / HTTP/1.1\r\nContent-Length: 1" + b"0" * 40 + b"\r\n\r\nabcde",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        b"SSH-2.0-client\r\n",
        b"A" * 100_000,
        b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000,
    ],
)
def test_ambiguous_or_endless_requests_are_bytes_not_guesses(head: bytes) -> None:
    reader = RequestReader()
    for piece in (head, b"more"):
        list(reader.feed(piece))
    assert reader.opaque


def test_a_head_that_drips_in_costs_no_more_than_its_length() -> None:
    reader = RequestReader()
    start = time.process_time()
    for byte in b"GET / HTTP/1.1\r\nX: " + b"y" * 60_000:
        list(reader.feed(bytes((byte,))))
    assert time.process_time() - start < 5


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_any_bytes_are_read_without_error(pieces: list[bytes]) -> None:
    events(b"GET / HTTP/1.1\r\n", *pieces)
    events(*pieces)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("text/html,*/*;q=0.8", "html"),
        ("text/plain", "plain"),
        ("application/json", "json"),
    ],
)
def test_the_answer_suits_what_the_client_accepts(accept: str, kind: str) -> None:
    head = f"GET / HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode()
    request = events(head)[0][1]
    assert isinstance(request, HttpRequest)
    assert kind.encode() in http_answer(request).split(b"\r\n\r\n")[0]


def test_a_websocket_is_refused_politely() -> None:
    request = events(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")[0][1]
    assert isinstance(request, HttpRequest)
    assert http_answer(request).startswith(b"HTTP/1.1 503 ")


def test_http_2_is_not_taken_for_http_1() -> None:
    assert looks_like_http(b"GET /")
    assert not looks_like_http(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert not looks_like_http(b"\x16\x03\x01")


# --- TLS --------------------------------------------------------------------------------------------------------------


def hello(name: str, alpn: list[str] | None = None) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    if alpn:
        context.set_alpn_protocols(alpn)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def test_a_real_client_hello_is_read() -> None:
    parsed = client_hello(hello("api.example.test", ["h2", "http/1.1"]))
    assert parsed is not None
    assert parsed == ("api.example.test", ("h2", "http/1.1"), "TLS 1.3", False)


def test_every_prefix_of_a_client_hello_is_incomplete_not_wrong() -> None:
    data = hello("a.test")
    assert all(client_hello(data[:length]) is None for length in range(len(data)))


def test_a_client_hello_in_several_records_is_put_together() -> None:
    data = hello("a.test")
    body = data[5:]
    parts = [body[at : at + 100] for at in range(0, len(body), 100)]
    split = b"".join(data[:3] + len(part).to_bytes(2, "big") + part for part in parts)
    assert client_hello(split) == client_hello(data)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP",
        b"\x16\x02\0\0\0",
        b"\x16\x03\1\xff\xff",
        b"\x16\x03\1\0\4\2\0\0\0",
        b"\x16\x03\1\0\4\1\xff\xff\xff",
    ],
)
def test_what_cannot_become_a_client_hello_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        client_hello(data)


def test_a_hello_of_one_byte_records_is_refused_early() -> None:
    with pytest.raises(ProtocolError, match="too many records"):
        client_hello(b"".join(b"\x16\x03\x01\0\x01" + bytes((byte,)) for byte in b"\x01\0\x40\0" + b"\0" * 100))


@given(st.data())
def test_a_damaged_client_hello_is_read_or_refused(data: st.DataObject) -> None:
    damaged = bytearray(hello("a.test", ["h2"]))
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        client_hello(bytes(damaged))
    except ProtocolError:
        pass


@given(st.binary(max_size=300))
def test_any_bytes_are_a_hello_a_part_of_one_or_refused(data: bytes) -> None:
    for prefix in (b"", b"\x16\x03\x01\x00\x80\x01\x00\x00\x7c"):
        try:
            client_hello(prefix + data)
        except ProtocolError:
            pass


def test_an_alert_is_a_fatal_one() -> None:
    assert tls_alert() == b"\x15\x03\x03\x00\x02\x02\x28"


# --- NTP and datagrams ------------------------------------------------------------------------------------------------


def test_ntp_echoes_the_clients_time_stamp() -> None:
    answer = ntp_answer(b"\x23" + b"\0" * 39 + b"12345678", 1_700_000_000.0)
    assert answer is not None
    assert (len(answer), answer[0] & 7, answer[24:32]) == (48, 4, b"12345678")
    assert struct.unpack_from("!I", answer, 40)[0] == 1_700_000_000 + 2_208_988_800


@given(st.binary(max_size=100))
def test_any_bytes_are_a_datagram_or_a_protocol_error(data: bytes) -> None:
    ntp_answer(data, 0.0)
    for parse in (udp_from_ip4, echo_from_ip4, lambda raw: udp_from_ip6(raw, "::1", "::1")):
        try:
            parse(data)
        except ProtocolError:
            pass


# --- a whole conversation ---------------------------------------------------------------------------------------------


class Kept:
    def __init__(self) -> None:
        self.data = b""
        self.scanned = b""

    def keep(self, data: bytes) -> None:
        self.data += data

    def scan(self, data: bytes) -> None:
        self.scanned += data


# Things a client may say, in any order: real openings, their parts, and noise.
WORDS = st.sampled_from(
    [
        PIPELINE,
        b"GET / HTTP/1.1\r\n\r\n",
        b"CONNECT a.test:443 HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\x11" + b"\0" * 17,
        *(b"EHLO x\r\n", b"DATA\r\n", b".\r\n", b"USER x\r\n", b"PASV\r\n", b"QUIT\r\n", b"\r\n"),
    ]
)


@given(
    st.lists(WORDS | st.binary(max_size=50), max_size=12),
    st.sampled_from([21, 25, 53, 80, 110, 143, 443, 587, 31_337]),
    st.booleans(),
)
def test_every_byte_of_any_conversation_is_kept_once_in_order(pieces: list[bytes], port: int, passive: bool) -> None:
    kept = Kept()
    talk = Conversation("203.0.113.9", port, kept, dns=lambda _: b"answer", passive=passive)
    said = b"".join(talk.receive(piece) for piece in pieces) + talk.silence() + talk.finish() + talk.goodbye()
    assert kept.data == b"".join(pieces)
    assert not (passive and said)
    talk.facts()


def test_tunnels_in_tunnels_end_somewhere() -> None:
    kept = Kept()
    talk = Conversation("203.0.113.9", 3128, kept)
    data = b"CONNECT a.test:443 HTTP/1.1\r\n\r\n" * 50
    talk.receive(data)
    assert kept.data == data
    assert talk.facts()["tunnel"] == "a.test:443"
