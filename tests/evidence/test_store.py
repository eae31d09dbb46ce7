"""Events, the hash chain and the evidence folder, read without trust."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aboveboard.evidence import Evidence, EvidenceError, chain_hash, parse_event
from aboveboard.evidence import store as store_module
from aboveboard.evidence.chain import GENESIS, SEAL_BYTES, seal, unseal


def log_of(*events: dict[str, object]) -> bytes:
    return Evidence.from_events(events)._open().read()


WHOLE: tuple[dict[str, object], ...] = (
    {"e": "world", "v": 1},
    {"e": "open", "n": "/a"},
    {"e": "end", "reason": "exit"},
)


def test_the_chain_is_what_the_reference_says() -> None:
    body = b'{"i":0,"e":"world"'
    expected = base64.urlsafe_b64encode(hashlib.sha256(b"A" * 22 + body).digest()[:16]).rstrip(b"=")
    assert chain_hash(GENESIS, body) == expected
    assert len(expected) == 22
    line, head = seal(GENESIS, body)
    assert line == body + b',"h":"' + expected + b'"}\n'
    assert head == expected
    assert json.loads(line)["h"] == expected.decode()
    assert unseal(line[:-1]) == (body, expected)


def test_a_body_that_holds_the_seal_in_a_string_is_taken_apart_at_the_end() -> None:
    body = json.dumps({"n": ',"h":"' + "B" * 22 + '"}'}).encode()[:-1]
    line, head = seal(GENESIS, body)
    assert unseal(line[:-1]) == (body, head)


def test_a_whole_log_is_ok_and_complete() -> None:
    report = Evidence.from_bytes(log_of(*WHOLE)).verify_chain()
    assert report.ok
    assert report.complete
    assert not report.torn
    assert report.events == 3
    assert report.first_bad_line is None
    assert len(report.head) == 22


def test_a_log_cut_between_lines_is_ok_and_incomplete() -> None:
    log = log_of(*WHOLE)
    report = Evidence.from_bytes(log[: log.rindex(b"\n", 0, -1) + 1]).verify_chain()
    assert report.ok
    assert not report.complete
    assert report.events == 2


def test_a_torn_last_line_is_incomplete_but_not_broken_and_yields_no_event() -> None:
    evidence = Evidence.from_bytes(log_of(*WHOLE)[:-5])
    report = evidence.verify_chain()
    assert report.ok
    assert report.torn
    assert not report.complete
    assert [event.type for event in evidence.events()] == ["world", "open"]


def test_an_empty_log_is_nothing() -> None:
    report = Evidence.from_bytes(b"").verify_chain()
    assert not report.ok
    assert not report.complete
    assert report.events == 0


def test_a_forged_number_breaks_the_chain_even_when_it_is_sealed() -> None:
    report = Evidence.from_bytes(log_of({"e": "world"}, {"e": "open", "i": 7})).verify_chain()
    assert not report.ok
    assert report.first_bad_line == 2
    assert report.events == 1


@given(st.integers(0, 2), st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_of_a_line_is_noticed(line: int, place: int, delta: int) -> None:
    lines = log_of(*WHOLE).splitlines()
    data = bytearray(lines[line])
    data[place % len(data)] ^= delta
    if b"\n" in data:
        return
    lines[line] = bytes(data)
    report = Evidence.from_bytes(b"\n".join(lines) + b"\n").verify_chain()
    assert not report.ok
    assert report.first_bad_line == line + 1


def test_what_follows_an_end_makes_the_record_incomplete() -> None:
    assert not Evidence.from_bytes(log_of(*WHOLE, {"e": "open"})).verify_chain().complete


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[]",
        b"3",
        b'{"e":1,"i":0}',
        b'{"e":"open"}',
        b'{"e":"open","i":"0"}',
        b'{"e":"open","i":true}',
        b'{"e":"open","i":0,"p":{}}',
        b'{"e":"open","i":0,"t":"x"}',
        b'{"e":"open","i":0} x',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"i":' + b"9" * 5000 + b',"e":"x"}',
    ],
)
def test_what_is_no_event_is_an_invalid_one(line: bytes) -> None:
    assert parse_event(line).type == "invalid"


def test_accessors_answer_with_nothing_where_the_type_is_another() -> None:
    event = parse_event(b'{"i":3,"e":"x","n":5,"port":"80","ok":1,"http":[],"canaries":[1,{"id":"a"}],"argv":[1,"b"]}')
    assert (event.number, event.phase, event.result, event.path) == (3, "call", "ok", "")
    assert event.text("n") == ""
    assert event.integer("port") == 0
    assert event.flag("ok") is False
    assert event.mapping("http") == {}
    assert event.mappings("canaries") == ({"id": "a"},)
    assert event.texts("argv") == ("b",)
    with pytest.raises(AttributeError):
        event.type = "y"


def test_bytes_that_are_not_text_come_back_as_they_were() -> None:
    raw = b"/ws/\xff\xfe\n"
    log = log_of({"e": "world", "n": os.fsdecode(raw)})
    assert log.isascii()
    assert os.fsencode(next(Evidence.from_bytes(log).events()).text("n")) == raw


def test_a_giant_line_is_skipped_in_bounded_memory_and_breaks_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_LINE_BYTES", 1000)
    log = log_of({"e": "world"}, {"e": "open", "n": "x" * 5000}, {"e": "end"})
    evidence = Evidence.from_bytes(log)
    assert [event.type for event in evidence.events()] == ["world", "invalid", "end"]
    assert evidence.verify_chain().first_bad_line == 2


def test_a_folder_is_read_lazily_and_its_header_is_the_first_event(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(log_of(*WHOLE))
    evidence = Evidence(tmp_path)
    assert evidence.header.type == "world"
    assert evidence.header.integer("v") == 1
    assert evidence.verify_chain().ok


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"no evidence.*events\.jsonl"):
        Evidence(tmp_path)


def test_a_log_cannot_name_files_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(log_of(*WHOLE))
    (tmp_path / "payloads").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "payloads" / "0001").write_bytes(b"POST /")
    (tmp_path / "payloads" / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "payloads" / "pipe")
    evidence = Evidence(tmp_path)
    assert evidence.payload("0001", limit=4) == evidence.payload("payloads/0001", limit=4) == b"POST"
    for name in ("../secret", "link", "pipe", "..", "", "missing", "a\0b"):
        with pytest.raises(EvidenceError):
            evidence.payload(name)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_are_read_to_their_end(lines: list[bytes]) -> None:
    evidence = Evidence.from_bytes(b"\n".join(lines))
    assert all(event.type for event in evidence.events())
    assert not evidence.verify_chain().ok


def test_the_seal_has_a_fixed_length() -> None:
    assert len(seal(GENESIS, b"{")[0]) == 1 + SEAL_BYTES + 1
