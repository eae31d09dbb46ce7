"""Coverage-guided fuzzing of every parser that reads bytes an attacker chose: ``make fuzz``.

Each target runs in a process of its own for a while, starting from a few well-formed inputs. A target may raise only
what its documentation allows. A crash, a hang (5 s for one input) or more than 1 GiB of memory ends the run with exit
code 1, and the input that did it is kept in ``fuzz-findings/``. ``--target NAME FILE`` runs one input again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FINDINGS = ROOT / "fuzz-findings"
TIMEOUT_SECONDS = 5
MEMORY_MIB = 1024
MAX_INPUT_BYTES = 1 << 16

Target = Callable[[bytes], object]


def contract() -> tuple[Target, list[bytes]]:
    from aboveboard.contract import Contract
    from aboveboard.errors import ContractError

    def run(data: bytes) -> None:
        try:
            found = Contract.parse(data)
        except ContractError:
            return
        assert Contract.parse(found.to_toml()) == found
        found.compile(workspace="/home/dev/task").read.match("/home/dev/task/" + data[:64].decode("utf-8", "replace"))

    return run, [
        b'[contract]\nread = ["input/**"]\nwrite = ["output/*.html"]\nnetwork = ["*.test:443"]\ngrace_seconds = 1\n',
        b'[contract]\nprograms = ["gcc", "sha256:' + b"0" * 64 + b'"]\nlisten = [8080]\nminimum_tier = "U"\n',
    ]


def evidence() -> tuple[Target, list[bytes]]:
    from aboveboard.contract import Contract
    from aboveboard.evidence import Evidence
    from aboveboard.oracles.process import judge

    allowed = Contract.default()

    def run(data: bytes) -> None:
        record = Evidence.from_bytes(data)
        record.verify_chain()
        assert judge(record, allowed).verdict != "clean"

    whole = [
        {"e": "world", "v": 1, "tier": "U", "mode": "observe", "roots": {"home": ["/home/dev"]}, "decoys": []},
        {"e": "command", "c": 1, "argv": ["x"], "cwd": "/home/dev/task"},
        {"e": "open", "c": 1, "p": 7, "s": "openat", "n": "/etc/passwd", "a": "r", "r": "ok"},
        {"e": "flow", "proto": "tcp", "dst": "192.0.2.7", "port": 80, "http": {"method": "GET", "path": "/"}},
        {"e": "change", "x": "/home/dev/.bashrc", "w": "modified", "k": "file"},
    ]
    return run, [b"".join(json.dumps(event).encode() + b"\n" for event in whole), b'{"e":"end","counts":{}}\n']


def canary() -> tuple[Target, list[bytes]]:
    import base64
    import gzip

    from aboveboard.evidence.canary import Scanner

    value = b"q7Zk2mVx9PbT4wLs"
    scanner = Scanner({"key": value})

    def run(data: bytes) -> None:
        scanner.scan(data)
        stream = scanner.stream()
        for start in range(0, len(data), 4096):
            stream.feed(data[start : start + 4096])
        stream.close()

    return run, [
        value,
        base64.b64encode(b"x" + value),
        gzip.compress(value),
        value.hex().encode(),
        base64.b32encode(value),
    ]


def dns() -> tuple[Target, list[bytes]]:
    from aboveboard.world.protocols import Names, ProtocolError, dns_answer, dns_query

    def run(data: bytes) -> None:
        try:
            query = dns_query(data)
        except ProtocolError:
            return
        assert len(dns_answer(query, Names())) <= 65535

    return run, [b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x04test\x00\x00\x01\x00\x01"]


def http() -> tuple[Target, list[bytes]]:
    from aboveboard.world.protocols import HttpRequest, RequestReader, http_answer

    def run(data: bytes) -> None:
        reader = RequestReader()
        # The first byte cuts the stream, since a reader must not depend on where packets end.
        step = data[0] + 1 if data else 1
        for start in range(1, len(data), step):
            for _, part in reader.feed(data[start : start + step]):
                if isinstance(part, HttpRequest):
                    http_answer(part)

    return run, [
        b"\xffPOST /collect?x=1 HTTP/1.1\r\nHost: metrics.test\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.0\r\n\r\n",
        b"\x07PUT /a HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nabcd\r\n0\r\nT: v\r\n\r\n",
        b"\x20CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n\x16\x03\x01",
    ]


def tls() -> tuple[Target, list[bytes]]:
    import ssl

    from aboveboard.world.protocols import ProtocolError, client_hello

    def run(data: bytes) -> None:
        try:
            client_hello(data)
        except ProtocolError:
            pass

    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="api.test").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return run, [outgoing.read()]


def wheel() -> tuple[Target, list[bytes]]:
    import io
    import zipfile

    from aboveboard.errors import TargetError
    from aboveboard.vet import archives

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("tool/__init__.py", "")
        archive.writestr(
            "tool-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tool\nVersion: 1.0\nRequires-Dist: x>1\n"
        )
        archive.writestr("tool-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tool-1.0.dist-info/entry_points.txt", "[console_scripts]\ntool = tool:main\n")
    folder = Path(tempfile.mkdtemp(prefix="aboveboard-fuzz-"))

    def run(data: bytes) -> None:
        path = folder / "tool-1.0-py3-none-any.whl"
        path.write_bytes(data)
        try:
            archives.read_wheel(path)
        except TargetError:
            pass

    return run, [buffer.getvalue()]


def name() -> tuple[Target, list[bytes]]:
    from aboveboard.errors import TargetError
    from aboveboard.vet import targets

    def run(data: bytes) -> None:
        # surrogateescape, as in sys.argv
        try:
            targets.recognise(data[:4096].decode("utf-8", "surrogateescape"))
        except TargetError:
            pass

    return run, [
        b"mistune==3.1.3",
        b"pkg[extra]>=1,<2; python_version > '3'",
        b"a-1.0-cp311-abi3-manylinux_2_17_x86_64.whl",
    ]


def index_page() -> tuple[Target, list[bytes]]:
    from aboveboard.vet import index

    def run(data: bytes) -> None:
        kind = "application/vnd.pypi.simple.v1+json" if data[:1] == b"{" else "text/html"
        index.parse_page(data, kind, "https://index.test/simple/tool/")

    return run, [
        b'<a href="../../f/tool-1.0.tar.gz#sha256=00" data-requires-python="&gt;=3.8">tool-1.0.tar.gz</a>',
        b'{"files":[{"filename":"tool-1.0.tar.gz","url":"t.gz","hashes":{"sha256":"00"},"yanked":false}]}',
    ]


class _Memory:
    """A caller's memory: the input at a base address, a fault everywhere else."""

    BASE = 0x10000

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, _tid: int, address: int, size: int) -> bytes:
        import errno

        start = address - self.BASE
        if not 0 <= start < len(self.content):
            raise OSError(errno.EFAULT, "fault")
        return self.content[start : start + min(size, 1 << 16)]

    def string(self, tid: int, address: int, limit: int = 4096) -> bytes:
        import errno

        data = self.read(tid, address, limit)
        end = data.find(b"\0")
        if end < 0:
            raise OSError(errno.EFAULT if len(data) < limit else errno.ENAMETOOLONG, "no end")
        return data[:end]


