"""The event log: whole, chained, numbered without gaps, whatever is written into it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.evidence import Evidence, parse_event
from aboveboard.world.log import Log, encode, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOSTILE = [
    b"",
    b'"',
    b"\\",
    b'","h":"AAAAAAAAAAAAAAAAAAAAAA"}\n{"i":99,"e":"end"}',
    b"\0\x01\x1b[31m\x7f",
    "né→😀\u2028\u202e".encode(),
    b"\xff\xfe\xed\xa0\x80",
    b"\n\r\t",
]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], tuple[Log, Path]]]:
    """Makes logs in files of their own; their descriptors are closed at the end."""
    opened: list[int] = []

    def one() -> tuple[Log, Path]:
        path = tmp_path / f"{len(opened)}.jsonl"
        opened.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        return Log(opened[-1], 1000), path

    yield one
    for fd in opened:
        os.close(fd)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_given_events_of_both_forms_when_read_back_then_the_chain_holds_and_its_head_is_the_logs(
    make: Callable[[], tuple[Log, Path]],
) -> None:
    log, path = make()
    log.record({"e": "world", "v": 1})
    log.add("open", 7, 1, ',"n":"/etc/passwd","a":"r"')
    log.record({"e": "end", "reason": "exit", "counts": dict(log.counts), "lost": log.lost})
    report = Evidence.from_bytes(path.read_bytes()).verify_chain()
    assert (report.ok, report.complete, report.events) == (True, True, 3)
    assert report.head == log.head.decode()
    assert log.size == path.stat().st_size


@pytest.mark.parametrize("position", [0, 1, 2])
def test_given_a_written_log_when_any_line_is_changed_then_the_chain_tells_which(
    make: Callable[[], tuple[Log, Path]], position: int
) -> None:
    log, path = make()
    for kind in ("world", "open", "end"):
        log.add(kind, 0, 0, ',"n":"a"')
    written = path.read_bytes().splitlines(keepends=True)
    written[position] = written[position].replace(b'"n":"a"', b'"n":"b"')
    report = Evidence.from_bytes(b"".join(written)).verify_chain()
    assert (report.ok, report.first_bad_line) == (False, position + 1)


def test_given_many_events_when_numbered_then_there_is_no_gap_and_time_never_goes_back(
    make: Callable[[], tuple[Log, Path]],
) -> None:
    log, path = make()
    numbers = [log.add("open", 1, 1) if i % 2 else log.record({"e": "fs"}) for i in range(500)]
    assert numbers == list(range(500))
    events = lines(path)
    assert [e["i"] for e in events] == numbers
    times = [e["t"] for e in events]
    assert times == sorted(times)
    assert log.counts == {"open": 250, "fs": 250}
    assert log.count == 500


def test_given_events_of_the_proof_when_added_then_they_are_kept_apart_and_take_no_number(
    make: Callable[[], tuple[Log, Path]],
) -> None:
    log, path = make()
    log.add("open", 1, 1)
    assert log.add("open", 9, -1, ',"n":"/canary"') == -1
    log.add("open", 1, 1)
    assert [e["i"] for e in lines(path)] == [0, 1]
    assert log.proved == [("open", ',"n":"/canary"')]
    assert log.counts == {"open": 2}


def test_given_a_full_disk_when_events_are_added_then_each_is_counted_as_lost_and_nothing_is_raised() -> None:
    fd = os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC)
    try:
        log = Log(fd, 1000)
        for _ in range(3):
            log.add("open", 1, 1, ',"n":"x"')
    finally:
        os.close(fd)
    assert log.lost == 3
    assert log.count == 3


def test_given_a_disk_that_fills_in_the_middle_of_a_line_when_written_then_the_line_is_lost(
    make: Callable[[], tuple[Log, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = make()
    log.add("world", 0, 0)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
    log.add("open", 0, 0)
    monkeypatch.undo()
    assert log.lost == 1
    log.add("end", 0, 0)
    report = Evidence.from_bytes(path.read_bytes()).verify_chain()
    assert not report.ok
    assert report.first_bad_line == 2


def test_given_one_event_when_written_then_it_is_one_write(
    make: Callable[[], tuple[Log, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = make()
    seen: list[bytes] = []
    monkeypatch.setattr(os, "write", lambda fd, data: seen.append(data) or len(data))
    log.add("open", 1, 1, f',"n":{text(b"x" * 9000)}')
    assert len(seen) == 1
    assert seen[0].endswith(b'"}\n')


@pytest.mark.parametrize("value", HOSTILE)
def test_given_hostile_bytes_when_logged_then_the_same_bytes_are_read_back_from_one_line(
    make: Callable[[], tuple[Log, Path]], value: bytes
) -> None:
    log, path = make()
    log.add("world", 0, 0)
    log.add("open", 1, 1, f',"n":{text(value)}')
    log.record({"e": "exec", "argv": [value, os.fsdecode(value)], "n": value})
    raw = path.read_bytes()
    assert raw.isascii()
    assert raw.count(b"\n") == 3
    events = list(Evidence.from_bytes(raw).events())
    assert Evidence.from_bytes(raw).verify_chain().ok
    back = value.decode("utf-8", "surrogateescape").encode("utf-8", "surrogateescape")
    assert events[1].text("n").encode("utf-8", "surrogateescape") == back == value
    assert events[2].texts("argv") == (events[1].text("n"),) * 2


def test_given_an_event_whose_fields_hold_raw_text_when_added_then_the_line_is_still_ascii(
    make: Callable[[], tuple[Log, Path]],
) -> None:
    log, path = make()
    log.add("limit", 0, 0, ',"d":"é\udcff"')
    assert path.read_bytes().isascii()
    assert Evidence.from_bytes(path.read_bytes()).verify_chain().ok


def test_given_a_phase_when_set_then_only_that_commands_events_carry_it_until_it_ends(
    make: Callable[[], tuple[Log, Path]],
) -> None:
    log, path = make()
    log.set_phase(1, "install")
    log.add("open", 5, 1)
    log.add("open", 6, 2)
    log.set_phase(1, "call")
    log.add("open", 5, 1)
    log.set_phase(2, 'x","e":"end' + "y" * 100)
    log.add("open", 6, 2)
    events = lines(path)
    assert [e.get("f") for e in events[:3]] == ["install", None, None]
    assert events[3]["e"] == "open"
    assert events[3]["f"] == ('x","e":"end' + "y" * 100)[:32]


@pytest.mark.parametrize("phase", ["install", "import", "exit", "post", 'quo"te', "dé", "\\"])
def test_given_a_phase_when_a_later_event_is_prepared_then_its_cause_names_the_same_phase(
    make: Callable[[], tuple[Log, Path]], phase: str
) -> None:
    log, path = make()
    log.set_phase(3, phase)
    log.record({"e": "flow", **log.cause(40, 3)})
    log.add("open", 40, 3)
    flow, opened = lines(path)
    assert flow["f"] == opened["f"] == phase
    assert (flow["p"], flow["c"]) == (40, 3)


# --- text and values --------------------------------------------------------------------------------------------------


@given(value=st.binary(max_size=6000) | st.text(max_size=6000))
def test_given_any_text_when_written_then_it_is_ascii_json_and_round_trips_or_is_cut(value: bytes | str) -> None:
    literal = text(value)
    assert literal.isascii()
    back = json.loads(literal)
    wanted = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    joined = wanted.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert back in (joined, joined[:4096] + "…") or back == wanted[:4096] + "…"
    assert back.endswith("…") or back == joined


@pytest.mark.parametrize(("size", "cut"), [(4095, False), (4096, False), (4097, True), (1 << 20, True)])
def test_given_a_long_text_when_written_then_it_is_cut_at_4096_characters_and_says_so(size: int, cut: bool) -> None:
    back = json.loads(text(b"a" * size))
    assert back == ("a" * 4096 + "…" if cut else "a" * size)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 64), 1 << 64) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def normal(value: object) -> object:
    """As JSON has it: surrogate pairs joined."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, dict):
        return {normal(k): normal(v) for k, v in value.items()}
    return [normal(v) for v in value] if isinstance(value, list) else value


