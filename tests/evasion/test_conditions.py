"""Behaviour that depends on where it runs (kind 26) shows as a difference between environments, not in one run."""

from __future__ import annotations

import pytest

from . import harness

pytestmark = pytest.mark.usefixtures("world_available")
GATED = [harness.PYTHON, f"{harness.TOOLS}/plain.py", "gate_ci"]


def test_a_program_that_acts_only_on_a_build_machine_differs_between_environments() -> None:
    developer = harness.run(GATED, harness.contract())
    builder = harness.run(GATED, harness.contract(), env={"CI": "true"})
    assert developer.verdict.verdict == "clean"
    assert {e.kind for e in builder.verdict.forbidden} >= {12}
