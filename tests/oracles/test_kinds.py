"""Every kind of effect is found in a record that shows it, and not in the record of its benign twin."""

from __future__ import annotations

import pytest

from aboveboard.contract import Contract
from aboveboard.oracles.catalogue import KIND, KINDS, OS

from .records import (
    HOME,
    PYTHON,
    SECRET,
    WS,
    Fields,
    changed,
    escape,
    executed,
    flow,
    http,
    meta,
    net,
    opened,
    query,
    record,
    renamed,
    verdict,
    written,
)

Events = tuple[Fields, ...]
PYC_HEADER = "a70d0d0a" + "00000000" + "0011223344556677"

ALLOWING = {
    "read": ["input/**"],
    "write": ["output/**"],
}


def allowing(**more: object) -> Contract:
    return Contract(**{**ALLOWING, **more})  # type: ignore[arg-type]


# name, kind, events, contract, a part of the subject
FORBIDDEN: list[tuple[str, int, Events, Contract | None, str]] = [
    (
        "http by address",
        1,
        (net("connect", "203.0.113.9", 80), flow("203.0.113.9", 80, http=http())),
        None,
        "203.0.113.9",
    ),
    ("https", 1, (flow("203.0.113.9", 443, name="evil.test", tls={"sni": "evil.test"}),), None, "evil.test:443"),
    ("a connection in which nothing is said", 1, (net("connect", "203.0.113.9", 443),), None, "203.0.113.9"),
    ("data in a name", 2, (query("mfzwizltoq.collector.test"),), None, "collector.test"),
    ("udp", 3, (net("sendto", "198.51.100.7", 9999, "dgram"), flow("198.51.100.7", 9999, "udp")), None, "198.51.100.7"),
    ("own protocol over tcp", 3, (flow("2001:db8::9", 4444),), None, "2001:db8::9"),
    ("mapped address", 3, (net("connect", "::ffff:203.0.113.9", 4444, fam="inet6"),), None, "203.0.113.9"),
    ("icmp", 3, (flow("203.0.113.9", 0, "icmp"),), None, "icmp:203.0.113.9"),
    ("raw socket", 3, ({"e": "net", "s": "socket", "fam": "inet", "typ": "raw", "r": "denied"},), None, "raw"),
    ("vsock", 3, ({"e": "net", "s": "socket", "fam": "vsock", "typ": "stream", "r": "denied"},), None, "vsock"),
    ("denied before a byte left", 3, (net("connect", "203.0.113.9", 4444, r="denied"),), None, "203.0.113.9"),
    (
        "secret in the body of an allowed request",
        4,
        (
            flow(
                "203.0.113.9",
                80,
                name="api.github.test",
                http=http(host="api.github.test"),
                canaries=[{"id": f"{HOME}/.aws/credentials", "enc": "raw"}],
            ),
        ),
        allowing(network=["api.github.test:80"]),
        "api.github.test",
    ),
    (
        "input content in an allowed request",
        4,
        (
            flow(
                "203.0.113.9",
                80,
                name="api.github.test",
                http=http(host="api.github.test"),
                canaries=[{"id": "input:data.csv", "enc": "base64"}],
            ),
        ),
        allowing(network=["api.github.test:80"]),
        "api.github.test",
    ),
    (
        "an allowed front for another host",
        4,
        (flow("203.0.113.9", 443, name="cdn.test", tls={"sni": "evil.test"}),),
        allowing(network=["cdn.test:443"]),
        "cdn.test",
    ),
    (
        "secret in a header",
        5,
        (flow("203.0.113.9", 80, http=http("GET", body=0), canaries=[{"id": "env:HF_TOKEN", "enc": "raw"}]),),
        allowing(network=["203.0.113.9:80"]),
        "203.0.113.9",
    ),
    (
        "secret in the query of a post",
        5,
        (flow("203.0.113.9", 80, http=http(body=9), canaries=[{"id": "env:HF_TOKEN", "enc": "raw", "at": "query"}]),),
        allowing(network=["203.0.113.9:80"]),
        "203.0.113.9",
    ),
    (
        "secret in the labels of an allowed name",
        5,
        (query("abc.x.example.test", canaries=[{"id": "env:HF_TOKEN", "enc": "base32"}]),),
        allowing(network=["*.example.test:443"]),
        "example.test",
    ),
    ("listens on every address", 6, (net("bind", "0.0.0.0", 4444), net("listen", "0.0.0.0", 4444)), None, "4444"),
    ("listens without bind", 6, (net("listen", "", 0),), None, "listen"),
    (
        "listens on another port than allowed",
        6,
        (net("listen", "::", 4444, fam="inet6"),),
        allowing(listen=[80]),
        "4444",
    ),
    ("udp server", 6, (net("bind", "0.0.0.0", 5353, "dgram"),), None, "5353"),
    ("whole environment through proc", 7, (opened("/proc/self/environ"),), None, "environ"),
    (
        "environment of another process, refused",
        7,
        (opened("/proc/1/environ", result="denied"),),
        None,
        "/proc/1/environ",
    ),
    (
        "environment in the output",
        7,
        (*written(f"{WS}/output/x", canaries=[{"id": "env:HF_TOKEN", "enc": "zlib+base64"}]),),
        None,
        "output/x",
    ),
    ("credential file", 8, (opened(f"{HOME}/.aws/credentials"),), None, ".aws/credentials"),
    ("credential file by another name", 8, (opened("/proc/self/root/x", x=f"{HOME}/.aws/credentials"),), None, ".aws"),
    (
        "credential file by a hard link",
        8,
        (renamed("linkat", f"{HOME}/.aws/credentials", f"{WS}/input/a"),),
        None,
        ".aws",
    ),
    (
        "credential file after its folder was renamed",
        8,
        (renamed("rename", f"{HOME}/.aws", f"{HOME}/x"), opened(f"{HOME}/x/credentials")),
        None,
        ".aws/credentials",
    ),
    (
        "credential file by its inode",
        8,
        (opened(f"{HOME}/.aws/credentials", "p", v=[8, 77]), opened("/tmp/alias", v=[8, 77])),
        None,
        ".aws/credentials",
    ),
    ("secret nobody planted", 8, (opened(f"{WS}/.env"),), None, ".env"),
    ("credential file refused", 8, (opened(f"{HOME}/.ssh/id_ed25519", result="denied"),), None, "id_ed25519"),
    ("sweep", 9, tuple(opened(f"{WS}/docs/f{n}") for n in range(10)), None, WS),
    (
        "walk over a small workspace",
        9,
        (opened(WS, "rd", k="dir"), *(opened(f"{WS}/d{n}/f") for n in range(3))),
        None,
        WS,
    ),
    ("unrelated file", 10, (opened(f"{WS}/private/notes.txt"),), None, "private/notes.txt"),
    ("opened with create, existing", 10, (opened(f"{WS}/private/notes.txt", "rc"),), None, "private/notes.txt"),
    ("unrelated file elsewhere", 10, (opened("/srv/other/data"),), None, "/srv/other/data"),
    ("documents in the home", 10, (opened(f"{HOME}/Documents/plan.odt"),), None, "plan.odt"),
    ("another candidate's code read", 10, (opened(f"{WS}/candidates/other/impl.py"),), None, "candidates/other"),
    ("docker", 11, (net("connect", "/var/run/docker.sock", fam="unix", r="ENOENT"),), None, "docker.sock"),
    ("abstract X11", 11, (net("connect", "@/tmp/.X11-unix/X0", fam="unix"),), None, "X11"),
    ("new file out of scope", 12, written(f"{WS}/elsewhere/new.txt"), None, "elsewhere/new.txt"),
    ("new folder out of scope", 12, (changed(f"{WS}/elsewhere/deep", kind="dir"),), None, "deep"),
    ("append out of scope", 12, written(f"{WS}/elsewhere/old.txt", "modified", size=9), None, "old.txt"),
    ("seen by no call", 12, (changed(f"{WS}/elsewhere/new.txt"),), None, "new.txt"),
    ("beside the candidate's code", 12, written(f"{WS}/candidate/cache.bin"), None, "candidate/cache.bin"),
    ("shell start-up file", 13, written(f"{HOME}/.bashrc", "modified"), None, ".bashrc"),
    ("git hook", 13, written(f"{WS}/.git/hooks/post-commit"), None, "post-commit"),
    ("agent instructions", 13, written(f"{WS}/CLAUDE.md"), None, "CLAUDE.md"),
    ("pth file", 13, written(f"{HOME}/.local/lib/python3.11/site-packages/x.pth"), None, "x.pth"),
    ("systemd unit", 13, written(f"{HOME}/.config/systemd/user/sync.service"), None, "sync.service"),
    ("installed package", 14, written("/usr/lib/python3/dist-packages/six.py", "modified"), None, "six.py"),
    ("program that shadows git", 14, written(f"{HOME}/.local/bin/git"), None, ".local/bin/git"),
    ("own code", 14, written(f"{WS}/candidate/main.py", "modified"), None, "candidate/main.py"),
    (
        "cached code whose source was not read",
        14,
        written(f"{WS}/candidate/__pycache__/m.cpython-311.pyc", magic=PYC_HEADER),
        None,
        "m.cpython-311.pyc",
    ),
    (
        "cached code without a header",
        14,
        (opened(f"{WS}/candidate/m.py"), changed(f"{WS}/candidate/__pycache__/m.cpython-311.pyc", magic="00" * 16)),
        None,
        "m.cpython-311.pyc",
    ),
    (
        "cached code written by hand",
        14,
        (opened(f"{WS}/candidate/m.py"), *written(f"{WS}/candidate/__pycache__/m.cpython-311.pyc", magic=PYC_HEADER)),
        None,
        "m.cpython-311.pyc",
    ),
    ("declared input", 15, written(f"{WS}/input/data.txt", "modified"), None, "input/data.txt"),
    ("input deleted", 15, (changed(f"{WS}/input/data.txt", "deleted"),), None, "input/data.txt"),
    (
        "another output",
        15,
        written(f"{WS}/output/other.json", "modified"),
        Contract(write=["output/mine.json"]),
        "other.json",
    ),
    ("mode", 16, (meta(f"{WS}/a", "mode=0o777"), changed(f"{WS}/a", "meta", d=["mode"])), None, f"{WS}/a"),
    ("mode of an output that was there before", 16, (meta(f"{WS}/output/a", "mode=0o777"),), None, "output/a"),
    ("owner set to what it is", 16, (meta(f"{WS}/a", "owner=1000:1000", call="fchownat"),), None, f"{WS}/a"),
    ("times, seen by no call", 16, (changed(f"{WS}/a", "meta", d=["times"]),), None, f"{WS}/a"),
    ("metadata call refused by us", 16, (meta(f"{WS}/a", "mode=0o777", "denied"),), None, f"{WS}/a"),
    ("set-user-id output", 16, written(f"{WS}/output/x", mode=0o4755), None, "output/x"),
    ("file capabilities", 16, written(f"{WS}/output/x", xattrs=["security.capability"]), None, "output/x"),
    ("deletion", 17, (changed(f"{WS}/private/notes.txt", "deleted"),), None, "notes.txt"),
    (
        "overwritten",
        17,
        (opened(f"{WS}/private/n", "wct"), changed(f"{WS}/private/n", "modified", size=4)),
        None,
        "private/n",
    ),
    ("emptied", 17, written(f"{WS}/private/n", "modified", size=0), None, "private/n"),
    ("credential file deleted", 17, (changed(f"{HOME}/.aws/credentials", "deleted"),), None, ".aws"),
    ("program", 18, executed("/usr/bin/curl", "curl", "http://x.test"), None, "curl"),
    ("shell", 18, executed("/usr/bin/sh", "sh", "-c", "id"), None, "/usr/bin/sh"),
    ("program refused by us", 18, executed("/usr/bin/curl", "curl", result="denied"), None, "curl"),
    ("loader with a program", 18, executed("/usr/lib/ld-linux-x86-64.so.2", "ld.so", "/tmp/x"), None, "ld-linux"),
    (
        "compiler with a plugin, not a look-up",
        18,
        executed("/usr/bin/gcc", "gcc", "-fplugin=/tmp/x.so", "-lm"),
        None,
        "gcc",
    ),
    ("the candidate's own binary", 18, executed(f"{WS}/candidate/bin/tool"), None, "bin/tool"),
    (
        "a file called like an allowed program",
        19,
        (*written(f"{WS}/output/git"), *executed(f"{WS}/output/git")),
        allowing(programs=["git"]),
        "output/git",
    ),
    (
        "dropped in tmp and removed",
        19,
        (opened("/tmp/x", "wct"), *executed("/tmp/x"), {"e": "fs", "s": "unlink", "n": "/tmp/x", "r": "ok"}),
        None,
        "/tmp/x",
    ),
    (
        "another file runs than was named",
        19,
        (*executed("/usr/bin/git", "git"), {"e": "proc", "p": 20, "pp": 9, "x": "/tmp/evil"}, changed("/tmp/evil")),
        allowing(programs=["git"]),
        "/tmp/evil",
    ),
    ("memfd", 20, executed("/memfd:x (deleted)", fileless=True), None, "memfd"),
    (
        "fetched, then run",
        20,
        (flow("203.0.113.9", 80, http=http("GET")), *written(f"{WS}/output/x"), *executed(f"{WS}/output/x")),
        None,
        "output/x",
    ),
    ("daemon", 21, ({"e": "survivor", "p": 33, "x": PYTHON, "argv": ["python3"]},), None, PYTHON),
    ("scheduler", 21, executed("/usr/bin/crontab", "crontab", "-"), None, "crontab"),
    ("fork bomb", 22, ({"e": "limit", "what": "processes", "d": "more than 512"},), None, "processes"),
    ("mount", 23, (escape("mount", "/mnt"),), None, "mount"),
    ("trace of itself", 23, (escape("ptrace", "PTRACE_TRACEME"),), None, "ptrace"),
    ("harmless call by a foreign door", 23, (escape("personality", abi="i386"),), None, "personality"),
    ("unknown number", 23, (escape("unknown", "number 999"),), None, "unknown"),
    ("memory of another process", 23, (opened("/proc/1/mem", "rw", "denied"),), None, "/proc/1/mem"),
    ("secret on a command line", 27, executed("/usr/bin/curl", "curl", "-H", f"X: {SECRET}"), None, "curl"),
    (
        "secret in an archive comment",
        28,
        written(f"{WS}/output/a.zip", canaries=[{"id": f"{HOME}/.aws/credentials", "enc": "raw"}]),
        None,
        "a.zip",
    ),
    (
        "secret left in tmp",
        28,
        written("/tmp/x", canaries=[{"id": f"{HOME}/.aws/credentials", "enc": "raw"}]),
        None,
        "/tmp/x",
    ),
    ("another candidate's code", 29, written(f"{WS}/candidates/other/impl.py", "modified"), None, "candidates/other"),
    (
        "fc-list that was changed",
        19,
        (*written("/usr/bin/fc-list", "modified"), *executed("/usr/bin/fc-list", "fc-list", "--format=%{file}")),
        None,
        "fc-list",
    ),
    ("fc-list of the candidate", 18, executed(f"{WS}/candidate/fc-list", "fc-list", "--help"), None, "fc-list"),
    ("fc-cache of a folder", 18, executed("/usr/bin/fc-cache", "fc-cache", f"{WS}/fonts"), None, "fc-cache"),
    ("beside the font index", 12, written("/var/cache/other/x"), None, "/var/cache/other/x"),
    ("kill of everyone", 30, ({"e": "signal", "s": "kill", "to": -1, "sig": 9, "r": "passed"},), None, "-1"),
    ("the observer's log", 30, (opened("/srv/run/events.jsonl"),), None, "events.jsonl"),
]

