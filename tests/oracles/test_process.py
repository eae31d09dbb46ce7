"""The verdict as a whole: doubt, agreement of witnesses, determinism, bounds, hostile records."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aboveboard.contract import Contract
from aboveboard.evidence import Evidence
from aboveboard.oracles.catalogue import CLASSES, REQUIRED, WITNESS_EVENTS
from aboveboard.oracles.process import conditional_effects, judge

from .records import (
    HOME,
    WITNESSES,
    WS,
    Fields,
    changed,
    executed,
    flow,
    http,
    net,
    opened,
    query,
    record,
    verdict,
    written,
)
from .test_kinds import FORBIDDEN, NOTED, TWINS

DEFAULT = Contract.default()


def codes(evidence: Evidence, contract: Contract = DEFAULT, **options: Any) -> tuple[str, set[str]]:
    result = judge(evidence, contract, **options)
    return result.verdict, {reason.code for reason in result.reasons}


def test_a_whole_record_of_harmless_events_is_clean() -> None:
    result = verdict(opened(f"{WS}/input/a"), *written(f"{WS}/output/b"))
    assert (result.verdict, result.reasons) == ("clean", ())
    assert result.assurance.complete
    assert set(result.assurance.classes) == set(CLASSES)


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("no-end", {"end": False}),
        ("events-lost", {"lost": 1}),
        ("ended-early", {"reason": "killed"}),
        ("command-unfinished", {"status": False}),
        ("census-missing", {"packets": False}),
        ("packets-dropped", {"drops": 3}),
        ("process-unseen", {"allocated": 5}),
        ("witness-missing", {"witness": "sink"}),
        ("packets-unexplained", {"census": [{"proto": "tcp", "src": "127.0.0.1", "dst": "203.0.113.5", "dport": 9}]}),
        ("format", {"header": {"v": 2}}),
        ("tier", {"header": {"tier": "N"}}),
        ("tier", {"header": {"tier": "made up"}}),
    ],
)
def test_a_gap_makes_the_verdict_indeterminate(code: str, options: dict[str, Any]) -> None:
    answer, found = codes(record(**options))
    assert answer == "indeterminate"
    assert code in found


def test_a_limit_that_was_reached_is_a_reason() -> None:
    answer, found = codes(record({"e": "limit", "what": "wall", "d": "longer than 300 s"}))
    assert (answer, found) == ("indeterminate", {"limit"})


def test_a_breach_outweighs_doubt_and_the_doubt_is_still_told() -> None:
    result = verdict(opened(f"{HOME}/.aws/credentials"), end=False)
    assert result.verdict == "forbidden"
    assert {reason.code for reason in result.reasons} == {"no-end"}


def test_a_search_that_was_cut_short_weakens_what_is_known_of_secrets() -> None:
    result = judge(record({"e": "limit", "what": "scan", "d": "256 MiB"}), DEFAULT)
    assert result.verdict == "indeterminate"
    assert [(reason.code, reason.channel) for reason in result.reasons] == [("limit", "secret")]
    assert result.assurance.classes["secret"] == ("partial", ("canary",), ())
    assert [(e.kind, e.disposition) for e in result.effects] == [(22, "noted")]


def of_tier(tier: str, *events: Fields) -> Evidence:
    """A record of a lower tier, with the witnesses that it has."""
    names = sorted({name for needed in REQUIRED[tier].values() for name in needed})
    lines = [json.loads(event) for event in _lines(record(*events, header={"tier": tier}))]
    lines = [line for line in lines if line["e"] not in ("witness", "end", "packets", "pids")]
    lines[1:1] = [{"e": "witness", "name": name, "ok": True} for name in names]
    for number, line in enumerate(lines):
        line["i"] = number
        line.pop("h", None)
    return Evidence.from_events([*lines, {"e": "end", "reason": "exit", "lost": 0, "counts": {}}])


@pytest.mark.parametrize(("tier", "refused", "accepted"), [("N", "UR", "NP"), ("P", "NUR", "P")])
def test_a_lower_tier_is_accepted_only_by_a_contract_that_says_so(tier: str, refused: str, accepted: str) -> None:
    evidence = of_tier(tier)
    for minimum in refused:
        result = judge(evidence, DEFAULT.replace(minimum_tier=minimum))
        assert result.verdict == "indeterminate"
        assert [reason.code for reason in result.reasons] == ["tier"]
    for minimum in accepted:
        assert judge(evidence, DEFAULT.replace(minimum_tier=minimum)).verdict == "clean"


@pytest.mark.parametrize(
    ("tier", "lacking"),
    [
        ("N", {"transmission": ("packets",), "process": ("pidns",)}),
        ("P", {"read": ("notify",), "transmission": ("packets",), "process": ("pidns", "notify")}),
    ],
)
def test_a_lower_tier_says_which_classes_it_watches_in_part(tier: str, lacking: dict[str, tuple[str, ...]]) -> None:
    state = judge(of_tier(tier), DEFAULT.replace(minimum_tier=tier)).assurance
    assert not state.complete
    assert {n: entry.missing for n, entry in state.classes.items() if entry.status == "partial"} == lacking
    assert all(entry.proven for entry in state.classes.values())


@pytest.mark.parametrize(
    ("tier", "witness"), [(t, w) for t in "NP" for w in sorted({n for v in REQUIRED[t].values() for n in v})]
)
def test_a_lower_tier_without_one_of_its_witnesses_is_indeterminate(tier: str, witness: str) -> None:
    served = {name for name, needed in REQUIRED[tier].items() if witness in needed}
    result = judge(of_tier(tier), DEFAULT.replace(minimum_tier=tier), disabled={witness})
    assert result.verdict == "indeterminate"
    assert {reason.channel for reason in result.reasons if reason.code == "witness-missing"} == served


@pytest.mark.parametrize(("tier", "witnesses"), [("N", ("walk", "notify")), ("P", ("walk", "ptrace"))])
def test_effects_name_the_witnesses_that_the_tier_has(tier: str, witnesses: tuple[str, ...]) -> None:
    (effect,) = judge(of_tier(tier, *written(f"{WS}/x")), DEFAULT).forbidden
    assert effect.witnesses == witnesses


@pytest.mark.parametrize("witness", WITNESSES)
def test_switching_a_witness_off_makes_its_classes_indeterminate(witness: str) -> None:
    served = {name for name, needed in REQUIRED["U"].items() if witness in needed}
    for evidence, options in ((record(), {"disabled": {witness}}), (record(header={"disabled": [witness]}), {})):
        result = judge(evidence, DEFAULT, **options)
        assert result.verdict == "indeterminate"
        assert {reason.channel for reason in result.reasons if reason.code == "witness-missing"} == served
        assert {name for name, entry in result.assurance.classes.items() if entry.status != "complete"} == served


@pytest.mark.parametrize("row", FORBIDDEN, ids=[f"{row[1]}: {row[0]}" for row in FORBIDDEN])
def test_no_breach_becomes_clean_by_switching_one_witness_off(row: Any) -> None:
    evidence = record(*row[2])
    for witness in WITNESS_EVENTS:
        if any(witness in needed for needed in REQUIRED["U"].values()):
            assert judge(evidence, row[3] or DEFAULT, disabled={witness}).verdict != "clean", witness


def test_a_witness_that_lost_something_at_the_end_is_not_proven() -> None:
    evidence = record({"e": "witness", "name": "sink", "ok": False, "detail": "3 datagrams lost"})
    result = judge(evidence, DEFAULT)
    assert result.verdict == "indeterminate"
    assert "3 datagrams lost" in result.reasons[0].detail


def test_without_the_change_witness_an_open_for_writing_is_the_proof() -> None:
    evidence = record(opened(f"{WS}/elsewhere/x", "wct"))
    assert judge(evidence, DEFAULT).verdict == "clean"
    assert judge(evidence, DEFAULT, disabled={"overlay"}).verdict == "forbidden"


def test_tier_r_explains_every_open_past_the_supervisor_by_an_exec() -> None:
    header = {"tier": "R"}
    by_exec = {"e": "fanotify", "x": "/usr/lib/ld-linux-x86-64.so.2", "exec": True}
    assert codes(record(by_exec, header=header)) == ("clean", set())
    unseen = {"e": "fanotify", "x": f"{WS}/private/x", "exec": False}
    assert codes(record(unseen, header=header)) == ("indeterminate", {"open-unseen"})


def test_traffic_known_by_a_call_or_by_the_sink_explains_the_census_both_ways() -> None:
    census = [
        {"proto": "tcp", "src": "127.0.0.1", "sport": 40000, "dst": "127.0.0.1", "dport": 35000},
        {"proto": "tcp", "src": "127.0.0.1", "sport": 35000, "dst": "127.0.0.1", "dport": 40000},
        {"proto": "udp", "src": "10.0.2.3", "sport": 0, "dst": "192.0.2.35", "dport": 51212, "loopback": True},
        {"proto": "udp", "src": "10.0.2.3", "sport": 53, "dst": "10.0.2.15", "dport": 40001},
    ]
    events = (net("listen", "127.0.0.1", 35000), query("localhost"))
    assert codes(record(*events, census=census)) == ("clean", set())


def test_a_changed_byte_a_missing_line_and_a_swap_break_the_chain() -> None:
    lines = _lines(record(opened(f"{WS}/input/a"), opened(f"{WS}/input/b")))
    edited = [line.replace(b"input/a", b"input/c") for line in lines]
    removed = lines[:12] + lines[13:]
    swapped = [*lines[:11], lines[12], lines[11], *lines[13:]]
    for broken in (edited, removed, swapped):
        answer, found = codes(Evidence.from_bytes(b"\n".join(broken) + b"\n"))
        assert answer == "indeterminate"
        assert "chain-broken" in found


def test_every_prefix_of_a_record_is_judged_and_none_is_clean() -> None:
    log = b"\n".join(_lines(record(opened(f"{WS}/input/a"), *written(f"{WS}/output/x")))) + b"\n"
    for size in range(0, len(log) - 1, 97):
        assert judge(Evidence.from_bytes(log[:size]), DEFAULT).verdict == "indeterminate"


def test_what_is_conditional_shows_when_environments_are_compared() -> None:
    verdicts = {"dev": verdict(), "ci": verdict(flow("203.0.113.9", 80, http=http()))}
    found = conditional_effects(verdicts)
    assert [(effect.kind, effect.disposition) for effect in found] == [(26, "forbidden")]
    assert "ci only" in found[0].rule
    assert conditional_effects({"a": verdict(), "b": verdict()}) == ()


@pytest.mark.parametrize("row", [*FORBIDDEN, *NOTED, *TWINS], ids=lambda row: f"{row[0]}"[:40])
def test_judging_is_deterministic_and_its_answer_is_json(row: Any) -> None:
    events = row[2]
    contract = row[3] if len(row) > 3 and row[3] is not None else DEFAULT
    evidence = record(*events)
    first, second = judge(evidence, contract), judge(evidence, contract)
    assert first == second
    text = json.dumps(first.to_dict())
    assert json.loads(text)["verdict"] in ("clean", "forbidden", "indeterminate")
    assert set(first.to_dict()) == {
        "format",
        "verdict",
        "reasons",
        "effects",
        "assurance",
        "notes",
        "contract",
        "evidence",
    }


EVENT_LISTS = st.lists(st.sampled_from([event for row in (*FORBIDDEN, *NOTED, *TWINS) for event in row[2]]), max_size=8)
PATTERNS = st.sampled_from(["**", "private/**", "output/**", "input/**", "/tmp/**", "~/**", "*.txt", "/etc/machine-id"])
CONTRACTS = st.builds(
    Contract,
    read=st.lists(PATTERNS, max_size=2),
    write=st.lists(PATTERNS, max_size=2),
    delete=st.lists(PATTERNS, max_size=1),
    metadata=st.lists(PATTERNS, max_size=1),
    network=st.lists(st.sampled_from(["*:*", "203.0.113.9:80", "*.test:443"]), max_size=2),
    share_input=st.lists(st.sampled_from(["*:*", "api.test:443"]), max_size=1),
    programs=st.lists(st.sampled_from(["*", "git", "/usr/bin/curl"]), max_size=2),
    listen=st.lists(st.sampled_from([4444, 8080]), max_size=1),
    environment=st.lists(st.just("HF_TOKEN"), max_size=1),
)
LISTS = ["read", "write", "delete", "metadata", "network", "share_input", "programs", "listen", "environment"]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVENT_LISTS, CONTRACTS, CONTRACTS)
def test_allowing_more_never_makes_a_breach_and_allowing_less_never_removes_one(
    events: list[Any], small: Contract, extra: Contract
) -> None:
    large = small.replace(**{key: getattr(small, key) + getattr(extra, key) for key in LISTS})
    evidence = record(*events)
    if judge(evidence, small).verdict == "clean":
        assert judge(evidence, large).verdict == "clean"
    if judge(evidence, large).verdict == "forbidden":
        assert judge(evidence, small).verdict == "forbidden"


TYPES = sorted(
    [
        "world",
        "witness",
        "command",
        "status",
        "phase",
        "proc",
        "gone",
        "open",
        "exec",
        "hash",
        "fs",
        "meta",
        "net",
        "flow",
        "packets",
        "escape",
        "probe",
        "limit",
        "signal",
        "fanotify",
        "change",
        "survivor",
        "pids",
        "end",
        "odd",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [
            f"{HOME}/.aws/credentials",
            WS,
            "/proc/self/mem",
            "/../..",
            "inet",
            "dgram",
            "listen",
            "rename",
            "ok",
            "denied",
            "r",
            "w",
            "created",
            "modified",
            "deleted",
            "meta",
            "dir",
            "a.pyc",
            "\udcff",
            "…",
            "x" * 5000,
            "0.0.0.0",
            "dns",
            "tcp",
        ]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "enc", "name", "host", "mode", "size", "path", "canary", "src", "dst", "dport"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "n",
        "x",
        "a",
        "s",
        "r",
        "p",
        "c",
        "f",
        "v",
        "k",
        "to",
        "tox",
        "d",
        "fam",
        "typ",
        "addr",
        "port",
        "name",
        "proto",
        "dst",
        "len",
        "http",
        "tls",
        "dns",
        "canaries",
        "service",
        "w",
        "before",
        "mode",
        "xattrs",
        "link",
        "magic",
        "argv",
        "h256",
        "fileless",
        "env",
        "what",
        "flows",
        "drops",
        "allocated",
        "seen",
        "threads",
        "reason",
        "counts",
        "lost",
        "tier",
        "roots",
        "decoys",
        "workspace",
        "home",
        "environ_canaries",
        "services",
        "disabled",
        "ok",
        "detail",
        "exec",
        "to",
        "sig",
        "pp",
        "i",
        "t",
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TYPES), st.dictionaries(FIELDS, VALUES, max_size=8)), max_size=12))
def test_no_event_can_crash_the_judge(events: list[tuple[str, dict[str, Any]]]) -> None:
    evidence = record(*({"e": kind, **fields} for kind, fields in events if kind != "world"), census=[])
    judge(evidence, DEFAULT)
    judge(Evidence.from_events([{"e": kind, **fields} for kind, fields in events]), Contract(read=["**"], write=["a"]))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_can_crash_the_judge_or_be_clean(data: bytes) -> None:
    assert judge(Evidence.from_bytes(data), DEFAULT).verdict == "indeterminate"


def test_a_flood_is_judged_in_time_linear_in_its_length() -> None:
    rng = random.Random(1)
    places = [f"{WS}/input", f"{WS}/output", "/usr/lib/python3.11", "/tmp", f"{WS}/private", "/proc/self"]
    events = [
        opened(f"{rng.choice(places)}/f{number}", rng.choice(["r", "wct", "r"]), rng.choice(["ok", "ok", "ENOENT"]))
        for number in range(100_000)
    ]
    evidence = record(*events)
    start = time.process_time()
    result = judge(evidence, DEFAULT)
    # The bar is 2 s; a slow shared machine gets three times that, a quadratic judge would need minutes.
    assert time.process_time() - start < 6
    assert result.verdict == "forbidden"
    assert len(result.effects) < 20_000


def test_a_flood_of_breaches_is_bounded_and_said_to_be() -> None:
    result = verdict(*(changed(f"{WS}/f{number}") for number in range(6_000)))
    assert result.verdict == "forbidden"
    assert len(result.effects) == 5_000
    assert "too-much" in {reason.code for reason in result.reasons}


def test_the_same_program_twice_is_one_effect_counted_twice() -> None:
    result = verdict(*executed("/usr/bin/curl", "curl"), *executed("/usr/bin/curl", "curl", pid=21))
    assert [(effect.kind, effect.times) for effect in result.forbidden] == [(18, 2)]


def _lines(evidence: Evidence) -> list[bytes]:
    return evidence._open().read().splitlines()
