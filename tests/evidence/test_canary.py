"""Planted values are found through encodings, layers and cuts; nothing is found that is not there."""

from __future__ import annotations

import base64
import bz2
import codecs
import gzip
import io
import json
import lzma
import random
import time
import urllib.parse
import zipfile
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aboveboard.evidence.canary import InputIndex, Scanner

VALUE = "wJalrXUtnFEMI/K7MDENG-bPxRfiCYEXAMPLE=KEY"
OTHER = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
SCANNER = Scanner({"aws": VALUE, "github": OTHER})

Encoder = Callable[[bytes], bytes]

ENCODERS: dict[str, Encoder] = {
    "raw": bytes,
    "base64": base64.b64encode,
    "base64 at offset 1": lambda data: base64.b64encode(b"x" + data),
    "base64 at offset 2": lambda data: base64.b64encode(b"xy" + data),
    "base64, URL-safe": lambda data: base64.urlsafe_b64encode(b"\xff\xfe\xfb" + data).rstrip(b"="),
    "base64 in lines": lambda data: base64.encodebytes(data * 3),
    "base32": base64.b32encode,
    "base32, lower case": lambda data: base64.b32encode(b"abc" + data).lower().rstrip(b"="),
    "hex": lambda data: data.hex().encode(),
    "HEX": lambda data: data.hex().upper().encode(),
    "hex with colons": lambda data: data.hex(":").encode(),
    "url": lambda data: "".join(f"%{byte:02X}" for byte in data).encode(),
    "url, what must be": lambda data: urllib.parse.quote(data, safe="").encode(),
    "reversed": lambda data: data[::-1],
    "rot13": lambda data: codecs.encode(data.decode("latin-1"), "rot13").encode("latin-1"),
    "utf-16-le": lambda data: data.decode("latin-1").encode("utf-16-le"),
    "utf-16-be": lambda data: data.decode("latin-1").encode("utf-16-be"),
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "JSON escapes": lambda data: "".join(f"\\u{byte:04x}" for byte in data).encode(),
    "upper case": bytes.upper,
    "in pieces": lambda data: b", ".join(data[at : at + 5] for at in range(0, len(data), 5)),
    "one label a line": lambda data: b".\n".join(data[at : at + 9] for at in range(0, len(data), 9)),
    "base64 reversed": lambda data: base64.b64encode(data)[::-1],
    "base64 rot13": lambda data: codecs.encode(base64.b64encode(data).decode(), "rot13").encode(),
}

SURROUNDINGS: dict[str, Encoder] = {
    "alone": bytes,
    "in a request": lambda data: b"POST /collect?id=" + data + b" HTTP/1.1\r\nHost: x.test\r\n\r\n",
    "in JSON": lambda data: b'{"k":"' + data + b'"}',
    "in noise": lambda data: bytes(range(256)) + b" " + data + b" " + bytes(range(256)),
}


@pytest.mark.parametrize("where", SURROUNDINGS)
@pytest.mark.parametrize("how", ENCODERS)
def test_a_value_is_found_however_it_is_written_and_wherever_it_stands(how: str, where: str) -> None:
    hits = SCANNER.scan(SURROUNDINGS[where](ENCODERS[how](VALUE.encode())))
    assert {hit.id for hit in hits} == {"aws"}


LAYERS = ["base64", "hex", "base32", "url", "gzip", "zlib", "bz2", "xz"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=3))
def test_up_to_three_layers_are_taken_off(layers: list[str]) -> None:
    # Padding, so that the innermost compression really compresses and the value is not left readable.
    data = b"a report of " * 20 + VALUE.encode()
    for layer in layers:
        data = ENCODERS[layer](data)
    assert "aws" in {hit.id for hit in SCANNER.scan(data)}


def test_the_encoding_is_named_outermost_first() -> None:
    data = base64.b64encode(gzip.compress(b"a report of " * 20 + VALUE.encode()))
    assert ("aws", "base64+gzip") in {(hit.id, hit.enc) for hit in SCANNER.scan(data)}
    assert SCANNER.scan(VALUE.encode(), "header")[0].to_dict() == {"id": "aws", "enc": "raw", "at": "header"}


def test_a_member_of_a_zip_and_its_comment_are_read() -> None:
    for member, comment in ((b"padding " * 50 + VALUE.encode(), b""), (b"nothing", VALUE.encode())):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.txt", member)
            archive.comment = comment
        assert {hit.id for hit in SCANNER.scan(buffer.getvalue())} == {"aws"}


@pytest.mark.parametrize("form", ["{part}.c.test", "{n}.{part}.c.test", "{part}.{n}.c.test", "{part}.t{n}x.c.test"])
def test_a_value_cut_over_dns_queries_is_put_together(form: str) -> None:
    for text in (base64.b32encode(VALUE.encode()).decode().lower().rstrip("="), VALUE.encode().hex()):
        names = [form.format(n=n, part=text[at : at + 21]) for n, at in enumerate(range(0, len(text), 21))]
        doubled = [name for name in names for _ in range(2)]  # A and AAAA
        assert {hit.id for hit in SCANNER.scan_names(doubled)} == {"aws"}