def _supervisor(memory: bytes) -> tuple[Any, list[str]]:
    """What handlers need of a supervisor, over a caller's memory; and the fields they log."""
    from types import SimpleNamespace

    from aboveboard.world.spec import Limits

    logged: list[str] = []
    log = SimpleNamespace(add=lambda _kind, _pid, _command, fields="": logged.append(fields), cause=lambda *_: {})
    return SimpleNamespace(log=log, memory=_Memory(memory), sink=None, limits=Limits()), logged


def _call(name: str, data: bytes) -> Any:
    """A call whose six arguments are the start of the input; its answer is dropped."""
    import struct
    from types import SimpleNamespace

    from aboveboard.world import _linux
    from aboveboard.world.calls import Call

    class Dropped(Call):
        def _send(self, *_: int) -> None:
            self.answered = True

    args = struct.unpack("=6Q", data[:48].ljust(48, b"\0"))
    abi = "i386" if data[48:49] > b"\x7f" else _linux.ARCH
    call = Dropped(-1, 1, 1, 0, name, abi, args, 1)
    call.process = SimpleNamespace(pid=1, pidfd=-1, memory=-1)  # type: ignore[assignment]
    return call


def _logs_are_sound(logged: list[str]) -> None:
    for fields in logged:
        assert fields.isascii()
        json.loads("{" + fields.removeprefix(",") + "}")


