"""Queries for names are held to the name server and to their question; the census to addresses and ports."""

from __future__ import annotations

from typing import Any

import pytest

from aboveboard.contract import Contract
from aboveboard.evidence import Verdict

from .records import Fields, flow, net, verdict

NAMED = Contract(network=["api.test:443"])
SERVER = "10.0.2.3"


def kinds(found: Verdict) -> set[int]:
    return {effect.kind for effect in found.forbidden}


def asked(dst: str, name: str = "api.test", **more: Any) -> Fields:
    return flow(dst, 53, "dns", 40, dns={"name": name, "type": 1}, **more)


def test_a_query_to_another_name_server_is_forbidden_even_for_an_allowed_name() -> None:
    assert verdict(asked(SERVER), contract=NAMED).verdict == "clean"
    for name in ("api.test", "localhost"):
        assert kinds(verdict(asked("192.0.2.53", name), contract=NAMED)) == {2}
    both = NAMED.replace(network=["api.test:443", "udp:192.0.2.53:53"])
    assert verdict(asked("192.0.2.53"), contract=both).verdict == "clean"
    assert kinds(verdict(asked("192.0.2.53", "data.test"), contract=both)) == {2}


@pytest.mark.parametrize("proto", ["udp", "tcp"])
@pytest.mark.parametrize("dst", [SERVER, "192.0.2.53"])
def test_what_is_no_query_is_forbidden_at_port_53_too(proto: str, dst: str) -> None:
    assert kinds(verdict(flow(dst, 53, proto, 500), asked(SERVER), contract=NAMED)) == {3}


def test_a_connection_to_the_name_server_carries_its_queries_and_no_byte_more() -> None:
    queries = [asked(SERVER), asked(SERVER, "b.api.test")]
    allowed = Contract(network=["api.test:443", "b.api.test:443"])
    assert verdict(*queries, flow(SERVER, 53, "tcp", 84), contract=allowed).verdict == "clean"
    assert kinds(verdict(*queries, flow(SERVER, 53, "tcp", 85), contract=allowed)) == {3}
    assert kinds(verdict(*queries, {**flow(SERVER, 53, "tcp", 84), "src": ["127.0.0.1", 1]}, contract=allowed)) == {3}


@pytest.mark.parametrize("name", ["localhost", "api.test", "4.3.2.1.127.in-addr.arpa"])
def test_a_query_that_holds_more_than_its_question_is_forbidden(name: str) -> None:
    longest = 12 + len(name) + 2 + 4 + 11 + 28
    fits, over = ({**asked(SERVER, name), "len": size} for size in (longest, longest + 1))
    assert verdict(fits, contract=NAMED).verdict == "clean"
    assert kinds(verdict(over, contract=NAMED)) == {2}


def test_a_denied_attempt_is_told_where_something_was_received_before() -> None:
    told = flow("203.0.113.9", 4444)
    found = verdict(told, net("connect", "203.0.113.9", 4444, r="denied"))
    assert {(effect.kind, effect.level) for effect in found.forbidden} == {(3, "effect"), (3, "attempt")}


def packet(dst: str, dport: int, src: str = "10.0.2.15", sport: int = 40000, proto: str = "tcp") -> Fields:
    return {"proto": proto, "src": src, "sport": sport, "dst": dst, "dport": dport, "n": 1}


@pytest.mark.parametrize(
    ("events", "census", "explained"),
    [
        ([net("bind", "127.0.0.1", 443)], packet("203.0.113.9", 443), False),
        ([net("bind", "127.0.0.1", 443)], packet("127.0.0.1", 443), True),
        ([net("bind", "127.0.0.1", 443)], packet("127.0.0.1", 5000, "127.0.0.1", 443), True),
        ([net("bind", "0.0.0.0", 443)], packet("203.0.113.9", 443), False),
        ([net("bind", "0.0.0.0", 443)], packet("203.0.113.9", 9, sport=443), False),
        ([net("bind", "0.0.0.0", 443)], packet("127.0.0.1", 443), True),
        ([net("bind", "::", 443, fam="inet6")], packet("::1", 443, "::1"), True),
        ([net("bind", "0.0.0.0", 443)], {**packet("10.0.2.15", 443), "loopback": True}, True),
        ([net("bind", "0.0.0.0", 0)], packet("127.0.0.1", 0), False),
        ([net("connect", "203.0.113.9", 443, r="denied")], packet("203.0.113.9", 443), False),
        ([], packet("203.0.113.9", 8080), False),
        ([], packet("10.0.2.9", 8080), True),
    ],
)  # fmt: skip
def test_the_census_is_explained_by_the_address_and_the_port(
    events: list[Fields], census: Fields, explained: bool
) -> None:
    found = verdict(*events, contract=Contract(listen=[443]), census=[census])
    assert ("packets-unexplained" not in {reason.code for reason in found.reasons}) == explained


@pytest.mark.parametrize("field", ["overflow", "unparsed"])
def test_a_census_that_could_not_tell_all_makes_the_verdict_indeterminate(field: str) -> None:
    found = verdict({"e": "packets", "flows": [], field: 2})
    assert (found.verdict, {reason.code for reason in found.reasons}) == ("indeterminate", {f"packets-{field}"})
    assert verdict({"e": "packets", "flows": [], field: 0}).verdict == "clean"


def test_threads_are_among_the_processes_that_were_seen() -> None:
    found = verdict({"e": "pids", "allocated": 6, "seen": 4, "threads": 2})
    assert {reason.code for reason in found.reasons} == {"process-unseen"}
