"""The planted home: realistic, unique per world, reproducible, and every canary findable."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aboveboard.world import decoys

SEED = bytes(range(32))
NOW = 1_790_000_000.0


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[decoys.Decoy]]:
    root = tmp_path_factory.mktemp("root")
    return root, decoys.plant(root, seed=SEED, now=NOW)


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_every_canary_is_in_its_file_and_nowhere_else(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    root, found = planted
    contents = files(root)
    for decoy in found:
        holders = [path for path, data in contents.items() if decoy.canary.encode() in data]
        assert holders == [decoy.path[1:]], decoy


def test_canaries_are_long_enough_to_mean_something(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    _, found = planted
    canaries = [d.canary for d in found]
    assert len(set(canaries)) == len(canaries)
    assert all(12 <= len(c) <= decoys.CANARY_CHARACTERS for c in canaries)


def test_every_kind_is_planted_and_no_other(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    assert {d.kind for d in planted[1]} == set(decoys.KINDS)


@pytest.mark.parametrize(
    "path",
    [
        ".ssh/id_ed25519", ".ssh/id_rsa", ".aws/credentials", ".config/gcloud/application_default_credentials.json",
        ".azure/msal_token_cache.json", ".kube/config", ".docker/config.json", ".netrc", ".pypirc", ".npmrc",
        ".cargo/credentials.toml", ".gem/credentials", ".git-credentials", ".cache/huggingface/token",
        ".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".cursor/mcp.json",
        ".continue/config.yaml", ".local/share/opencode/auth.json", ".pi/agent/auth.json",
        ".config/github-copilot/apps.json", "projects/invoice-api/.env", ".config/google-chrome/Default/Login Data",
        ".config/google-chrome/Default/Cookies", ".bitcoin/wallet.dat", ".config/solana/id.json",
        ".electrum/wallets/default_wallet", ".local/share/keyrings/login.keyring", ".bash_history",
    ],
)  # fmt: skip
def test_what_stealers_look_for_is_there_private_and_a_decoy(
    planted: tuple[Path, list[decoys.Decoy]], path: str
) -> None:
    root, found = planted
    assert stat.S_IMODE((root / "home/dev" / path).stat().st_mode) == 0o600
    assert f"/home/dev/{path}" in {d.path for d in found}


@pytest.mark.parametrize(
    "path", [".bashrc", ".profile", ".gitconfig", ".ssh/config", "Documents/lease.pdf", ".claude/CLAUDE.md"]
)
def test_ordinary_files_are_there_and_are_no_decoys(planted: tuple[Path, list[decoys.Decoy]], path: str) -> None:
    root, found = planted
    assert (root / "home/dev" / path).stat().st_size > 0
    assert f"/home/dev/{path}" not in {d.path for d in found}


def test_the_reference_counts_what_is_planted(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    page = Path(__file__).parents[2] / "docs/reference/decoys.md"
    rows = [line.split("|") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    told = {row[1].strip(" `"): (int(row[2]), int(row[3])) for row in rows if row[2].strip().isdigit()}
    assert told == {
        kind: (len({d.path for d in planted[1] if d.kind == kind}), sum(d.kind == kind for d in planted[1]))
        for kind in decoys.KINDS
    }


def test_nothing_says_that_it_is_bait(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    for path, data in files(planted[0]).items():
        text = path.encode().lower() + data.lower()
        for word in (b"canary", b"decoy", b"aboveboard", b"fake", b"honey", b"dummy", "«".encode(), b"\x7f\x7f"):
            assert word not in text, (path, word)


def test_it_stays_small(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    contents = files(planted[0])
    assert len(contents) < 150
    assert sum(map(len, contents.values())) < 400_000


def test_times_are_spread_over_years_and_never_in_the_future(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    times = [p.stat().st_mtime for p in planted[0].rglob("*")]
    assert max(times) <= NOW
    assert NOW - min(times) > 365 * 86400
    assert len({int(t // 86400) for t in times}) > 40


def test_the_same_seed_gives_the_same_bytes(planted: tuple[Path, list[decoys.Decoy]], tmp_path: Path) -> None:
    again = decoys.plant(tmp_path, seed=SEED, now=NOW)
    assert again == planted[1]
    assert files(tmp_path) == files(planted[0])


def test_another_seed_shares_no_canary(planted: tuple[Path, list[decoys.Decoy]], tmp_path: Path) -> None:
    other = decoys.plant(tmp_path, seed=SEED[:-1] + b"x", now=NOW)
    assert {d.canary for d in other}.isdisjoint(d.canary for d in planted[1])


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=16, max_size=64))
def test_the_environment_carries_each_of_its_canaries(seed: bytes) -> None:
    variables = decoys.environ(seed)
    canaries = decoys.environ_canaries(seed)
    assert {"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "OPENAI_API_KEY", "DATABASE_URL"} <= {c.name for c in canaries}
    for c in canaries:
        assert c.canary in variables[c.name]
    assert all("\0" not in v and v for v in variables.values())


def test_json_and_toml_files_parse(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    seen = 0
    for path, data in files(planted[0]).items():
        if path.endswith(".json"):
            json.loads(data)
            seen += 1
        elif path.endswith(".toml"):
            tomllib.loads(data.decode())
            seen += 1
    assert seen > 20


def test_databases_are_sound_sqlite(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    seen = 0
    for path, data in files(planted[0]).items():
        if data.startswith(b"SQLite format 3\0"):
            connection = sqlite3.connect(":memory:")
            connection.deserialize(data)
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], path
            connection.close()
            seen += 1
    assert seen == 6


def test_a_stealer_finds_a_password_in_the_browser_database(planted: tuple[Path, list[decoys.Decoy]]) -> None:
    connection = sqlite3.connect(planted[0] / "home/dev/.config/google-chrome/Default/Login Data")
    rows = connection.execute("SELECT origin_url, password_value FROM logins").fetchall()
    connection.close()
    assert rows[0][0] == "https://github.com/login"
    assert all(value.startswith(b"v10") for _, value in rows)


def test_shipped_databases_are_what_their_sql_builds() -> None:
    sys.path.insert(0, decoys._DATA)
    try:
        import rebuild  # type: ignore[import-not-found]
    finally:
        sys.path.remove(decoys._DATA)

    def dump(data: bytes) -> list[str]:
        connection = sqlite3.connect(":memory:")
        connection.deserialize(data)
        lines = list(connection.iterdump())
        connection.close()
        return lines

    sources = sorted(Path(decoys._DATA).glob("*.sql"))
    assert len(sources) == 6
    for source in sources:
        built = rebuild.database(source.read_text(encoding="utf-8"))
        assert dump(built) == dump(source.with_suffix(".db").read_bytes()), source.name
    for name, lines in rebuild.DOCUMENTS.items():
        assert rebuild.pdf(lines) == Path(decoys._DATA, name).read_bytes()


@pytest.mark.parametrize("name", ["id_ed25519", "id_rsa"])
def test_ssh_keys_have_the_openssh_structure_and_match_their_public_half(
    planted: tuple[Path, list[decoys.Decoy]], name: str
) -> None:
    ssh = planted[0] / "home/dev/.ssh"
    lines = (ssh / name).read_text().splitlines()
    assert lines[0] == "-----BEGIN OPENSSH PRIVATE KEY-----"
    assert all(len(line) == 70 for line in lines[1:-2])
    blob = base64.b64decode("".join(lines[1:-1]), validate=True)
    assert blob.startswith(b"openssh-key-v1\0")
    public = base64.b64decode((ssh / f"{name}.pub").read_text().split()[1])
    assert struct.pack(">I", len(public)) + public in blob


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
@pytest.mark.parametrize("name", ["id_ed25519", "id_rsa"])
def test_ssh_keygen_reads_the_keys(planted: tuple[Path, list[decoys.Decoy]], name: str) -> None:
    ssh = planted[0] / "home/dev/.ssh"
    shown = subprocess.run(
        ["ssh-keygen", "-y", "-f", ssh / name], capture_output=True, text=True, timeout=20, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split()[:2] == (ssh / f"{name}.pub").read_text().split()[:2]


def test_another_home_and_user_are_used_everywhere(tmp_path: Path) -> None:
    found = decoys.plant(tmp_path, home="/Users/kim", user="kim", seed=SEED, now=NOW)
    assert not any(b"/home/dev" in data for data in files(tmp_path).values())
    assert all(d.path.startswith(("/Users/kim/", "/opt/")) for d in found)


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        decoys.plant(tmp_path, seed=SEED, now=NOW)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "home/dev/.bashrc").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "home/dev").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "home/dev/.ssh").stat().st_mode) == 0o700


def test_a_descriptor_serves_as_root_and_stays_open(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        decoys.plant(fd, seed=SEED, now=NOW)
        assert "home" in os.listdir(fd)
    finally:
        os.close(fd)


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "home/dev").mkdir(parents=True)
    mine = tmp_path / "home/dev/.bashrc"
    mine.write_text("mine")
    with pytest.raises(FileExistsError, match=r"\.bashrc"):
        decoys.plant(tmp_path, seed=SEED, now=NOW)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("home", ["home/dev", "/", "/home/../etc", "/home/dev/"])
def test_a_home_that_is_no_plain_absolute_path_is_refused(tmp_path: Path, home: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        decoys.plant(tmp_path, home=home, seed=SEED)


def test_a_short_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="16 random bytes"):
        decoys.plant(tmp_path, seed=b"short")


def test_etc_names_the_user_and_the_machine_and_no_user_of_the_host() -> None:
    etc = decoys.etc_files("dev", "thinkpad", seed=SEED, nameserver="192.0.2.1")
    entries = [line.split(":") for line in etc["/etc/passwd"].decode().splitlines()]
    assert all(len(e) == 7 for e in entries)
    assert [e for e in entries if e[0] == "dev"] == [["dev", "x", "1000", "1000", "Dev,,,", "/home/dev", "/bin/bash"]]
    assert all(len(line.split(":")) == 4 for line in etc["/etc/group"].decode().splitlines())
    assert b"127.0.1.1\tthinkpad" in etc["/etc/hosts"]
    assert etc["/etc/resolv.conf"] == b"nameserver 192.0.2.1\n"
    assert len(etc["/etc/machine-id"]) == 33
    assert etc["/etc/machine-id"] != decoys.etc_files(seed=SEED[::-1])["/etc/machine-id"]
