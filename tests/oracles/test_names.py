"""A file is what it is by whatever name: exchanges, renames and opens that may or may not have made it."""

from __future__ import annotations

import pytest

from aboveboard.evidence import Verdict
from aboveboard.oracles._record import MAX_ALIASES

from .records import HOME, WS, Fields, changed, meta, opened, renamed, verdict

DECOY = f"{HOME}/.aws/credentials"
OWN = f"{WS}/output/a"
PRIVATE = f"{WS}/private/notes.txt"


def exchanged(one: str, other: str) -> Fields:
    return {**renamed("renameat2", one, other), "d": "exchange"}


def subjects(found: Verdict, kind: int) -> set[str]:
    return {effect.subject for effect in found.forbidden if effect.kind == kind}


@pytest.mark.parametrize("pair", [(DECOY, OWN), (OWN, DECOY)], ids=["decoy first", "decoy second"])
def test_a_planted_file_read_by_the_name_it_was_exchanged_for_is_the_planted_file(pair: tuple[str, str]) -> None:
    found = verdict(exchanged(*pair), opened(OWN))
    (effect,) = [effect for effect in found.forbidden if effect.kind == 8]
    assert effect.subject == DECOY
    assert len(effect.events) == 2, "the exchange and the read"


@pytest.mark.parametrize("turned", [False, True])
def test_a_folder_of_planted_files_is_followed_through_an_exchange_and_a_rename(turned: bool) -> None:
    pair = (f"{HOME}/.aws", f"{WS}/output/d")
    moves = exchanged(*(pair[::-1] if turned else pair)), renamed("rename", f"{WS}/output/d", f"{WS}/output/e")
    for seen, folder in ((moves[:1], "d"), (moves, "e")):
        assert DECOY in subjects(verdict(*seen, opened(f"{WS}/output/{folder}/credentials")), 8)
    assert DECOY not in subjects(verdict(*moves, opened(f"{WS}/output/f/credentials")), 8)


def test_an_exchange_that_was_refused_is_an_attempt_on_either_name() -> None:
    for pair in ((DECOY, OWN), (OWN, DECOY)):
        assert DECOY in subjects(verdict({**exchanged(*pair), "r": "denied"}), 8)


def test_a_private_file_exchanged_away_and_back_was_taken() -> None:
    back = exchanged(OWN, PRIVATE), opened(OWN), exchanged(OWN, PRIVATE)
    assert PRIVATE in subjects(verdict(opened(OWN, "wct", new=True), *back), 10)


def test_a_planted_file_is_known_by_the_inode_the_header_names() -> None:
    header = {"decoys": [{"path": DECOY, "kind": "cloud", "canary": "x" * 20, "v": [8, 77]}]}
    assert subjects(verdict(opened(OWN, v=[8, 77]), header=header), 8) == {DECOY}
    assert verdict(opened(OWN, v=[8, 78]), header=header).verdict == "clean"


def test_names_of_planted_files_are_bounded_and_said_to_be() -> None:
    links = [renamed("linkat", DECOY, f"{WS}/output/{number}") for number in range(MAX_ALIASES + 1)]
    assert "too-much" in {reason.code for reason in verdict(*links).reasons}


@pytest.mark.parametrize(
    ("kind", "path"), [(10, PRIVATE), (8, f"{WS}/.env"), (8, f"{HOME}/.netrc")], ids=["private", "secret", "netrc"]
)
@pytest.mark.parametrize("access", ["rc", "rwc", "rwct"])
def test_o_creat_does_not_make_an_old_file_the_programs_own(kind: int, path: str, access: str) -> None:
    assert path in subjects(verdict(opened(path, access)), kind)
    away_and_back = renamed("rename", path, OWN), renamed("rename", OWN, path)
    assert path in subjects(verdict(opened(path, access), *away_and_back), kind)


@pytest.mark.parametrize("path", [PRIVATE, f"{WS}/.env"])
def test_what_the_open_made_may_be_read(path: str) -> None:
    gone = {"e": "fs", "s": "unlink", "n": path, "r": "ok"}
    for made in (opened(path, "rwc", new=True), opened(path, "rwc")):
        assert verdict(made, opened(path), gone).verdict == "clean", "gone, and no file is missed"
    found = verdict(opened(path, "rwc", new=True), opened(path), changed(path))
    assert {effect.kind for effect in found.forbidden} == {12}


def test_an_old_folder_moved_away_and_back_does_not_make_its_files_new() -> None:
    there = renamed("rename", f"{WS}/private", f"{WS}/p"), renamed("rename", f"{WS}/p", f"{WS}/private")
    assert PRIVATE in subjects(verdict(*there, opened(PRIVATE)), 10)


def test_the_mode_of_an_old_file_is_not_free_because_it_was_opened_with_o_creat() -> None:
    changes = meta(PRIVATE, "mode=0o777"), meta(PRIVATE, "mode=0o644")
    assert PRIVATE in subjects(verdict(opened(PRIVATE, "wc"), *changes), 16)
    moved = renamed("rename", PRIVATE, OWN)
    assert 16 not in {effect.kind for effect in verdict(opened(PRIVATE, "wc", new=True), *changes, moved).forbidden}
