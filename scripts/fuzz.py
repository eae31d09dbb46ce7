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
    from aboveboard.oracles.process import judge

    from aboveboard.contract import Contract
    from aboveboard.evidence import Evidence

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


TARGETS = {target.__name__: target for target in (contract, evidence, canary, dns, http, tls, wheel, name, index_page)}


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
    print(f"{target:<12} {'ok  ' if done.returncode == 0 else 'FAIL'}  {executed} inputs", flush=True)
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