def sockets() -> tuple[Target, list[bytes]]:
    import struct

    from aboveboard.world.traffic import Address, Traffic

    names = ("connect", "bind", "sendto", "sendmsg", "sendmmsg", "socket", "socketcall")

    def run(data: bytes) -> None:
        Address(data)
        supervisor, logged = _supervisor(data[50:])
        handlers = Traffic(supervisor, None)
        handlers._socket_type = lambda *_: 2  # type: ignore[method-assign]
        call = _call(names[data[49] % len(names)] if len(data) > 49 else names[0], data)
        try:
            handlers.handle(call)
        except OSError:
            assert not call.answered
        else:
            assert call.answered
        _logs_are_sound(logged)

    address = struct.pack("=HH4s8x", 2, 0xBB01, bytes([192, 0, 2, 7]))
    six = struct.pack("=HHI16sI", 10, 0x3500, 0, bytes(16), 0)
    base = _Memory.BASE
    header = struct.pack("=QI52x", base + 64, 16)
    return run, [
        struct.pack("=6Q", 3, base, 16, 0, 0, 0) + b"\0\0" + address,
        struct.pack("=6Q", 3, base, 28, 0, 0, 0) + b"\0\1" + six,
        struct.pack("=6Q", 3, 0, 0, 0, base, 16) + b"\0\2" + address,
        struct.pack("=6Q", 3, base, 1, 0, 0, 0) + b"\0\4" + header + address,
        struct.pack("=6Q", 3, base, 0, 0, 0, 0) + b"\xff\6" + struct.pack("=3I", 3, base + 12, 16) + address,
    ]


def arguments() -> tuple[Target, list[bytes]]:
    import struct

    from aboveboard.world.programs import DigestCache, Programs

    def run(data: bytes) -> None:
        supervisor, _ = _supervisor(data[50:])
        call = _call("execve", data)
        try:
            words = Programs(supervisor, None, DigestCache())._arguments(call, call.args[1])
        except OSError:
            return
        assert len(words) <= 130
        assert sum(map(len, words)) <= (16 << 10) + 2 * 4099

    base = _Memory.BASE
    return run, [
        struct.pack("=6Q", 0, base, 0, 0, 0, 0) + b"\0\0" + struct.pack("=3Q", base + 24, base + 27, 0) + b"ls\0-l\0",
        struct.pack("=6Q", 0, base, 0, 0, 0, 0) + b"\xff\0" + struct.pack("=2I", base + 8, 0) + b"id\0",
    ]