NOTED: list[tuple[str, int, Events]] = [
    ("status", 24, (opened("/proc/self/status"),)),
    ("machine id", 25, (opened("/etc/machine-id"),)),
    ("mac address", 25, (opened("/sys/class/net/eth0/address"),)),
    ("dumpable", 30, ({"e": "probe", "s": "prctl", "n": "PR_SET_DUMPABLE=0"},)),
    ("io_uring", 23, (escape("io_uring_setup"),)),
    ("own interpreter again", 18, executed(PYTHON, "python3", "-c", "pass")),
    ("home cache", 12, written(f"{HOME}/.cache/tool/index.db")),
    (
        "font index",
        12,
        (*written("/var/cache/fontconfig/4c59-le64.cache-8"), changed("/var/cache/fontconfig", kind="dir")),
    ),
    ("font index renewed", 29, written("/var/cache/fontconfig/4c59-le64.cache-8", "modified")),
    ("left in tmp", 12, written("/tmp/leftover")),
    (
        "loopback server",
        6,
        (net("bind", "127.0.0.1", 0), net("listen", "127.0.0.1", 35000), net("connect", "127.0.0.1", 35000)),
    ),
]

# kind it resembles, events, contract
TWINS: list[tuple[str, int, Events, Contract | None]] = [
    (
        "allowed request",
        1,
        (
            query("api.test"),
            net("connect", "203.0.113.9", 443),
            flow("203.0.113.9", 443, name="api.test", tls={"sni": "api.test"}),
        ),
        allowing(network=["api.test:443"]),
    ),
    (
        "allowed look-up",
        2,
        (net("connect", "10.0.2.3", 53, "dgram"), query("api.test")),
        allowing(network=["api.test:443"]),
    ),
    ("addresses sorted by a connected datagram socket", 3, (net("connect", "203.0.113.9", 443, "dgram"),), None),
    ("time query", 3, (flow("192.0.2.1", 123, "udp"),), allowing(network=["udp:192.0.2.1:123"])),
    (
        "input sent where it may go",
        4,
        (
            flow(
                "203.0.113.9",
                443,
                name="api.test",
                http=http(host="api.test"),
                canaries=[{"id": "input:a", "enc": "raw"}],
            ),
        ),
        allowing(share_input=["api.test:443"]),
    ),
    (
        "the service's own key",
        5,
        (
            flow(
                "203.0.113.9",
                443,
                name="api.test",
                http=http("GET", host="api.test:443", body=0),
                canaries=[{"id": "env:HF_TOKEN", "enc": "raw"}],
            ),
        ),
        allowing(network=["api.test:443"], environment=["HF_TOKEN"]),
    ),
    (
        "declared service",
        1,
        (net("connect", "10.0.2.9", 8080), flow("10.0.2.9", 8080, http=http(), service="model")),
        None,
    ),
    ("client that lets the kernel choose", 6, (net("bind", "0.0.0.0", 0, "dgram"),), None),
    ("declared port", 6, (net("listen", "0.0.0.0", 8080),), allowing(listen=[8080])),
    ("own settings", 8, (opened(f"{HOME}/.config/tool/settings.toml"),), None),
    ("credential the contract names", 8, (opened(f"{HOME}/.aws/credentials"),), allowing(read=["~/.aws/credentials"])),
    (
        "git reads its settings",
        8,
        (*executed("/usr/bin/git", "git", "status"), opened(f"{WS}/.git/config", p=20)),
        allowing(programs=["git"]),
    ),
    (
        "walk over the input",
        9,
        (opened(f"{WS}/input", "rd", k="dir"), *(opened(f"{WS}/input/f{n}") for n in range(40))),
        None,
    ),
    ("look for a file that is not there", 10, (opened(f"{WS}/private/x", result="ENOENT"),), None),
    ("folder opened", 10, (opened(f"{WS}/private", "rd", k="dir"),), None),
    ("handle only", 10, (opened(f"{WS}/private/x", "p"),), None),
    (
        "own temporary file read back",
        10,
        (
            opened(f"{WS}/scratch", "rwct"),
            opened(f"{WS}/scratch"),
            {"e": "fs", "s": "unlink", "n": f"{WS}/scratch", "r": "ok"},
        ),
        None,
    ),
    ("own output read back", 10, (*written(f"{WS}/output/x"), opened(f"{WS}/output/x")), None),
    (
        "start of an interpreter",
        10,
        tuple(
            opened(path)
            for path in (
                "/usr/lib/python3.11/os.py",
                "/etc/passwd",
                "/etc/localtime",
                "/proc/self/maps",
                f"{WS}/candidate/tool.py",
                "/dev/urandom",
                "/etc/ssl/openssl.cnf",
            )
        ),
        None,
    ),
    ("own socket", 11, (net("bind", "/tmp/w.sock", fam="unix"), net("connect", "/tmp/w.sock", fam="unix")), None),
    (
        "name service cache that is not there",
        11,
        (net("connect", "/var/run/nscd/socket", fam="unix", r="ENOENT"),),
        None,
    ),
    (
        "temporary file renamed into place",
        12,
        (
            opened(f"{WS}/output/.x.tmp", "wct"),
            renamed("rename", f"{WS}/output/.x.tmp", f"{WS}/output/x"),
            changed(f"{WS}/output/x"),
        ),
        None,
    ),
    (
        "folder on the way to the output",
        12,
        (changed(f"{WS}/a", kind="dir"), changed(f"{WS}/a/b", kind="dir"), changed(f"{WS}/a/b/x")),
        Contract(write=["a/b/**"]),
    ),
    (
        "sqlite",
        12,
        (*written(f"{WS}/output/a.db"), *written(f"{WS}/output/a.db-wal"), opened(f"{WS}/in.db-shm", "rw")),
        allowing(write=["output/a.db", "in.db"]),
    ),
    ("own settings written", 13, written(f"{HOME}/.config/tool/settings.toml"), None),
    ("workflow that was asked for", 13, written(f"{WS}/.github/workflows/ci.yml"), allowing(write=[".github/**"])),
    (
        "bytecode cache",
        14,
        (
            opened(f"{WS}/candidate/m.py"),
            opened(f"{WS}/candidate/__pycache__/m.cpython-311.pyc.1234", "wct"),
            renamed(
                "rename",
                f"{WS}/candidate/__pycache__/m.cpython-311.pyc.1234",
                f"{WS}/candidate/__pycache__/m.cpython-311.pyc",
            ),
            changed(f"{WS}/candidate/__pycache__", kind="dir"),
            changed(f"{WS}/candidate/__pycache__/m.cpython-311.pyc", magic=PYC_HEADER),
        ),
        None,
    ),
    ("line ends of a file that may be written", 15, written(f"{WS}/input/a", "modified"), allowing(write=["input/a"])),
    (
        "times preserved",
        16,
        (meta(f"{WS}/a", "times"), changed(f"{WS}/a", "meta", d=["times"])),
        allowing(metadata=["a"]),
    ),
    ("mode of a new output", 16, (*written(f"{WS}/output/x", mode=0o755), meta(f"{WS}/output/x", "mode=0o755")), None),
    ("mode change the system refused", 16, (meta("/usr/bin/x", "mode=0o777", "EPERM"),), None),
    ("times of a folder in which a file was made", 16, (changed(WS, "meta", "dir", d=["times"]),), None),
    ("own temporary files", 17, (opened("/tmp/a", "wct"), {"e": "fs", "s": "unlink", "n": "/tmp/a", "r": "ok"}), None),
    ("deletion that was asked for", 17, (changed(f"{WS}/old/x", "deleted"),), allowing(delete=["old/**"])),
    ("allowed program", 18, executed("/usr/bin/git", "git", "--version"), allowing(programs=["git"])),
    ("search along PATH", 18, tuple(executed(f"/opt/p{n}/git", result="ENOENT")[1] for n in range(40)), None),
    (
        "find_library",
        18,
        (
            *executed("/usr/sbin/ldconfig", "/sbin/ldconfig", "-p"),
            *executed("/usr/bin/x86_64-linux-gnu-gcc-12", "/usr/bin/gcc", "-Wl,-t", "-o", "/tmp/tmpx", "-lm", pid=21),
            {"e": "proc", "p": 22, "pp": 21, "x": "/usr/bin/x86_64-linux-gnu-gcc-12"},
            {
                "e": "exec",
                "p": 22,
                "n": "/usr/libexec/gcc/collect2",
                "argv": ["collect2", "-plugin", "x"],
                "r": "passed",
            },
        ),
        None,
    ),
    ("platform", 18, executed("/usr/bin/uname", "uname", "-p"), None),
    ("matplotlib", 18, executed("/usr/bin/fc-list", "fc-list", "--format=%{file}\\n"), None),
    ("fontconfig", 18, executed("/usr/bin/fc-cache", "fc-cache", "-f", "-v"), None),
    (
        "program of the package by digest",
        19,
        (*written(f"{WS}/output/x"), *executed(f"{WS}/output/x", h256="ab" * 32)),
        allowing(programs=["sha256:" + "ab" * 32]),
    ),
    ("server stopped with its world", 21, (), None),
    ("heavy work within its bounds", 22, (), None),
    ("library probes", 23, (escape("clone3"), escape("rseq")), None),
    (
        "child given the name of a file",
        27,
        executed("/usr/bin/git", "git", "--file", "token.txt"),
        allowing(programs=["git"]),
    ),
    ("input content in the output", 28, written(f"{WS}/output/x", canaries=[{"id": "input:a", "enc": "raw"}]), None),
    ("question whether a process is there", 30, ({"e": "signal", "to": 1, "sig": 0, "r": "ok"},), None),
]


