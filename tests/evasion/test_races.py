"""A denied object is never reached by changing the arguments after the check; the design that allows it is measured
beside it, so that this test is known to be able to fail."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aboveboard.contract import Contract

from . import harness

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("world_available")
RULES = Contract.load(b"""
[contract]
read = ["input/**"]
write = ["output/**"]
metadata = ["output/**"]
network = ["203.0.113.9:80"]
grace_seconds = 0.1
""")
OPEN_TRIES = 60_000


@pytest.fixture
def arena() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="arena-") as name:
        base = Path(name)
        for directory in ("input", "output", "denied"):
            (base / directory).mkdir()
        (base / "input/public.txt").write_text("Public\n")
        (base / "output/public.tx").write_text("Public\n")
        (base / "denied/secret.tx").write_text("Secret\n")
        (base / "output/mark.txt").write_text("mark\n")
        (base / "denied/mark.txt").write_text("mark\n")
        yield base


def racer() -> Path:
    program = harness.compiled("racer.c")
    if program is None:
        pytest.skip("no C compiler that links statically")
    return program


def tally(text: bytes) -> dict[str, int]:
    return {name.decode(): int(value) for name, value in re.findall(rb"(\w+)=(\d+)", text)}


def race(kind: str, tries: int, arena: Path) -> tuple[dict[str, int], harness.Outcome]:
    racer()
    outcome = harness.run([f"{harness.TOOLS}/racer", kind, str(tries)], RULES, mode="block", folder=arena, timeout=60)
    assert outcome.status == 0, outcome.stderr
    counts = tally(outcome.stdout)
    assert counts["tries"] == tries
    # Both sides of the flip were really met, else nothing was raced.
    assert min(counts["allowed"], counts["refused"]) > 0, counts
    return counts, outcome


def denied_changes(outcome: harness.Outcome) -> list[object]:
    return [e["x"] for e in outcome.events if e["e"] == "change" and "/denied/" in str(e.get("x"))]


def test_checking_a_path_and_letting_the_call_continue_leaks(arena: Path) -> None:
    racer()
    naive = harness.compiled("naive.c")
    assert naive is not None
    leaked = tries = 0
    for _ in range(3):
        made = subprocess.run(
            [naive, "denied", racer(), "open", "20000"], cwd=arena, capture_output=True, timeout=60, check=True
        )
        counts = tally(made.stdout)
        leaked += counts["leaked"]
        tries += counts["tries"]
    print(f"check-then-continue leaked {leaked} of {tries} ({leaked / tries:.1%})")
    assert leaked > tries // 1000


def test_no_denied_file_opens_in_60000_path_flips(arena: Path) -> None:
    counts, _ = race("open", OPEN_TRIES, arena)
    assert counts["leaked"] == 0


def test_no_denied_file_opens_through_a_flipping_symlink(arena: Path) -> None:
    counts, _ = race("symlink", 10_000, arena)
    assert counts["leaked"] == 0


def test_no_denied_file_is_read_through_a_raced_hard_link(arena: Path) -> None:
    counts, _ = race("link", 5_000, arena)
    assert counts["leaked"] == 0


@pytest.mark.parametrize("kind", ["write", "rename", "chmod"])
def test_nothing_denied_is_changed_by_path_flips(kind: str, arena: Path) -> None:
    _, outcome = race(kind, 5_000, arena)
    assert denied_changes(outcome) == []


def test_no_byte_reaches_a_denied_address_by_flips(arena: Path) -> None:
    counts, outcome = race("connect", 5_000, arena)
    assert counts["leaked"] == 0
    assert [e for e in outcome.events if e["e"] == "flow" and e.get("dst") == "203.0.113.10"] == []
