"""Code that is loaded without being executed: the open of a library that the run itself made is noted."""

from __future__ import annotations

import pytest

from aboveboard.contract import Contract
from aboveboard.evidence import Verdict

from .records import WS, Fields, changed, opened, renamed, verdict

IDENT = "7f454c46020101" + "00" * 9
SHARED = IDENT + "03003e00"
SHARED_BIG_ENDIAN = "7f454c46020201" + "00" * 9 + "00030015"
EXECUTABLE = IDENT + "02003e00"
OBJECT = IDENT + "01003e00"
LIBRARY = f"{WS}/output/libx.so"


def noted(result: Verdict) -> set[str]:
    assert result.verdict == "clean"
    found = [effect for effect in result.effects if effect.kind == 20]
    assert all(e.disposition == "noted" and e.rule.startswith("loads-dropped-library") and e.events for e in found)
    return {effect.subject for effect in found}


def dropped(path: str, magic: str = SHARED, what: str = "created") -> tuple[Fields, Fields, Fields]:
    return opened(path, "wct", new=True), opened(path), changed(path, what, magic=magic)


@pytest.mark.parametrize("magic", [SHARED, SHARED_BIG_ENDIAN, IDENT])
@pytest.mark.parametrize("what", ["created", "modified"])
def test_the_open_of_a_shared_object_made_in_the_run_is_noted(what: str, magic: str) -> None:
    assert noted(verdict(*dropped(LIBRARY, magic, what))) == {LIBRARY}


def test_its_name_does_not_matter_when_its_content_is_known() -> None:
    assert noted(verdict(*dropped(f"{WS}/output/data.bin"))) == {f"{WS}/output/data.bin"}


def test_a_library_moved_within_its_folder_is_noted_by_its_new_name() -> None:
    moved = [opened("/tmp/a/m.so", "wct", new=True), renamed("rename", "/tmp/a", "/tmp/b"), opened("/tmp/b/m.so")]
    assert noted(verdict(*moved, changed("/tmp/b", kind="dir"), changed("/tmp/b/m.so", magic=SHARED))) == {
        "/tmp/b/m.so"
    }


def test_a_library_that_was_removed_after_it_was_opened_is_noted_by_its_name() -> None:
    removed: Fields = {"e": "fs", "s": "unlink", "n": "/tmp/x.so.1", "r": "ok"}
    assert noted(verdict(opened("/tmp/x.so.1", "wct"), opened("/tmp/x.so.1"), removed)) == {"/tmp/x.so.1"}


def test_memory_that_is_opened_like_a_file_is_noted() -> None:
    again = {**opened("/proc/self/fd/3"), "x": "/memfd:lib (deleted)"}
    assert noted(verdict({"e": "probe", "s": "memfd_create", "n": "memfd:lib"}, again)) == {"/memfd:lib (deleted)"}


@pytest.mark.parametrize(
    "events",
    [
        dropped(f"{WS}/output/tool", EXECUTABLE),
        dropped(f"{WS}/output/tool.o", OBJECT),
        dropped(f"{WS}/output/notes.so", b"no library at all...".hex()),
        dropped(LIBRARY, "7f454c46"[:7]),
        dropped(LIBRARY, "not hex at all"),
        (opened(LIBRARY, "rwct", new=True), changed(LIBRARY, magic=SHARED)),  # a linker writes and reads its output
        (opened(LIBRARY, "wct", new=True), changed(LIBRARY, magic=SHARED)),
        (opened("/usr/lib/libz.so.1"),),
        (opened(f"{WS}/candidate/_native.so"),),
        ({"e": "put", "n": LIBRARY, "h256": "ab"}, opened(LIBRARY), changed(LIBRARY, magic=SHARED, h256="ab")),
    ],
    ids=[
        "executable",
        "object",
        "text",
        "torn magic",
        "no hex",
        "linker",
        "only written",
        "system",
        "candidate's",
        "put",
    ],
)
def test_other_files_and_other_opens_are_no_loading(events: tuple[Fields, ...]) -> None:
    assert noted(verdict(*events)) == set()


def test_a_library_that_the_contract_names_by_digest_is_allowed() -> None:
    contract = Contract.default().replace(programs=["sha256:" + "ab" * 32])
    made, read, change = dropped(LIBRARY)
    (effect,) = [
        e for e in verdict(made, read, {**change, "h256": "ab" * 32}, contract=contract).effects if e.kind == 20
    ]
    assert effect.disposition == "allowed"