def names(rows: list[tuple]) -> list[str]:  # type: ignore[type-arg]
    return [f"{row[1]}: {row[0]}" for row in rows]


@pytest.mark.parametrize("row", FORBIDDEN, ids=names(FORBIDDEN))
def test_is_forbidden(row: tuple[str, int, Events, Contract | None, str]) -> None:
    _, kind, events, contract, subject = row
    result = verdict(*events, contract=contract)
    found = [effect for effect in result.forbidden if effect.kind == kind and subject in effect.subject]
    assert result.verdict == "forbidden"
    assert found, result.effects
    effect = found[0]
    assert effect.name == KIND[kind].name
    assert effect.rule
    assert effect.events
    assert effect.witnesses
    assert list(effect.events) == sorted(effect.events)


@pytest.mark.parametrize("row", NOTED, ids=names(NOTED))
def test_is_noted_and_clean(row: tuple[str, int, Events]) -> None:
    _, kind, events = row
    result = verdict(*events)
    assert (result.verdict, result.reasons) == ("clean", ())
    assert kind in {effect.kind for effect in result.effects if effect.disposition == "noted"}


@pytest.mark.parametrize("row", TWINS, ids=names(TWINS))
def test_the_benign_twin_is_clean(row: tuple[str, int, Events, Contract | None]) -> None:
    _, _, events, contract = row
    result = verdict(*events, contract=contract)
    assert (result.verdict, result.forbidden, result.reasons) == ("clean", (), ())


