"""Saved evidence is judged by the contract that is given, and the exit code is the verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aboveboard.cli import main
from aboveboard.evidence import Evidence
from aboveboard.evidence.chain import GENESIS, seal

DECOY = "/home/dev/.ssh/id_ed25519"
EVENTS: list[dict[str, object]] = [
    {
        "e": "world",
        "v": 1,
        "tier": "U",
        "mode": "observe",
        "roots": {"runtime": ["/usr"], "workspace": ["/home/dev/task"], "home": ["/home/dev"]},
        "decoys": [{"path": DECOY, "kind": "ssh-key", "canary": "k1"}],
        "workspace": "/home/dev/task",
        "home": "/home/dev",
        "uid": 1000,
    },
    {"e": "command", "c": 1, "p": 7, "argv": ["cat"], "cwd": "/home/dev/task"},
    {"e": "open", "c": 1, "p": 7, "s": "openat", "n": DECOY, "a": "r", "r": "ok", "v": [1, 2]},
    {"e": "status", "c": 1, "p": 7, "code": 0},
    {"e": "end", "reason": "exit", "counts": {}, "lost": 0},
]


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """A folder as a world leaves it, in which a planted key was read."""
    folder = tmp_path / "evidence"
    folder.mkdir()
    head = GENESIS
    with open(folder / "events.jsonl", "wb") as log:
        for number, event in enumerate(EVENTS):
            body = json.dumps({"i": number, "t": number / 10, **event}, separators=(",", ":")).encode()
            line, head = seal(head, body[:-1])
            log.write(line)
    assert Evidence(folder).verify_chain().ok
    return folder


def test_a_read_key_is_forbidden_and_exits_with_1(evidence: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", str(evidence)]) == 1
    shown = capsys.readouterr().out
    assert "forbidden" in shown
    assert DECOY in shown


def test_json_is_one_object_with_the_promised_fields(evidence: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", str(evidence), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "forbidden"
    assert {"reasons", "effects", "assurance"} <= set(found)


def test_a_log_without_its_end_proves_nothing(evidence: Path) -> None:
    log = evidence / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines[:2]))
    assert main(["judge", str(evidence)]) == 3


def test_the_contract_given_is_the_one_that_counts(
    evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contract = tmp_path / "task.toml"
    contract.write_text(f'[contract]\nread = ["{DECOY}"]\n')
    # Nothing forbidden is left, but no witness proved itself in this log.
    assert main(["judge", str(evidence), "--contract", str(contract)]) == 3
    assert main(["judge", str(evidence)]) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "contract"),
        ("[contract]\nraed = []\n", "raed"),
        ("[contract]\nread = 7\n", "read"),
        ("not toml", "TOML"),
        ("[contract]\nread = [" + "[" * 100_000, "contract"),
    ],
)
def test_a_bad_contract_is_a_usage_error_that_names_the_place(
    content: str, reason: str, evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contract = tmp_path / "bad.toml"
    contract.write_text(content)
    assert main(["judge", str(evidence), "--contract", str(contract)]) == 2
    shown = capsys.readouterr().err
    assert "bad.toml" in shown
    assert reason in shown
    assert "internal error" not in shown


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"{" * 100_000, b'{"e":"world"}\n' * 3, b"\xff\xfe\n"])
def test_hostile_evidence_gets_a_verdict_or_a_sentence_never_a_crash(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "events.jsonl").write_bytes(content)
    assert main(["judge", str(tmp_path)]) in (2, 3)
    assert "internal error" not in capsys.readouterr().err
