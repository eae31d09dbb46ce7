"""The matrix has no silent gaps: every row in every carrier is expressed or has a reason."""

from __future__ import annotations

import pytest

from . import table
from .matrix import ALL_CARRIERS, HERE, Carrier, absence, cases, expressed, rows

PAGE = HERE.parent.parent / "docs" / "reference" / "evasion-matrix.md"


@pytest.mark.parametrize("carrier", ALL_CARRIERS, ids=lambda carrier: carrier.name)
def test_every_row_is_expressed_by_a_carrier_or_has_a_reason_not_to_be(carrier: Carrier) -> None:
    missing = [r.effect for r in rows() if r.effect not in expressed(carrier) and absence(carrier, r.effect) is None]
    assert missing == []


@pytest.mark.parametrize("carrier", [c for c in ALL_CARRIERS if c.name != "i386"], ids=lambda carrier: carrier.name)
def test_no_reason_is_given_for_a_row_that_the_carrier_expresses(carrier: Carrier) -> None:
    doubled = [e for e in sorted(expressed(carrier)) if absence(carrier, e) and not e.startswith("twin_")]
    assert doubled == []


@pytest.mark.parametrize("carrier", ALL_CARRIERS, ids=lambda carrier: carrier.name)
def test_every_program_of_a_carrier_is_a_row(carrier: Carrier) -> None:
    names = {row.effect for row in rows()} | {"flood_opens", "gate_ci"}
    assert sorted(expressed(carrier) - names) == []


def test_every_row_has_a_carrier() -> None:
    assert [r.effect for r in rows() if not any(r.effect in expressed(c) for c in ALL_CARRIERS)] == []


def test_effect_names_are_unique() -> None:
    names = [row.effect for row in rows()]
    assert len(names) == len(set(names))


def test_every_kind_the_kernel_can_see_has_a_row() -> None:
    # 26 (acts only under a condition) is a difference between two runs: test_conditions.py.
    covered = {kind for row in rows() if not row.twin for kind in row.kinds}
    assert sorted(set(range(1, 31)) - covered) == [26]


def test_every_kind_has_a_benign_twin() -> None:
    # 11, 23 and 30 have none in section 6.3 of the study; 27 and 29 have no call of their own to imitate.
    covered = {kind for row in rows() if row.twin for kind in row.kinds}
    assert sorted(set(range(1, 31)) - covered) == [11, 23, 27, 29, 30]


def test_the_table_in_the_docs_has_the_rows_of_the_data() -> None:
    page = PAGE.read_text("utf-8")
    planned = table.render({(case.row.effect, case.carrier.name): "x" for case in cases()})
    assert table.shape(page) == table.shape(planned)
    assert table.MISSED not in page.split("## Reading")[1]