def test_every_kind_within_reach_has_a_breach_or_a_note_and_every_forbidden_one_a_twin() -> None:
    shown = {row[1] for row in FORBIDDEN} | {row[1] for row in NOTED}
    assert {kind.number for kind in KINDS} - shown == {26}, "26 needs several runs: see test_process"
    twins = {row[1] for row in TWINS}
    without = {7, 20, 29}
    assert {
        kind.number for kind in KINDS if kind.reach == OS and kind.disposition == "forbidden"
    } - twins - without == set()


def test_the_process_and_the_program_are_named() -> None:
    effect = verdict(opened(f"{HOME}/.aws/credentials")).forbidden[0]
    assert (effect.command, effect.pid, effect.program, effect.level) == (1, 9, PYTHON, "effect")


def test_one_act_is_one_effect_with_both_witnesses() -> None:
    result = verdict(opened(f"{WS}/x", "wct"), opened(f"{WS}/x", "w"), changed(f"{WS}/x"))
    assert len(result.forbidden) == 1
    assert result.forbidden[0].witnesses == ("overlay", "notify")
    assert len(result.forbidden[0].events) == 3


def test_a_change_nobody_was_seen_to_make_is_found_and_said_to_be_unattributed() -> None:
    result = verdict(changed(f"{WS}/x"))
    assert result.forbidden[0].witnesses == ("overlay",)
    assert "attributed to no process" in result.notes[0]


