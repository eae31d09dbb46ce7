"""The catalogue is complete, and the reference shows what it says."""

from __future__ import annotations

import re
from pathlib import Path

from aboveboard.oracles.catalogue import CLASSES, KINDS, REQUIRED, WITNESS_EVENTS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_there_are_thirty_kinds_each_with_all_that_is_promised() -> None:
    assert [kind.number for kind in KINDS] == list(range(1, 31))
    assert len({kind.name for kind in KINDS}) == 30
    for kind in KINDS:
        assert kind.channel in CLASSES
        assert kind.disposition in ("forbidden", "noted")
        assert kind.title
        assert kind.twin
        assert set(kind.witnesses) <= set(WITNESS_EVENTS)
        assert (kind.reach == "os") == (kind.why == ""), "what is out of reach has a reason"


def test_every_tier_needs_a_known_witness_for_every_class() -> None:
    for needed in REQUIRED.values():
        assert set(needed) == set(CLASSES)
        assert all(names and set(names) <= set(WITNESS_EVENTS) for names in needed.values())


def test_the_reference_shows_every_kind_as_it_is_and_what_it_is_derived_from() -> None:
    text = (REFERENCE / "effects.md").read_text()
    for kind in KINDS:
        row = f"| {kind.number} | `{kind.name}` | {kind.title} | {kind.disposition} | {kind.channel} |"
        assert row in text
        assert kind.twin in text
        assert not kind.why or kind.why in text
        assert re.search(rf"^\| {kind.number} \| [^`|]*[`a-z]", text, re.MULTILINE)


def test_the_reference_names_every_reason() -> None:
    source = Path(__file__).parents[2] / "src/aboveboard/oracles/_checks.py"
    codes = set(re.findall(r'Reason\(\s*"([a-z-]+)"', source.read_text()))
    text = (REFERENCE / "json-output.md").read_text()
    assert codes
    assert {code for code in codes if f"`{code}`" not in text} == set()
