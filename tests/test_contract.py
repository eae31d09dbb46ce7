"""The contract: what is accepted, what a pattern covers, and how mistakes are answered."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aboveboard.contract import Contract, ContractError, NetworkRules, PathRules, normalise, parse_destination

WORKSPACE, HOME = "/home/dev/work", "/home/dev"


def rules(*patterns: str) -> PathRules:
    return Contract(read=patterns).compile(workspace=WORKSPACE, home=HOME).read


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("input/**", ["input", "input/a", "input/a/b.txt", "input/.hidden"], ["inputs", "input2/a", "a/input/b", ""]),
        ("input/", ["input", "input/a/b"], ["inputs/a"]),
        ("input/*.csv", ["input/a.csv", "input/.csv"], ["input/a/b.csv", "input/a.csvx", "input"]),
        ("data.csv", ["data.csv"], ["data.csv/x", "xdata.csv", "sub/data.csv"]),
        ("**/x.txt", ["x.txt", "a/x.txt", "a/b/x.txt"], ["a/xx.txt", "x.txt/y"]),
        ("a/**/b/*", ["a/b/c", "a/x/y/b/c"], ["a/b", "a/b/c/d", "a/bb/c"]),
        ("a/**/b*c/**", ["a/bc", "a/x/bxxc/y/z", "a/b1c/b2c"], ["a/x/b/y", "b1c"]),
        ("log-?.txt", ["log-1.txt", "log-ä.txt"], ["log-12.txt", "log-/.txt"]),
        ("v[0-9].txt", ["v1.txt"], ["va.txt", "v10.txt"]),
        ("v[!0-9].txt", ["va.txt"], ["v1.txt", "v/.txt"]),
        ("**", ["a", "a/b/c"], ["../x"]),
    ],
)
def test_a_relative_pattern_covers_its_part_of_the_workspace(
    pattern: str, covered: list[str], not_covered: list[str]
) -> None:
    matcher = rules(pattern)
    for path in covered:
        assert matcher.match(f"{WORKSPACE}/{path}"), path
        assert matcher.rule(f"{WORKSPACE}/{path}") is not None, path
    for path in not_covered:
        assert (pattern == "**" and path == "") or not matcher.match(normalise(f"{WORKSPACE}/{path}")), path


def test_absolute_and_home_patterns_are_anchored_where_they_say() -> None:
    matcher = rules("/srv/data/**", "~/.cache/tool/**", "~/notes")
    assert matcher.match("/srv/data")
    assert matcher.match("/srv/data/x")
    assert matcher.match("/home/dev/.cache/tool/a")
    assert matcher.match("/home/dev/notes")
    assert not matcher.match("/home/dev/work/srv/data/x")
    assert not matcher.match("/home/dev/notes/x")


def test_a_path_that_is_not_normal_is_judged_by_where_it_leads() -> None:
    matcher = rules("input/**")
    assert not matcher.match(f"{WORKSPACE}/input/../secret")
    assert not matcher.match(f"{WORKSPACE}/input/..")
    assert matcher.match(f"{WORKSPACE}//input/./a")


def test_siblings_of_a_sqlite_database_in_scope_are_in_scope() -> None:
    matcher = rules("output/app.db", "cache/*.sqlite")
    for suffix in ("-wal", "-shm", "-journal"):
        assert matcher.match(f"{WORKSPACE}/output/app.db{suffix}")
        assert matcher.match(f"{WORKSPACE}/cache/x.sqlite{suffix}")
    assert not matcher.match(f"{WORKSPACE}/output/other.db-wal")
    assert not matcher.match(f"{WORKSPACE}/output/app.db-evil")


def test_wildcard_characters_in_the_workspace_itself_are_letters() -> None:
    matcher = PathRules(("in/**", "x*"), workspace="/w/[a]*", home=HOME)
    assert matcher.match("/w/[a]*/in/f")
    assert matcher.match("/w/[a]*/x1")
    assert not matcher.match("/w/a/in/f")
    assert not matcher.match("/w/[a]bc/in/f")


def test_thousands_of_subtrees_are_as_exact_as_one() -> None:
    matcher = rules(*(f"d{number}/**" for number in range(5000)))
    assert matcher.match(f"{WORKSPACE}/d4999/x")
    assert not matcher.match(f"{WORKSPACE}/d5000/x")
    assert matcher.rule(f"{WORKSPACE}/d7/x") == "d7/**"


def test_a_hostile_path_cannot_make_a_pattern_slow() -> None:
    matcher = rules("*a*a*a*a*a*a*a*a*b", "**/a*a*a*a*c/**/d")
    assert not matcher.match(f"{WORKSPACE}/" + "a" * 4000)
    assert not matcher.match(f"{WORKSPACE}/" + "/".join(["a" * 250] * 16))


@pytest.mark.parametrize(
    ("pattern", "protocol", "hosts", "port", "allowed"),
    [
        ("api.example.test:443", "tcp", ["api.example.test"], 443, True),
        ("API.Example.test.:443", "udp", ["api.example.TEST."], 443, True),
        ("api.example.test:443", "tcp", ["api.example.test"], 80, False),
        ("api.example.test:*", "tcp", ["api.example.test"], 1, True),
        ("tcp:api.example.test:443", "udp", ["api.example.test"], 443, False),
        ("udp:192.0.2.1:123", "udp", ["192.0.2.1"], 123, True),
        ("*.example.test:443", "tcp", ["a.b.example.test"], 443, True),
        ("*.example.test:443", "tcp", ["example.test"], 443, False),
        ("*.example.test:443", "tcp", ["example.test.evil.test"], 443, False),
        ("*.1:80", "tcp", ["198.51.100.1"], 80, False),
        ("*:80", "tcp", ["198.51.100.1"], 80, True),
        ("[2001:DB8:0::1]:443", "tcp", ["2001:db8::1"], 443, True),
        ("192.0.2.7:80", "tcp", ["::ffff:192.0.2.7"], 80, True),
        ("good.test:80", "tcp", ["192.0.2.7", "good.test"], 80, True),
    ],
)
def test_network_patterns(pattern: str, protocol: str, hosts: list[str], port: int, allowed: bool) -> None:
    assert (NetworkRules((pattern,)).rule(protocol, hosts, port) is not None) is allowed


def test_a_host_that_may_be_contacted_may_be_looked_up() -> None:
    network = NetworkRules(("api.example.test:443",))
    assert network.names("api.example.test.")
    assert not network.names("x.api.example.test")


def test_a_program_is_known_by_name_only_when_it_is_the_systems_own() -> None:
    programs = Contract(programs=["git", "/usr/bin/env", "sha256:" + "AB" * 32]).compile(workspace="/w").programs
    assert programs.rule("git", "/usr/bin/git", "", original=True) == "git"
    assert programs.rule("/tmp/git", "/tmp/git", "", original=False) is None
    assert programs.rule("x", "/tmp/x", "ab" * 32, original=False) == "sha256:" + "ab" * 32
    assert programs.rule("env", "/usr/bin/env", "", original=True) == "/usr/bin/env"
    assert programs.rule("sh", "/usr/bin/sh", "", original=True) is None


def test_the_default_reads_input_and_writes_output_only() -> None:
    contract = Contract.default()
    assert (contract.read, contract.write) == (("input/**",), ("output/**",))
    assert not (contract.network)
    assert not (contract.programs)
    assert not (contract.metadata)
    assert not (contract.delete)
    assert not (contract.listen)
    assert contract.minimum_tier == "U"


def test_a_file_is_read_as_it_is_written_in_the_docs(tmp_path: object) -> None:
    text = """
        [contract]
        read = ["input/**"]
        write = ["output/**"]
        network = ["api.example.test:443"]
        programs = ["git"]
        metadata = []
        grace_seconds = 1
        wall_seconds = 60
        listen = [8080]
        environment = ["API_KEY"]
        minimum_tier = "N"
    """
    contract = Contract.load(text)
    assert contract.listen == (8080,)
    assert contract.wall_seconds == 60.0
    assert contract.grace_seconds == 1.0
    assert contract.environment == ("API_KEY",)
    assert contract.minimum_tier == "N"


def test_equal_contracts_have_equal_text_digest_and_hash() -> None:
    one = Contract(read=["b", "a/", "a/**"], network=["X.test:1"])
    two = Contract(read=["./a/**", "b"], network=["x.test.:1"])
    assert one == two
    assert hash(one) == hash(two)
    assert one.digest() == two.digest()
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != one.replace(read=["a/**"])


def test_a_contract_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Contract.default().read = ("**",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[contract]\nreads = []", "did you mean read"),
        ("[contrct]\nread = []", r"\[contract\]"),
        ("", r"no \[contract\] table"),
        ("contract = 3", r"no \[contract\] table"),
        ("[contract]\nread = 'input'", "must be a list"),
        ("[contract]\nread = [1]", "not a string"),
        ("[contract]\nread = ['../x']", "absolute path"),
        ("[contract]\nread = ['a/**b']", "whole component"),
        ("[contract]\nread = ['']", "empty"),
        ("[contract]\nread = ['~root/x']", "only ~/"),
        ("[contract]\nread = ['a[b']", "not closed"),
        ("[contract]\nread = ['[z-a]']", "empty range"),
        ('[contract]\nread = ["a\\u0000b"]', "NUL"),
        ("[contract]\nnetwork = ['host']", "no port"),
        ("[contract]\nnetwork = ['host:99999']", "1-65535"),
        ("[contract]\nnetwork = ['2001:db8::1:80']", "brackets"),
        ("[contract]\nnetwork = ['[nonsense]:80']", "not an IPv6"),
        ("[contract]\nnetwork = ['a b:80']", "not a name"),
        ("[contract]\nprograms = ['bin/x']", "neither a name"),
        ("[contract]\nprograms = ['sha256:12']", "64 hexadecimal"),
        ("[contract]\nlisten = ['80']", "not a port"),
        ("[contract]\nlisten = [true]", "not a port"),
        ("[contract]\nenvironment = ['A-B']", "environment variable"),
        ("[contract]\ngrace_seconds = -1", "number of seconds"),
        ("[contract]\ngrace_seconds = nan", "number of seconds"),
        ("[contract]\nwall_seconds = 'x'", "number of seconds"),
        ("[contract]\nminimum_tier = 'Z'", "one of"),
        ("[contract", "not valid TOML"),
        ("[contract]\nread = " + "[" * 20_000, "TOML"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(text: str, told: str) -> None:
    with pytest.raises(ContractError, match=told):
        Contract.parse(text)


def test_bounds() -> None:
    with pytest.raises(ContractError, match="larger"):
        Contract.parse(b"#" * (1 << 20) + b"\n[contract]")
    with pytest.raises(ContractError, match="patterns"):
        Contract(read=[f"f{number}" for number in range(10_001)])
    with pytest.raises(ContractError, match="characters"):
        Contract(read=["x" * 5000])
    with pytest.raises(ContractError, match="UTF-8"):
        Contract.parse(b"[contract]\nread = ['\xff']")
    with pytest.raises(ContractError, match="cannot read"):
        Contract.load("/nowhere/contract.toml")


PATH_TEXT = st.text(st.sampled_from('abcé./*?[]!-~\n"\\ \x01'), max_size=12)


@settings(max_examples=300, deadline=None)
@given(st.lists(PATH_TEXT, max_size=4), st.lists(st.text(max_size=12), max_size=3))
def test_whatever_is_accepted_comes_back_from_its_own_toml(paths: list[str], other: list[str]) -> None:
    try:
        contract = Contract(read=paths, write=other, network=[f"{text}:80" for text in other], programs=other)
    except ContractError:
        return
    again = Contract.parse(contract.to_toml())
    assert again == contract
    assert again.to_toml() == contract.to_toml()
    assert again.digest() == contract.digest()


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: f"[contract]\n{text}".encode("utf-8", "replace"))
)
def test_any_bytes_are_a_contract_or_a_contract_error(data: bytes) -> None:
    told = ""
    try:
        Contract.parse(data)
    except ContractError as error:
        told = str(error)
    assert told.isprintable()


@settings(max_examples=300, deadline=None)
@given(PATH_TEXT, st.text(st.sampled_from("abcé./-"), max_size=20))
def test_match_and_rule_agree_and_normalising_changes_nothing(pattern: str, path: str) -> None:
    try:
        matcher = rules(pattern)
    except ContractError:
        return
    absolute = f"{WORKSPACE}/{path}"
    assert matcher.match(absolute) == matcher.match(normalise(absolute)) == (matcher.rule(absolute) is not None)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30))
def test_a_destination_is_parsed_to_a_fixed_point_or_refused(text: str) -> None:
    try:
        parsed = parse_destination(text)
    except ContractError:
        return
    assert parse_destination(parsed.text) == parsed
