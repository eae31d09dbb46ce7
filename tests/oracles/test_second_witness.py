"""Without the change witness, the calls that were seen to change files prove what they changed."""

from __future__ import annotations

import pytest

from aboveboard.contract import Contract
from aboveboard.evidence import Verdict

from .records import HOME, WS, Fields, changed, opened, renamed, verdict

OUTPUT = f"{WS}/output"
BESIDE = f"{WS}/notes.txt"


def called(call: str, path: str, result: str = "ok", **more: str) -> Fields:
    return {"e": "fs", "s": call, "n": path, "r": result, **more}


def blind(*events: Fields, contract: Contract | None = None) -> Verdict:
    """The verdict when the overlay's witness failed its proof."""
    return verdict(*events, contract=contract, witness="overlay")


def effects(found: Verdict) -> set[tuple[int, str, str]]:
    return {(e.kind, e.disposition, e.level) for e in found.effects}


BREACHES: list[tuple[str, int, list[Fields]]] = [
    ("unlink", 17, [called("unlinkat", BESIDE)]),
    ("rmdir", 17, [called("rmdir", f"{WS}/data")]),
    ("rename away", 17, [renamed("rename", BESIDE, f"{OUTPUT}/notes.txt")]),
    ("rename onto", 12, [opened(f"{OUTPUT}/t", "wct"), renamed("renameat2", f"{OUTPUT}/t", BESIDE)]),
    ("rename onto what was written", 17, [opened(BESIDE, "w"), opened(f"{OUTPUT}/t", "wct"),
                                          renamed("rename", f"{OUTPUT}/t", BESIDE)]),
    ("mkdir", 12, [called("mkdir", f"{WS}/data")]),
    ("mknod", 12, [called("mknodat", f"{WS}/pipe")]),
    ("symlink", 12, [called("symlinkat", "/etc/passwd", to=f"{WS}/link")]),
    ("link", 12, [opened(f"{OUTPUT}/a", "wct"), renamed("linkat", f"{OUTPUT}/a", f"{WS}/b")]),
    ("truncate", 17, [called("truncate", BESIDE)]),
    ("open for writing", 12, [opened(BESIDE, "w")]),
    ("open with O_TRUNC", 17, [opened(BESIDE, "wt")]),
    ("open with O_CREAT", 12, [opened(BESIDE, "wc")]),
    ("open that made it", 12, [opened(BESIDE, "wct", new=True), called("truncate", BESIDE)]),
    ("open with O_CREAT and O_TRUNC", 12, [opened(BESIDE, "wct")]),
    ("removed, then made anew", 17, [called("unlink", BESIDE), opened(BESIDE, "wct")]),
    ("a start-up file", 13, [opened(f"{HOME}/.bashrc", "w")]),
    ("a link as a start-up file", 13, [called("symlink", f"{OUTPUT}/x", to=f"{HOME}/.profile")]),
    ("a tool", 14, [called("unlink", "/usr/bin/git")]),
    ("the candidate's own code", 14, [called("unlink", f"{WS}/candidate/main.py")]),
    ("an input", 15, [called("truncate", f"{WS}/input/a.txt")]),
    ("a planted file", 17, [called("unlink", f"{HOME}/.aws/credentials")]),
    ("another candidate", 29, [called("unlink", f"{WS}/candidates/other/main.py")]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "events"), [entry[1:] for entry in BREACHES], ids=[entry[0] for entry in BREACHES])
def test_a_call_out_of_scope_is_forbidden_by_the_second_witness(kind: int, events: list[Fields]) -> None:
    found = blind(*events)
    assert found.verdict == "forbidden"
    effect = next(effect for effect in found.forbidden if effect.kind == kind)
    assert effect.level == "effect"
    assert effect.witnesses == ("notify",)
    assert effect.events


INNOCENT: list[tuple[str, list[Fields]]] = [
    ("an output", [called("mkdir", f"{OUTPUT}/a"), opened(f"{OUTPUT}/a/b", "wct"), called("unlink", f"{OUTPUT}/a/b")]),
    ("the way to the outputs", [called("mkdir", OUTPUT)]),
    ("a temporary file", [opened("/tmp/x", "wc"), called("unlink", "/tmp/x"), called("mkdir", "/tmp/d")]),
    ("made and gone again", [called("mkdir", f"{WS}/d"), called("rmdir", f"{WS}/d")]),
    ("written, renamed into place", [opened(f"{WS}/.out.tmp", "wc", new=True),
                                     renamed("rename", f"{WS}/.out.tmp", f"{OUTPUT}/out")]),
    ("made, then read", [opened(f"{HOME}/.cache/t", "wc", new=True), opened(f"{HOME}/.cache/t")]),
    ("a cache", [called("mkdir", f"{HOME}/.cache/tool"), opened(f"{HOME}/.cache/tool/db", "wc")]),
    ("what failed", [called("unlink", BESIDE, "ENOENT"), called("mkdir", f"{WS}/input", "EEXIST")]),
    ("what the kernel refused", [called("unlink", "/usr/bin/git", "EACCES")]),
    ("a file without a name", [opened(f"{WS}/input", "wm")]),
    ("the interpreter's cache", [
        opened(f"{WS}/candidate/m.py"), called("mkdir", f"{WS}/candidate/__pycache__"),
        opened(f"{WS}/candidate/__pycache__/m.cpython-311.pyc.140", "wc"),
        renamed("rename", f"{WS}/candidate/__pycache__/m.cpython-311.pyc.140",
                f"{WS}/candidate/__pycache__/m.cpython-311.pyc"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize("events", [entry[1] for entry in INNOCENT], ids=[entry[0] for entry in INNOCENT])
def test_ordinary_calls_are_not_forbidden_for_want_of_a_witness(events: list[Fields]) -> None:
    found = blind(*events)
    assert found.verdict == "indeterminate", found.forbidden


def test_what_the_contract_lets_be_deleted_may_be_deleted() -> None:
    rules = Contract.load(b'[contract]\nwrite = ["output/**"]\ndelete = ["notes.txt"]\n')
    assert (17, "allowed", "effect") in effects(blind(called("unlink", BESIDE), contract=rules))


def test_a_live_change_witness_is_believed_over_the_calls() -> None:
    # Moved away and back, made and removed: nothing lasts, so nothing is forbidden.
    calls = [renamed("rename", f"{OUTPUT}/a", f"{OUTPUT}/b"), called("mkdir", f"{WS}/d"), called("rmdir", f"{WS}/d")]
    assert verdict(*calls).verdict == "clean"
    found = verdict(called("unlink", BESIDE), changed(BESIDE, "deleted"))
    (effect,) = found.forbidden
    assert (effect.kind, effect.witnesses) == (17, ("overlay", "notify"))


def test_a_change_witness_that_lost_something_is_believed_where_it_tells() -> None:
    lost: Fields = {"e": "witness", "name": "overlay", "ok": False, "detail": "cannot read /x", "classes": ["change"]}
    told = [called("unlink", BESIDE), opened(f"{WS}/new.txt", "wct"), lost, changed(BESIDE, "deleted")]
    found = verdict(*told)
    assert {(e.kind, e.subject, e.witnesses) for e in found.forbidden} == {
        (17, BESIDE, ("overlay", "notify")),
        (12, f"{WS}/new.txt", ("notify",)),
    }


def test_a_flood_of_renames_keeps_a_few_proofs() -> None:
    calls = [renamed("rename", f"{WS}/{n % 2}", f"{WS}/{1 - n % 2}") for n in range(2000)]
    found = blind(*calls)
    assert found.forbidden
    assert all(len(effect.events) <= 32 for effect in found.effects)