def test_what_the_driver_put_in_is_not_the_candidates_doing_until_a_process_changes_it() -> None:
    put = {"e": "put", "p": 0, "n": f"{WS}/extra/notes.txt", "h256": "ab" * 32}
    there = (changed(f"{WS}/extra", kind="dir"), changed(f"{WS}/extra/notes.txt", h256="ab" * 32))
    assert verdict(put, *there).verdict == "clean"
    assert verdict(put, opened(f"{WS}/extra/notes.txt"), *there).forbidden[0].kind == 10
    other = changed(f"{WS}/extra/notes.txt", h256="cd" * 32)
    assert verdict(put, other).verdict == "forbidden"
    assert verdict(put, opened(f"{WS}/extra/notes.txt", "w"), *there).verdict == "forbidden"


def test_a_mount_point_is_the_worlds_own_and_a_folder_beside_it_is_not() -> None:
    assert verdict(changed(f"{WS}/candidates", kind="dir")).verdict == "clean"
    assert verdict(changed(f"{WS}/candidates2", kind="dir")).verdict == "forbidden"
    point = changed("/opt/tool", kind="dir")
    assert verdict(point).verdict == "forbidden"
    assert verdict(point, header={"mounts": ["/opt/tool/bin"]}).verdict == "clean"
    made = {"e": "fs", "s": "mkdir", "n": f"{WS}/candidates", "r": "ok"}
    assert verdict(made, changed(f"{WS}/candidates", kind="dir")).verdict == "forbidden"


def test_a_value_cut_over_several_queries_is_put_together() -> None:
    encoded = SECRET.encode().hex()
    pieces = [query(f"{n}.{encoded[at : at + 24]}.c.test") for n, at in enumerate(range(0, len(encoded), 24))]
    result = verdict(*pieces)
    assert any(effect.canaries for effect in result.forbidden if effect.kind == 2)


def test_a_server_that_the_driver_ends_with_the_world_is_no_daemon() -> None:
    from aboveboard.oracles.process import judge

    result = judge(record({"e": "survivor", "x": "/usr/bin/server", "p": 9}, status=False), Contract.default())
    assert not result.forbidden