def test_a_value_cut_over_headers_is_put_together() -> None:
    hits = SCANNER.scan_parts([("header", VALUE[:20].encode()), ("header", VALUE[20:].encode())])
    assert {hit.id for hit in hits} == {"aws"}
    assert SCANNER.scan_parts({"query": b"", "body": VALUE.encode()})[0].at == "body"


def test_harmless_data_has_no_hits() -> None:
    rng = random.Random(3)
    text = b"The quick brown fox jumps over the lazy dog; " * 2000
    for data in (
        b"",
        b"A" * 100_000,
        bytes(100_000),
        rng.randbytes(200_000),
        text,
        base64.b64encode(rng.randbytes(50_000)),
        json.dumps({"k": list(range(5000))}).encode(),
        VALUE[:20].encode(),
    ):
        assert SCANNER.scan(data) == ()


def test_a_value_too_short_to_mean_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="8 or more"):
        Scanner({"pin": "1234"})


@pytest.mark.parametrize("size", [1, 7, 1000, 65_536])
@pytest.mark.parametrize("how", ["raw", "base64", "hex", "gzip", "xz"])
def test_a_stream_is_searched_across_every_cut(how: str, size: int) -> None:
    rng = random.Random(size)
    filler = rng.randbytes(3000).hex().encode()
    data = (
        ENCODERS[how](filler + VALUE.encode() + filler)
        if how in ("gzip", "xz")
        else filler + b" " + ENCODERS[how](VALUE.encode()) + b" " + filler
    )
    stream = SCANNER.stream()
    for at in range(0, len(data), size):
        stream.feed(data[at : at + size])
    assert {hit.id for hit in stream.close()} == {"aws"}


def test_a_value_on_the_edge_of_a_window_is_found_and_memory_stays_bounded() -> None:
    from aboveboard.evidence.canary import StreamScanner

    for shift in (-20, 0, 20):
        stream = SCANNER.stream()
        stream.feed(b"." * (StreamScanner.WINDOW + shift - 20))
        stream.feed(VALUE.encode())
        for _ in range(20):
            stream.feed(b"." * 100_000)
            assert len(stream._buffer) <= 2 * StreamScanner.WINDOW
        assert {hit.id for hit in stream.close()} == {"aws"}


def test_bombs_and_nests_end_at_the_budget() -> None:
    zeros = bytes(50 << 20)
    nest = VALUE.encode() * 100
    for _ in range(10):
        nest = base64.b64encode(gzip.compress(nest))
    bombs = [
        gzip.compress(zeros),
        bz2.compress(zeros),
        lzma.compress(zeros),
        gzip.compress(gzip.compress(zeros)),
        nest,
        b"\x1f\x8b\x08" * 100_000,
        b"PK\x03\x04" * 50_000,
        b"%41" * 100_000,
        b"\\u0041" * 50_000,
    ]
    start = time.process_time()
    for bomb in bombs:
        SCANNER.scan(bomb)
        stream = SCANNER.stream()
        stream.feed(bomb)
        stream.close()
    assert time.process_time() - start < 30


NOISE: dict[str, Callable[[int], bytes]] = {
    "zeros": bytes,
    "letters": lambda size: b"A" * size,
    "a short period": lambda size: b"abcd0123x" * (size // 9),
    "random bytes": lambda size: random.Random(2).randbytes(size),
    "a table": lambda size: b'{"name": "row", "value": 0}\n' * (size // 28),
}
#: Those that are one piece and need no folding, which is for little data only.
WHOLE = ["raw", "base64", "base64 at offset 1", "base64, URL-safe", "base32", "hex", "HEX", "reversed", "rot13",
         "utf-16-le", "url", "gzip", "zlib", "bz2", "xz", "JSON escapes"]  # fmt: skip


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("how", WHOLE)
def test_a_value_is_found_in_much_data_that_holds_nothing_else(how: str, noise: str) -> None:
    size = 300_000
    data = NOISE[noise](size) + b"\n" + ENCODERS[how](VALUE.encode()) + b"\n" + NOISE[noise](size)
    assert {hit.id for hit in SCANNER.scan(data)} == {"aws"}
    stream = SCANNER.stream()
    for at in range(0, len(data), 100_000):
        stream.feed(data[at : at + 100_000])
    assert {hit.id for hit in stream.close()} == {"aws"}


def test_a_wide_value_is_found_among_narrow_text() -> None:
    text = b"an ordinary line of a log file\n" * 100
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le"):
        assert {hit.id for hit in SCANNER.scan(text + VALUE.encode(encoding) + text)} == {"aws"}


def test_noise_does_not_use_up_what_real_streams_need() -> None:
    # Two bytes that may start a zlib stream, followed by what is none.
    noise = b"x\x9c\xff\xff" * 64
    assert {hit.id for hit in SCANNER.scan(noise + gzip.compress(b"report " * 90 + VALUE.encode()))} == {"aws"}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.binary(min_size=8, max_size=40), min_size=1, max_size=6, unique=True),
    st.binary(max_size=60),
    st.sampled_from([0, 900, 5000]),
    st.integers(0, 5),
)
def test_no_value_slips_through_the_sieve(values: list[bytes], before: bytes, pad: int, which: int) -> None:
    chosen = which % len(values)
    scanner = Scanner({str(index): value for index, value in enumerate(values)})
    assert str(chosen) in {hit.id for hit in scanner.scan(before + values[chosen] + b"-" * pad)}