@given(value=VALUES)
def test_given_plain_data_when_encoded_then_json_reads_the_same(value: object) -> None:
    literal = encode(value)
    assert literal.isascii()
    assert json.loads(literal) == normal(value)


@given(value=st.floats(-1e9, 1e9, allow_nan=False))
def test_given_a_number_when_encoded_then_six_decimals_are_kept(value: float) -> None:
    assert json.loads(encode(value)) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_given_no_number_when_encoded_then_the_line_is_still_json(value: float) -> None:
    json.loads(encode(value), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


COMMON = {"i", "t", "e", "p", "c", "f", "s", "r", "h"}
"""Fields whose types the reader checks; a caller of the log never gives them a foreign value."""


@given(fields=st.dictionaries(st.text(max_size=8).filter(lambda key: key not in COMMON), VALUES, max_size=5))
def test_given_any_fields_when_recorded_then_the_reader_finds_them_in_the_event(fields: dict[str, object]) -> None:
    reader, writer = os.pipe()
    try:
        Log(writer, 10).record({**fields, "e": "flow", "p": 3, "c": 1})
        event = parse_event(os.read(reader, 1 << 20))
    finally:
        os.close(reader)
        os.close(writer)
    assert (event.type, event.number, event.pid, event.command) == ("flow", 0, 3, 1)
    assert {k: v for k, v in event.data.items() if k not in COMMON} == normal(fields)
