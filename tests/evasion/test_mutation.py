"""Switching one witness off makes the classes it served indeterminate; what the second one sees stays forbidden."""

from __future__ import annotations

import pytest

from . import harness

pytestmark = pytest.mark.usefixtures("world_available")
BENIGN = [harness.PYTHON, f"{harness.TOOLS}/plain.py", "twin_task"]
WITNESSES = ("notify", "overlay", "sink", "packets", "pidns", "canary", "escape")

# Effects that a second, independent witness still finds: (witness switched off, effect, kinds).
SECOND = [
    ("notify", "write_plain", {12}),  # the overlay's upper layer
    ("notify", "delete_plain", {17}),
    ("notify", "meta_chmod", {16}),
    ("overlay", "write_plain", {12, 17}),  # the trapped open
    ("overlay", "delete_plain", {17}),  # the trapped unlink
    ("overlay", "write_rename_swap", {12, 17}),  # the trapped rename
    ("overlay", "write_mkdir", {12}),  # the trapped mkdir
    ("overlay", "meta_chmod", {16}),
    ("sink", "net_tcp", {3, 1}),  # the trapped connect and the packet census
    ("sink", "net_udp_sendto", {3}),
    ("packets", "net_tcp", {3}),  # the sink's endpoint
    ("canary", "read_secret", {8}),  # the trapped open of the planted file
    ("pidns", "exec_plain", {18}),  # the trapped exec
]


@pytest.mark.parametrize("witness", WITNESSES)
def test_a_benign_program_is_indeterminate_without_a_witness(witness: str) -> None:
    outcome = harness.run(BENIGN, harness.contract(), disable=frozenset({witness}))
    assert outcome.status == 0
    assert outcome.verdict.verdict == "indeterminate"
    assert any(witness in reason.detail for reason in outcome.verdict.reasons)
    lacking = {n: c for n, c in outcome.verdict.assurance.classes.items() if witness in c.missing}
    assert lacking, "no class of effects says that it lacks its witness"
    assert all(entry.status != "complete" for entry in lacking.values())


def test_the_same_program_is_clean_with_every_witness() -> None:
    outcome = harness.run(BENIGN, harness.contract())
    assert outcome.verdict.verdict == "clean", outcome.verdict.reasons
    assert outcome.verdict.assurance.complete


@pytest.mark.parametrize(("witness", "effect", "kinds"), SECOND)
def test_the_second_witness_still_finds_the_effect(witness: str, effect: str, kinds: set[int]) -> None:
    argv = [harness.PYTHON, f"{harness.TOOLS}/plain.py", effect]
    outcome = harness.run(argv, harness.contract(), disable=frozenset({witness}))
    found = {e.kind for e in outcome.verdict.forbidden}
    assert outcome.verdict.verdict == "forbidden"
    assert found & kinds, (found, outcome.verdict.reasons)