def test_a_mebibyte_takes_well_under_a_second() -> None:
    scanner = Scanner({f"c{n}": f"{n:04}-{VALUE}" for n in range(50)})
    words = random.Random(1).choices(["alpha", "bravo", "charlie", "a", "of", "1234"], k=220_000)
    data = " ".join(words).encode()[: 1 << 20]
    best = min(_seconds(scanner, data) for _ in range(3))
    assert best < 1.0


#: Seconds of processor time a mebibyte may take; twice what is promised, for a busy machine.
BARS = {"constant": 0.08, "zeros": 0.08, "random": 0.08, "base64": 0.8, "base64 in lines": 0.8}


@pytest.mark.parametrize("what", BARS)
def test_data_that_cannot_hold_anything_is_seen_to_hold_nothing_fast(what: str) -> None:
    scanner = Scanner({f"c{n}": f"{n:04}-{VALUE[:27]}" for n in range(115)})
    noise = random.Random(4).randbytes(1 << 20)
    data = {
        "constant": b"x" * (1 << 20),
        "zeros": bytes(1 << 20),
        "random": noise,
        "base64": base64.b64encode(noise)[: 1 << 20],
        "base64 in lines": base64.encodebytes(noise)[: 1 << 20],
    }[what]
    assert min(_seconds(scanner, data) for _ in range(5)) < BARS[what]


def test_a_scanner_that_is_not_used_costs_nothing() -> None:
    canaries = {f"/home/dev/{n}": f"{n:04}-{VALUE[:27]}" for n in range(115)}
    payload = f"token:{canaries['/home/dev/7']}".encode()

    def seconds(build: Callable[[], object]) -> float:
        start = time.process_time()
        build()
        return time.process_time() - start

    assert min(seconds(lambda: Scanner(canaries)) for _ in range(9)) < 0.001
    assert min(seconds(lambda: Scanner(canaries).scan(payload)) for _ in range(9)) < 0.004
    assert [hit.id for hit in Scanner(canaries).scan(payload)] == ["/home/dev/7"]


def _seconds(scanner: Scanner, data: bytes) -> float:
    start = time.process_time()
    assert scanner.scan(data) == ()
    return time.process_time() - start


DOCUMENT = "\n".join(
    f"Paragraph {n}: the patient {n * 7919 % 1000} was seen on day {n * 104729 % 365}." for n in range(400)
)


@pytest.mark.parametrize("files", [1, 40])
def test_content_of_the_input_is_recognised_whole_or_in_part(files: int) -> None:
    filler = {f"f{n}": random.Random(n).randbytes(9000) for n in range(files - 1)}
    scanner = Scanner({}, InputIndex({"visit.md": DOCUMENT.encode(), **filler}))
    part = DOCUMENT[5001:5041].encode()
    for data in (
        DOCUMENT.encode(),
        part,
        b"{'text': '" + part + b"'}",
        base64.b64encode(b"z" + part),
        gzip.compress(part * 9),
    ):
        assert {hit.id for hit in scanner.scan(data)} == {"input:visit.md"}
    assert scanner.scan(b"Paragraph of a text that is nobody's input at all, however long it may be.") == ()


@given(st.integers(0, len(DOCUMENT) - 24), st.binary(max_size=11))
@settings(max_examples=200, deadline=None)
def test_every_run_of_24_bytes_is_recognised_at_every_offset(start: int, prefix: bytes) -> None:
    run = DOCUMENT[start : start + 24].encode()
    if len(set(run)) >= 8:
        assert list(INDEX.find(prefix + b"\0" + run)) == ["input:visit.md"]


INDEX = InputIndex({"visit.md": DOCUMENT.encode(), "noise": random.Random(5).randbytes(300_000)})


def test_padding_and_rulers_are_nobodys_content() -> None:
    scanner = Scanner({}, InputIndex({"a": b"-" * 500 + b"\n" + b"=" * 500 + b"0" * 500 + bytes(500)}))
    assert scanner.scan(b"-" * 100 + b"=" * 100 + b"0" * 100 + bytes(100)) == ()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=3000) | st.text(max_size=500).map(lambda text: text.encode("utf-8", "replace")))
def test_no_data_can_crash_the_scanner(data: bytes) -> None:
    SCANNER.scan(data)
    stream = SCANNER.stream()
    stream.feed(data)
    stream.close()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(ENCODERS)), st.binary(max_size=300), st.binary(max_size=300))
def test_damaged_encodings_do_not_crash_it(how: str, left: bytes, right: bytes) -> None:
    data = ENCODERS[how](VALUE.encode())
    SCANNER.scan(left + data[: len(data) // 2] + right)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=8))
def test_no_names_can_crash_it(names: list[str]) -> None:
    SCANNER.scan_names(names)
