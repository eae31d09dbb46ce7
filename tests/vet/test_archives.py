"""Metadata is read from hostile archives in bounded time and memory, or the archive is refused by name."""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import tarfile
import tracemalloc
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aboveboard.errors import TargetError
from aboveboard.vet import archives

WHEEL = "tool-1.0-py3-none-any.whl"
METADATA = (
    "Metadata-Version: 2.1\nName: tool\nVersion: 1.0\nRequires-Dist: dep>=2\nRequires-Dist: more; extra == 'x'\n\nText"
)


def wheel(folder, members, name=WHEEL):
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return path


def sdist(folder, members, name="tool-1.0.tar.gz"):
    path = folder / name
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members.items():
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_a_wheel_tells_requirements_modules_and_console_scripts(tmp_path):
    found = archives.read_wheel(
        wheel(
            tmp_path,
            {
                "tool/__init__.py": "",
                "tool/sub.py": "",
                "single.py": "",
                "tool-1.0.dist-info/METADATA": METADATA,
                "tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool.cli:main [x]\n[other]\na = b\n",
            },
        )
    )

    assert (found.name, found.version) == ("tool", "1.0")
    assert found.requires == ("dep>=2", "more; extra == 'x'")
    assert found.modules == ("single", "tool")
    assert found.scripts == (("tool", "tool.cli:main"),)
    assert found.notes == ()


def test_odd_member_names_are_noted_not_followed(tmp_path):
    found = archives.read_wheel(
        wheel(
            tmp_path,
            {"tool-1.0.dist-info/METADATA": METADATA, "../../up.py": "", "start.pth": "import os", "a\x1b[2J.py": ""},
        )
    )
    assert len(found.notes) == 3
    assert all("\x1b" not in note for note in found.notes)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({}, "0 .dist-info"),
        ({"a-1.dist-info/METADATA": "", "b-1.dist-info/METADATA": ""}, "2 .dist-info"),
        ({"other-1.0.dist-info/METADATA": METADATA}, "its file name says 'tool'"),
        ({"tool-1.0.dist-info/METADATA": "x" * (archives.MAX_METADATA_BYTES + 1)}, "larger than"),
    ],
)
def test_a_wheel_without_one_fitting_metadata_is_refused(tmp_path, members, says):
    with pytest.raises(TargetError, match=says) as caught:
        archives.read_wheel(wheel(tmp_path, members))
    assert WHEEL in caught.value.message


@pytest.mark.parametrize("name", ["tool.whl", "tool-1.0.whl", "tool-x-y-z-w-v.whl", "to/ol-1.0-py3-none-any.whl"])
def test_a_wheel_whose_name_is_none_is_refused(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    with pytest.raises(TargetError):
        archives.read_wheel(path)


def test_a_wheel_for_another_machine_is_refused(tmp_path):
    path = wheel(tmp_path, {"tool-1.0.dist-info/METADATA": METADATA}, "tool-1.0-cp27-cp27m-win32.whl")
    with pytest.raises(TargetError, match="cp27-cp27m-win32"):
        archives.read_wheel(path)


def test_a_zip_that_declares_gigabytes_is_refused_unread(tmp_path, monkeypatch):
    path = wheel(tmp_path, {"tool-1.0.dist-info/METADATA": METADATA, "bomb": b"\0" * 5_000_000})
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1_000_000)
    with pytest.raises(TargetError, match="bomb"):
        archives.read_wheel(path)


def test_a_zip_directory_that_claims_too_much_is_refused_unread(tmp_path):
    path = wheel(tmp_path, {"tool-1.0.dist-info/METADATA": METADATA})
    raw = bytearray(path.read_bytes())
    end = raw.rfind(b"PK\x05\x06")
    struct.pack_into("<L", raw, end + 12, 0xFFFF_0000)
    path.write_bytes(raw)
    with pytest.raises(TargetError, match="directory claims"):
        archives.read_wheel(path)


def test_an_sdist_tells_requirements_build_requirements_and_modules(tmp_path):
    pyproject = b'[build-system]\nrequires = ["flit_core"]\n[project]\nname = "tool"\nscripts = {tool = "tool:main"}\n'
    found = archives.read_sdist(
        sdist(
            tmp_path,
            {
                "tool-1.0/PKG-INFO": METADATA.encode(),
                "tool-1.0/pyproject.toml": pyproject,
                "tool-1.0/src/tool/__init__.py": b"",
                "tool-1.0/vendor/PKG-INFO": b"Name: other\n",
                "tool-1.0/setup.py": b"",
            },
        )
    )
    assert found.requires == ("dep>=2", "more; extra == 'x'")
    assert found.build_requires == ("flit_core",)
    assert found.scripts == (("tool", "tool:main"),)


def test_an_old_sdist_gets_the_build_requirements_that_pip_assumes(tmp_path):
    found = archives.read_sdist(sdist(tmp_path, {"tool-1.0/setup.py": b"", "tool-1.0/tool.py": b""}))
    assert found.build_requires == archives.DEFAULT_BUILD_REQUIRES
    assert found.modules == ("tool",)


def test_an_sdist_from_before_metadata_2_1_tells_its_requirements_in_requires_txt(tmp_path):
    listed = b"lark-parser<0.8\n\n[:python_version < '3']\nold\n\n[fast]\nspeed\n"
    members = {"tool-1.0/PKG-INFO": b"Name: tool\nVersion: 1.0\n", "tool-1.0/tool.egg-info/requires.txt": listed}
    found = archives.read_sdist(sdist(tmp_path, members))
    assert found.requires == ("lark-parser<0.8", "old; (python_version < '3')", "speed; extra == 'fast'")


def test_a_tar_header_that_declares_gigabytes_costs_no_memory(tmp_path):
    info = tarfile.TarInfo("tool-1.0/PKG-INFO")
    info.type = tarfile.XHDTYPE
    info.size = 4 << 30
    path = tmp_path / "tool-1.0.tar.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(info.tobuf())
        for _ in range(64):
            stream.write(b"\0" * (1 << 20))

    tracemalloc.start()
    try:
        with pytest.raises(TargetError, match="not read"):
            archives.read_sdist(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_tar_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1 << 20)
    path = sdist(tmp_path, {"tool-1.0/big": b"\0" * (4 << 20), "tool-1.0/PKG-INFO": METADATA.encode()})
    with pytest.raises(TargetError, match="bomb"):
        archives.read_sdist(path)


@pytest.mark.parametrize("name", [WHEEL, "tool-1.0.tar.gz", "tool-1.0.zip"])
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_damage_ends_in_metadata_or_a_target_error(tmp_path, name, data):
    members = {"tool-1.0.dist-info/METADATA": METADATA, "tool/__init__.py": "", "tool-1.0/PKG-INFO": METADATA}
    maker = sdist if name.endswith(".gz") else wheel
    path = maker(tmp_path, {key: value.encode() for key, value in members.items()}, name)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with contextlib.suppress(TargetError):
        found = (archives.read_wheel if name == WHEEL else archives.read_sdist)(path)
        assert found.name == "tool"


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5)))
def test_a_pyproject_of_any_shape_is_read(document):
    build, requires, scripts = archives.read_pyproject({"project": document, "build-system": document})
    assert all(isinstance(text, str) for text in (*build, *requires))
    assert all(isinstance(text, str) for pair in scripts for text in pair)


@given(st.text())
def test_entry_points_of_any_text_are_read(text):
    assert isinstance(archives.console_scripts(text), tuple)
