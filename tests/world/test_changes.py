"""The upper-layer witness, on real overlays, and the before-and-after witness: the same actions, the same records."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aboveboard.evidence.canary import Scanner
from aboveboard.world import _linux as linux
from aboveboard.world import changes
from aboveboard.world.changes import Record, WalkLimits, compare, snapshot, walk_upper

CANARY = "q7XkV2mRtY9wLsB4nHcE"
LONG_AGO = 1_600_000_000


def prepare(root: Path) -> None:
    """The tree every test starts from."""
    (root / "sub/deep").mkdir(parents=True)
    (root / "empty").mkdir()
    for name, text in {"a.txt": "alpha", "b.txt": "beta", "sub/c.txt": "gamma", "sub/deep/d.txt": "delta"}.items():
        (root / name).write_text(text)
        os.chmod(root / name, 0o644)
    os.symlink("a.txt", root / "link")
    for path in [*root.rglob("*"), root]:
        os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)


def in_namespace(action: Callable[[], Any]) -> Any:
    """Run ``action`` as the owner of a new user and mount namespace, in a child process; its result must be JSON."""
    read, write = os.pipe()
    uid, gid = os.getuid(), os.getgid()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            try:
                linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
                Path("/proc/self/setgroups").write_text("deny")
                Path("/proc/self/uid_map").write_text(f"1000 {uid} 1\n")
                Path("/proc/self/gid_map").write_text(f"1000 {gid} 1\n")
                linux.mount("", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
            except OSError as e:
                answer: dict[str, Any] = {"skip": f"no user and mount namespace here: {e}"}
            else:
                try:
                    answer = {"value": action()}
                except _NoOverlay as e:
                    answer = {"skip": str(e)}
                except BaseException:
                    answer = {"error": traceback.format_exc()}
            with os.fdopen(write, "w") as f:
                json.dump(answer, f)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    os.waitpid(pid, 0)
    answer = json.loads(text)
    if "skip" in answer:
        pytest.skip(answer["skip"])
    assert "error" not in answer, answer["error"]
    return answer["value"]


class _NoOverlay(Exception):
    pass


Act = Callable[[Path], None]
Witness = Callable[..., list[dict[str, Any]]]


def by_overlay(tmp: Path, act: Act, *, setup: Act | None = None, **options: Any) -> list[dict[str, Any]]:
    lower, upper, work, merged = (tmp / n for n in ("lower", "upper", "work", "merged"))
    for path in (lower, upper, work, merged):
        path.mkdir()
    prepare(lower)
    if setup:
        setup(lower)
    os.utime(lower, (LONG_AGO, LONG_AGO))

    def run() -> list[Record]:
        try:
            linux.mount(
                "overlay",
                str(merged),
                "overlay",
                data=f"lowerdir={lower},upperdir={upper},workdir={work},userxattr",
            )
        except OSError as e:
            raise _NoOverlay(f"no overlay in a user namespace here: {e}") from e
        started = time.time()
        act(merged)
        linux.umount(str(merged))
        up, down = os.open(upper, os.O_PATH), os.open(lower, os.O_PATH)
        held = sorted(os.listdir("/proc/self/fd"))
        records = list(walk_upper(up, down, "/w", started=started, **options))
        assert sorted(os.listdir("/proc/self/fd")) == held, "descriptors leaked"
        return records

    return list(in_namespace(run))


def by_snapshots(tmp: Path, act: Act, *, setup: Act | None = None, **options: Any) -> list[dict[str, Any]]:
    root = tmp / "tree"
    root.mkdir()
    prepare(root)
    if setup:
        setup(root)

    # In a namespace as well: objects of mode 0 are to be readable, as they are for the supervisor of a tier.
    def run() -> list[Record]:
        fd = os.open(root, os.O_PATH)
        before = snapshot(fd)
        started = time.time()
        act(root)
        scanner = options.get("scanner")
        after = snapshot(fd, previous=before, scanner=scanner, limits=options.get("limits"))
        return list(compare(before, after, "/w", started=started))

    return list(in_namespace(run))


@pytest.fixture(params=[by_overlay, by_snapshots], ids=["overlay", "walk"])
def witness(request: pytest.FixtureRequest, tmp_path: Path) -> Witness:
    def observe(act: Act, **options: Any) -> list[dict[str, Any]]:
        return list(request.param(tmp_path, act, **options))

    return observe


def told(records: list[dict[str, Any]]) -> dict[str, str]:
    """Path below the root -> what happened."""
    assert all(r["e"] == "change" for r in records), records
    return {r["x"].removeprefix("/w/"): r["w"] for r in records}


def nothing(root: Path) -> None:
    pass


def read_everything(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            path.read_bytes()
    list(root.iterdir())


def open_for_writing_without_writing(root: Path) -> None:
    os.close(os.open(root / "a.txt", os.O_RDWR))


def chmod_and_restore(root: Path) -> None:
    os.chmod(root / "a.txt", 0o777)
    os.chmod(root / "a.txt", 0o644)


def chmod_directory_and_restore(root: Path) -> None:
    mode = stat.S_IMODE(os.stat(root / "sub").st_mode)
    os.chmod(root / "sub", 0o700)
    os.chmod(root / "sub", mode)


def delete_and_recreate_equal(root: Path) -> None:
    os.unlink(root / "a.txt")
    (root / "a.txt").write_text("alpha")
    os.chmod(root / "a.txt", 0o644)
    os.utime(root / "a.txt", (LONG_AGO, LONG_AGO))


def create_and_remove(root: Path) -> None:
    (root / "sub/tmp").write_text("x")
    os.unlink(root / "sub/tmp")
    os.mkdir(root / "sub/tmpdir")
    os.rmdir(root / "sub/tmpdir")


def rename_and_back(root: Path) -> None:
    os.rename(root / "a.txt", root / "z.txt")
    os.rename(root / "z.txt", root / "a.txt")


@pytest.mark.parametrize(
    "act",
    [
        nothing,
        read_everything,
        open_for_writing_without_writing,
        chmod_and_restore,
        chmod_directory_and_restore,
        delete_and_recreate_equal,
        create_and_remove,
        rename_and_back,
    ],
    ids=lambda act: act.__name__,
)
def test_what_leaves_no_trace_is_no_change(witness: Witness, act: Act) -> None:
    assert witness(act) == []


def test_a_new_file_is_created_with_its_digest_and_first_bytes(witness: Witness) -> None:
    [record] = witness(lambda root: (root / "sub/new").write_bytes(b"\x7fELF and more") and None)
    assert (record["x"], record["w"], record["k"]) == ("/w/sub/new", "created", "file")
    assert record["h256"] == hashlib.sha256(b"\x7fELF and more").hexdigest()
    assert record["magic"] == b"\x7fELF and more".hex()
    assert record["size"] == 13
    assert "before" not in record


def test_an_overwritten_file_shows_both_contents(witness: Witness) -> None:
    [record] = witness(lambda root: (root / "a.txt").write_text("omega") and None)
    assert (record["w"], record["d"][0]) == ("modified", "content")
    assert record["h256"] == hashlib.sha256(b"omega").hexdigest()
    assert record["before"]["h256"] == hashlib.sha256(b"alpha").hexdigest()
    assert record["before"]["mtime"] == LONG_AGO


def test_same_content_with_the_old_time_but_other_bytes_is_seen(witness: Witness) -> None:
    def act(root: Path) -> None:
        (root / "a.txt").write_text("ALPHA")
        os.utime(root / "a.txt", (LONG_AGO, LONG_AGO))

    [record] = witness(act)
    assert (record["w"], record["d"]) == ("modified", ["content"])


def test_a_shared_mapping_is_seen(witness: Witness) -> None:
    import mmap

    def act(root: Path) -> None:
        fd = os.open(root / "a.txt", os.O_RDWR)
        with mmap.mmap(fd, 5) as view:
            view[0] = ord("X")
        os.close(fd)

    assert told(witness(act)) == {"a.txt": "modified"}


def test_a_removed_file_is_deleted(witness: Witness) -> None:
    [record] = witness(lambda root: os.unlink(root / "sub/c.txt"))
    assert (record["x"], record["w"], record["k"]) == ("/w/sub/c.txt", "deleted", "file")
    assert record["before"]["h256"] == hashlib.sha256(b"gamma").hexdigest()
    assert "h256" not in record


def test_a_removed_tree_is_one_record(witness: Witness) -> None:
    import shutil

    assert told(witness(lambda root: shutil.rmtree(root / "sub"))) == {"sub": "deleted"}


def test_a_tree_removed_and_made_again_hides_nothing(witness: Witness) -> None:
    import shutil

    def act(root: Path) -> None:
        mode = stat.S_IMODE(os.stat(root / "sub").st_mode)
        shutil.rmtree(root / "sub")
        os.mkdir(root / "sub")
        os.chmod(root / "sub", mode)
        (root / "sub/new").write_text("n")

    assert told(witness(act)) == {"sub/c.txt": "deleted", "sub/deep": "deleted", "sub/new": "created"}


def test_a_renamed_file_is_a_deletion_and_a_creation_with_the_same_digest(witness: Witness) -> None:
    records = witness(lambda root: os.rename(root / "a.txt", root / "sub/moved"))
    assert told(records) == {"a.txt": "deleted", "sub/moved": "created"}
    gone = next(r for r in records if r["w"] == "deleted")
    new = next(r for r in records if r["w"] == "created")
    assert gone["before"]["h256"] == new["h256"]


def test_a_moved_directory_shows_everything_in_its_new_place(witness: Witness) -> None:
    import shutil

    records = witness(lambda root: shutil.move(root / "sub", root / "elsewhere"))
    assert told(records) == {
        "sub": "deleted",
        "elsewhere": "created",
        "elsewhere/c.txt": "created",
        "elsewhere/deep": "created",
        "elsewhere/deep/d.txt": "created",
    }


@pytest.mark.parametrize("kind", ["dir", "symlink", "fifo", "sock"])
def test_a_file_replaced_by_something_else(witness: Witness, kind: str) -> None:
    def act(root: Path) -> None:
        path = root / "a.txt"
        os.unlink(path)
        if kind == "dir":
            path.mkdir()
            (path / "inner").write_text("i")
        elif kind == "symlink":
            os.symlink("/etc/passwd", path)
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            os.chdir(root)  # the path may be too long for a socket address
            with socket.socket(socket.AF_UNIX) as server:
                server.bind("a.txt")
            os.chdir("/")

    records = witness(act)
    assert (records[0]["x"], records[0]["w"], records[0]["k"]) == ("/w/a.txt", "replaced", kind)
    assert records[0]["before"]["h256"] == hashlib.sha256(b"alpha").hexdigest()
    assert told(records[1:]) == ({"a.txt/inner": "created"} if kind == "dir" else {})
    assert records[0].get("link") == ("/etc/passwd" if kind == "symlink" else None)


def test_a_directory_replaced_by_a_file_is_one_record(witness: Witness) -> None:
    import shutil

    def act(root: Path) -> None:
        shutil.rmtree(root / "sub")
        (root / "sub").write_text("file now")

    [record] = witness(act)
    assert (record["x"], record["w"], record["k"]) == ("/w/sub", "replaced", "file")


def test_a_link_that_points_elsewhere_is_modified_and_never_followed(witness: Witness) -> None:
    def act(root: Path) -> None:
        os.unlink(root / "link")
        os.symlink("/etc/shadow", root / "link")

    [record] = witness(act)
    assert (record["w"], record["k"], record["link"]) == ("modified", "symlink", "/etc/shadow")
    assert record["before"]["link"] == "a.txt"
    assert "h256" not in record


def set_mode(root: Path) -> None:
    os.chmod(root / "a.txt", 0o4755)


def set_times(root: Path) -> None:
    os.utime(root / "a.txt", (1, 1_000_000_000))


def set_attribute(root: Path) -> None:
    os.setxattr(root / "a.txt", "user.note", CANARY.encode())


def set_directory_mode(root: Path) -> None:
    os.chmod(root / "empty", 0o777)


def backdate_directory(root: Path) -> None:
    os.utime(root / "empty", (1, 1_000_000_000))


@pytest.mark.parametrize(
    ("act", "path", "what"),
    [
        (set_mode, "a.txt", "mode"),
        (set_times, "a.txt", "times"),
        (set_attribute, "a.txt", "xattr"),
        (set_directory_mode, "empty", "mode"),
        (backdate_directory, "empty", "times"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_metadata_alone_is_a_change_of_metadata(witness: Witness, act: Act, path: str, what: str) -> None:
    def setup(root: Path) -> None:
        if what == "xattr":
            try:
                os.setxattr(root / "b.txt", "user.probe", b"1")
            except OSError:
                pytest.skip("the file system of the test has no user attributes")
            os.removexattr(root / "b.txt", "user.probe")

    [record] = witness(act, setup=setup)
    assert (record["x"], record["w"], record["d"]) == (f"/w/{path}", "meta", [what])
    if what == "mode":
        assert record["mode"] != record["before"]["mode"]
    if what == "xattr":
        assert record["xattrs"] == ["user.note"]


def test_a_hard_link_to_an_old_file_is_a_new_name_and_nothing_else(witness: Witness) -> None:
    [record] = witness(lambda root: os.link(root / "a.txt", root / "sub/again"))
    assert (record["x"], record["w"]) == ("/w/sub/again", "created")
    assert record["h256"] == hashlib.sha256(b"alpha").hexdigest()


def test_names_that_are_not_text_survive(witness: Witness) -> None:
    name = b"caf\xe9\n\x01"
    [record] = witness(lambda root: os.close(os.open(os.fsencode(root) + b"/" + name, os.O_CREAT | os.O_WRONLY)))
    assert os.fsencode(record["x"]) == b"/w/" + name


def test_objects_of_mode_zero_are_read_all_the_same(witness: Witness) -> None:
    def act(root: Path) -> None:
        (root / "hidden").mkdir()
        (root / "hidden/secret").write_text("s")
        os.chmod(root / "hidden/secret", 0)
        os.chmod(root / "hidden", 0)

    records = witness(act)
    assert told(records) == {"hidden": "created", "hidden/secret": "created"}
    assert records[1]["h256"] == hashlib.sha256(b"s").hexdigest()


def test_canaries_are_found_in_content_names_links_and_attributes(witness: Witness) -> None:
    def act(root: Path) -> None:
        (root / "content").write_bytes(b"x" * 300_000 + CANARY.encode())
        (root / f"name-{CANARY}").write_text("")
        os.symlink(f"/nowhere/{CANARY}", root / "target")

    records = witness(act, scanner=Scanner({"k": CANARY}))
    found = {r["x"].removeprefix("/w/"): [(c["id"], c["at"]) for c in r["canaries"]] for r in records}
    assert found == {
        "content": [("k", "content")],
        f"name-{CANARY}": [("k", "name")],
        "target": [("k", "link")],
    }


def test_a_canary_in_an_attribute_of_an_old_file_is_found(witness: Witness) -> None:
    [record] = witness(set_attribute, scanner=Scanner({"k": CANARY}))
    assert [(c["id"], c["at"]) for c in record["canaries"]] == [("k", "xattr")]


def test_a_file_that_claims_a_terabyte_is_bounded_and_its_data_still_searched(witness: Witness) -> None:
    def act(root: Path) -> None:
        with open(root / "huge", "wb") as f:
            f.truncate(1 << 40)
            f.seek(1 << 39)
            f.write(CANARY.encode())

    begin = time.monotonic()
    records = witness(act, scanner=Scanner({"k": CANARY}))
    assert time.monotonic() - begin < 20
    record = next(r for r in records if r["e"] == "change")
    assert (record["size"], record["canaries"][0]["id"]) == (1 << 40, "k")
    assert "h256" not in record
    assert [(r["what"], "huge" in r["d"]) for r in records if r["e"] == "limit"] == [("disk", True)]


def test_the_digest_of_a_sparse_file_counts_its_holes(witness: Witness) -> None:
    def act(root: Path) -> None:
        with open(root / "sparse", "wb") as f:
            f.truncate(3 << 20)
            f.seek(1 << 20)
            f.write(b"data")

    [record] = witness(act)
    content = bytearray(3 << 20)
    content[1 << 20 : (1 << 20) + 4] = b"data"
    assert record["h256"] == hashlib.sha256(content).hexdigest()


def test_a_tree_deeper_than_a_path_is_walked(witness: Witness) -> None:
    levels, name = 60, "d" * 200

    def act(root: Path) -> None:
        os.chdir(root)
        for _ in range(levels):
            os.mkdir(name)
            os.chdir(name)
        with open("bottom", "w") as f:
            f.write("here")
        os.chdir("/")

    records = witness(act)
    assert len(records) == levels + 1
    last = records[-1]
    assert last["x"].endswith("/bottom")
    assert last["cut"] is True
    assert len(last["x"]) <= 4096
    assert last["h256"] == hashlib.sha256(b"here").hexdigest()


def test_too_many_files_become_a_limit_and_no_false_deletions(witness: Witness) -> None:
    def act(root: Path) -> None:
        for n in range(50):
            (root / f"0{n}").write_text("")

    records = witness(act, limits=WalkLimits(entries=20))
    assert [r["what"] for r in records if r["e"] == "limit"] == ["events"]
    assert {r["w"] for r in records if r["e"] == "change"} <= {"created"}


def test_a_walk_out_of_time_says_so(witness: Witness) -> None:
    def act(root: Path) -> None:
        for n in range(200):
            (root / f"0{n}").write_text("")

    records = witness(act, limits=WalkLimits(seconds=0))
    assert [r["what"] for r in records if r["e"] == "limit"] == ["wall"]


@pytest.mark.parametrize("limits", [WalkLimits(scan_bytes=1 << 20), WalkLimits(scan_seconds=0.001)])
def test_a_search_that_was_cut_says_so(limits: WalkLimits, witness: Witness) -> None:
    def act(root: Path) -> None:
        (root / "big").write_bytes(os.urandom(3 << 20))

    records = witness(act, limits=limits, scanner=Scanner({"k": CANARY}))
    [limit] = [r for r in records if r["e"] == "limit"]
    assert limit["what"] == "scan"
    assert "big" in limit["d"]


@pytest.mark.parametrize(("budget", "found"), [(150_000, False), (1 << 20, True)])
def test_the_budget_of_the_search_is_one_for_all_files(budget: int, found: bool, witness: Witness) -> None:
    def act(root: Path) -> None:
        (root / "a").write_bytes(os.urandom(100_000))
        (root / "b").write_bytes(os.urandom(100_000))
        (root / "c").write_text(CANARY)

    records = witness(act, limits=WalkLimits(scan_bytes=budget), scanner=Scanner({"k": CANARY}))
    assert [r["what"] for r in records if r["e"] == "limit"] == ([] if found else ["scan"])
    changes = [r for r in records if r["e"] == "change"]
    assert [("h256" in r, "canaries" in r) for r in changes] == [(True, False), (True, False), (True, found)]


@pytest.mark.parametrize("fill", ["constant", "random"])
def test_large_files_that_hold_nothing_are_searched_fast(fill: str, witness: Witness) -> None:
    size = 16 << 20

    def act(root: Path) -> None:
        (root / "big").write_bytes(b"x" * size if fill == "constant" else os.urandom(size))

    scanner = Scanner({f"k{n}": f"{n:03}-{CANARY}" for n in range(115)})
    begin = time.thread_time()
    records = witness(act, scanner=scanner)
    assert time.thread_time() - begin < 2.5  # 64 MiB take as long on a quiet machine; this allows for a busy one
    assert [r["e"] for r in records] == ["change"]


# --- the overlay only ------------------------------------------------------------------------------------------


def test_the_overlays_own_attributes_are_no_attributes_of_the_file(tmp_path: Path) -> None:
    def act(root: Path) -> None:
        (root / "sub/c.txt").write_text("changed")  # copied up: carries user.overlay.origin where the kernel keeps it
        (root / "empty/new").write_text("n")

    records = by_overlay(tmp_path, act)
    assert told(records) == {"sub/c.txt": "modified", "empty/new": "created"}
    assert not any("xattrs" in r for r in records)


def test_the_mode_of_the_mount_point_itself_counts(tmp_path: Path) -> None:
    records = by_overlay(tmp_path, lambda root: os.chmod(root, 0o1777))
    assert [(r["x"], r["w"], r["d"]) for r in records] == [("/w", "meta", ["mode"])]


def test_mount_points_the_world_made_are_left_out(tmp_path: Path) -> None:
    def act(root: Path) -> None:
        (root / "mnt/inner").mkdir(parents=True)
        (root / "other").write_text("o")

    assert told(by_overlay(tmp_path, act, ignore=["/w/mnt"])) == {"other": "created"}


def test_an_overlay_on_the_root_names_paths_from_the_root(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("p")
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert [r["x"] for r in walk_upper(fd, None, "/")] == ["/etc", "/etc/passwd"]
    finally:
        os.close(fd)


def layer(root: Path, attributes: dict[str, dict[str, bytes]]) -> int:
    """A layer as another kernel or mount option would have left it."""
    for name, values in attributes.items():
        for key, value in values.items():
            try:
                os.setxattr(root / name, key, value)
            except OSError:
                pytest.skip("the file system of the test has no user attributes")
    return os.open(root, os.O_RDONLY)


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Path, Path]:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    lower.mkdir()
    upper.mkdir()
    prepare(lower)
    return lower, upper


def walk(upper: int, lower_path: Path) -> list[dict[str, Any]]:
    lower = os.open(lower_path, os.O_RDONLY)
    try:
        return list(walk_upper(upper, lower, "/w"))
    finally:
        os.close(lower)
        os.close(upper)


def test_a_whiteout_kept_as_an_attribute_is_a_deletion(layers: tuple[Path, Path]) -> None:
    lower, upper = layers
    (upper / "a.txt").write_text("")
    records = walk(layer(upper, {"a.txt": {"user.overlay.whiteout": b"y"}}), lower)
    assert told(records) == {"a.txt": "deleted"}


def test_a_copy_of_metadata_alone_takes_its_content_from_below(layers: tuple[Path, Path]) -> None:
    lower, upper = layers
    with open(upper / "a.txt", "wb") as f:
        f.truncate(5)
    os.chmod(upper / "a.txt", 0o755)
    os.utime(upper / "a.txt", (LONG_AGO, LONG_AGO))
    [record] = walk(layer(upper, {"a.txt": {"user.overlay.metacopy": b""}}), lower)
    assert (record["w"], record["d"]) == ("meta", ["mode"])
    assert record["h256"] == hashlib.sha256(b"alpha").hexdigest()


@pytest.mark.parametrize("redirect", [b"/sub", b"sub"])
def test_a_redirected_directory_is_compared_with_where_it_came_from(layers: tuple[Path, Path], redirect: bytes) -> None:
    lower, upper = layers
    (upper / "moved").mkdir()
    (upper / "moved/c.txt").write_text("other")
    records = walk(layer(upper, {"moved": {"user.overlay.redirect": redirect}}), lower)
    assert told(records) == {"moved": "created", "moved/c.txt": "modified"}
    assert records[0]["from"] == "sub"


def test_an_attribute_under_the_overlays_prefix_is_shown_as_the_program_set_it(layers: tuple[Path, Path]) -> None:
    lower, upper = layers
    (upper / "new").write_text("n")
    [record] = walk(layer(upper, {"new": {"user.overlay.overlay.mine": b"1"}}), lower)
    assert record["xattrs"] == ["user.overlay.mine"]


def test_a_directory_that_cannot_be_read_is_a_loss_of_the_witness(
    layers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lower, upper = layers
    (upper / "new").mkdir()
    (upper / "new/file").write_text("f")
    real = changes._open_directory

    def refuse(root: int, path: str) -> int:
        if path == "new":
            raise PermissionError(13, "Permission denied")
        return real(root, path)

    monkeypatch.setattr(changes, "_open_directory", refuse)
    records = walk(os.open(upper, os.O_RDONLY), lower)
    loss = next(r for r in records if r["e"] == "witness")
    assert (loss["name"], loss["ok"], loss["classes"]) == ("overlay", False, ["change"])
    assert "/w/new" in loss["detail"]


def test_a_link_in_the_place_of_a_lower_directory_leads_nowhere(layers: tuple[Path, Path], tmp_path: Path) -> None:
    lower, upper = layers
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c.txt").write_text("secret of the host")
    os.rename(lower / "sub", lower / "was")
    os.symlink(outside, lower / "sub")
    (upper / "sub").mkdir()
    (upper / "sub/c.txt").write_text("x")
    records = walk(os.open(upper, os.O_RDONLY), lower)
    assert told(records) == {"sub": "replaced", "sub/c.txt": "created"}


def test_small_changed_content_is_kept_by_digest(layers: tuple[Path, Path]) -> None:
    lower, upper = layers
    (upper / "new").write_bytes(b"small")
    (upper / "large").write_bytes(bytes(2 << 20))
    (upper / "b.txt").write_text("BETA")
    kept: dict[str, bytes] = {}
    up, down = os.open(upper, os.O_RDONLY), os.open(lower, os.O_RDONLY)
    try:
        list(walk_upper(up, down, "/w", content_sink=kept.__setitem__))
    finally:
        os.close(up)
        os.close(down)
    assert kept == {hashlib.sha256(data).hexdigest(): data for data in (b"small", b"BETA")}


# --- properties ------------------------------------------------------------------------------------------------

_names = st.binary(min_size=1, max_size=12).filter(
    lambda n: b"/" not in n and b"\0" not in n and n not in (b".", b"..")
)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(_names, st.binary(max_size=64), max_size=6))
def test_any_new_files_are_each_told_once_with_their_content(
    tmp_path_factory: pytest.TempPathFactory, files: dict[bytes, bytes]
) -> None:
    root = tmp_path_factory.mktemp("upper")
    for name, data in files.items():
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(data)
    fd = os.open(root, os.O_RDONLY)
    try:
        records: list[dict[str, Any]] = list(walk_upper(fd, None, "/w"))
    finally:
        os.close(fd)
    assert {os.fsencode(r["x"])[3:]: r["h256"] for r in records} == {
        name: hashlib.sha256(data).hexdigest() for name, data in files.items()
    }
    json.dumps(records)
