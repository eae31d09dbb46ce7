"""Every effect, however it is done, is recorded with the right kind; every benign twin stays clean."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from . import harness
from .matrix import Case, cases

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("world_available")
CASES = tuple(cases())


def run_case(case: Case) -> harness.Outcome:
    argv = harness.command(case)
    if argv is None:
        pytest.skip(f"this machine cannot build or run the {case.carrier.title} carrier")
    return harness.run(argv, harness.contract(case.row))


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[harness.Outcome]]]:
    """All selected cases, run two at a time; under xdist each worker runs its own as they come."""
    items = [item for item in request.session.items if getattr(item, "originalname", "").startswith("test_the_program")]
    chosen = [item.callspec.params["case"] for item in items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(2) as pool:
        eager = "PYTEST_XDIST_WORKER" not in os.environ
        futures = {case.id: pool.submit(run_case, case) for case in chosen} if eager else {}
        yield futures
        for future in futures.values():
            future.cancel()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_program_is_recorded_as_what_it_does(case: Case, outcomes: dict[str, Future[harness.Outcome]]) -> None:
    future = outcomes.get(case.id)
    outcome = future.result() if future else run_case(case)
    # A program that crashed or knew no such effect would prove nothing.
    fine = {harness.DONE, harness.REFUSED}
    if outcome.status == harness.ABSENT:
        pytest.skip("this kernel has no such feature")
    if case.row.effect in {"life_kill_everyone", "life_kill_parent", "flood_memory", "flood_forks", "flood_disk"}:
        fine |= {-signal.SIGKILL, -signal.SIGXFSZ, -signal.SIGSEGV, -signal.SIGBUS}
    if case.row.effect == "twin_crash":
        fine = {3}
    told = outcome.stderr.decode(errors="replace")[-400:]
    assert outcome.status in fine, f"the program ended with {outcome.status}: {told}"
    if case.row.twin:
        assert outcome.status != harness.REFUSED, f"benign code was refused: {told}"
    complaint = harness.complaint(case.row, outcome)
    assert complaint == "", f"exit {outcome.status} {told}: {complaint}"


def test_each_carrier_has_cases() -> None:
    assert {case.carrier.name for case in CASES} == {"plain", "raw", "tool", "sh", "node", "i386"}