def paths_and_times() -> tuple[Target, list[bytes]]:
    import os
    import struct

    from aboveboard.world.files import Files
    from aboveboard.world.syscalls import METADATA

    names = ("openat2", *sorted(METADATA))
    os.chdir("/proc")

    def nowhere(*_: object, **__: object) -> int:
        raise FileNotFoundError(2, "nothing is reached")

    def run(data: bytes) -> None:
        supervisor, logged = _supervisor(data[50:])
        supervisor.tasks = type("", (), {"umask": staticmethod(lambda *_: 0o22)})
        supervisor.announce_phase = lambda *_: None
        handlers = _files(supervisor)
        call = _call(names[data[49] % len(names)] if len(data) > 49 else names[0], data)
        try:
            (handlers.open if call.name == "openat2" else handlers.metadata)(call)
        except OSError:
            assert not call.answered
        else:
            assert call.answered
        _logs_are_sound(logged)

    def _files(supervisor: Any) -> Any:
        made = Files(supervisor, None)
        os.close(made._own)
        for name in ("base", "located", "open_object", "_held"):
            setattr(made, name, nowhere)
        return made

    base = _Memory.BASE
    how = struct.pack("=QQQ", 0, 0, 0)
    times = struct.pack("=4q", 1, 0, 2, 0)
    return run, [
        struct.pack("=6Q", 3, base, base + 8, 24, 0, 0) + b"\0\0" + b"/tmp/ab\0" + how,
        *(
            struct.pack("=6Q", *args, 0, 0) + bytes([0, 1 + number]) + b"/tmp/ab\0" + times
            for number in range(len(METADATA))
            for args in ((base, base + 8, 8, 0), (3, base, base + 8, 0))
        ),
    ]


def log_text() -> tuple[Target, list[bytes]]:
    from aboveboard.world.log import encode, text

    def run(data: bytes) -> None:
        literal = text(data)
        assert literal.isascii()
        back = json.loads(literal)
        if not back.endswith("…"):
            assert back.encode("utf-8", "surrogateescape") == data
        assert json.loads(encode({"k": [data, len(data), None, {"x": data}]}))["k"][0] == back

    return run, [b"/etc/passwd", b'\xff\xfe\n"\\', "né😀\u2028".encode(), b"\xed\xa0\x80"]


TARGETS = {
    target.__name__: target
    for target in (
        *(contract, evidence, canary, dns, http, tls, wheel, name, index_page),
        *(sockets, arguments, paths_and_times, log_text),
    )
}


def fuzz(target: str, seconds: int) -> bool:
    """Whether ``target`` stood ``seconds`` of fuzzing; findings are kept."""
    FINDINGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aboveboard-fuzz-") as corpus:
        command = [
            sys.executable,
            __file__,
            "--inside",
            target,
            f"-max_total_time={seconds}",
            f"-timeout={TIMEOUT_SECONDS}",
            f"-rss_limit_mb={MEMORY_MIB}",
            f"-max_len={MAX_INPUT_BYTES}",
            f"-artifact_prefix={FINDINGS}/{target}-",
            "-print_final_stats=1",
            corpus,
        ]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    executed = next((x.split()[-1] for x in done.stderr.splitlines() if "number_of_executed_units" in x), "no")
    print(f"{target:<16} {'ok  ' if done.returncode == 0 else 'FAIL'}  {executed} inputs", flush=True)
    if done.returncode:
        print("\n".join(done.stderr.splitlines()[-40:]))
    return done.returncode == 0


def inside(target: str, rest: list[str]) -> None:
    """Fuzzes in this process; libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["aboveboard"]):
        run, seeds = TARGETS[target]()
    for number, seed in enumerate(seeds):
        (Path(rest[-1]) / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *rest], run)
    atheris.Fuzz()


def main() -> int:
    """Fuzzes what is asked for; 1 when anything was found."""
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=30, help="for each target (default: 30)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; repeatable")
    parser.add_argument("input", nargs="?", type=Path, help="run this one input through the target instead")
    arguments = parser.parse_args()
    chosen = arguments.target or list(TARGETS)
    if arguments.input:
        for target in chosen:
            TARGETS[target]()[0](arguments.input.read_bytes())
        return 0
    found = [target for target in chosen if not fuzz(target, arguments.seconds)]
    print(f"{len(chosen) - len(found)} passed, {len(found)} failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
