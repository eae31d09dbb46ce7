"""Requirements become files without running their code, and stay usable offline."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from aboveboard.errors import EnvironmentProblem, TargetError
from aboveboard.vet import fetch, index


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder that pip takes for its only index, and an empty cache."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_INDEX_URL", f"{folder.as_uri()}/simple")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def put_wheel(folder, name, version, requires=()):
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    text += "".join(f"Requires-Dist: {line}\n" for line in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "raise SystemExit('it ran')")
        archive.writestr(f"{info}/METADATA", text)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def put_sdist(folder, name, version, witness):
    """An sdist whose set-up writes a file: it must not come into being."""
    page = folder / "simple" / name
    page.mkdir(parents=True)
    path = page / f"{name}-{version}.tar.gz"
    members = {"PKG-INFO": f"Name: {name}\nVersion: {version}\n", "setup.py": f"open({str(witness)!r}, 'w')"}
    with tarfile.open(path, "w:gz") as archive:
        for member, text in members.items():
            info = tarfile.TarInfo(f"{name}-{version}/{member}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (page / "index.html").write_text(f'<a href="{path.name}#sha256={digest}">{path.name}</a>')
    return path


def names(packages):
    return [(package.name, package.version) for package in packages]


def test_dependencies_come_along_and_are_chosen_together(shelf):
    put_wheel(shelf, "top", "1.0", ["mid>=1", "left; extra == 'fruit'", "never; python_version < '3'"])
    put_wheel(shelf, "mid", "1.0")
    put_wheel(shelf, "mid", "2.0", ["leaf<2"])
    put_wheel(shelf, "leaf", "1.0")
    put_wheel(shelf, "leaf", "2.0")
    put_wheel(shelf, "left", "1.0")

    assert names(fetch.collect(["top==1.0"])) == [("leaf", "1.0"), ("mid", "2.0"), ("top", "1.0")]
    assert ("left", "1.0") in names(fetch.collect(["top[fruit]==1.0"]))


def test_a_pinned_requirement_fetched_once_works_offline(shelf):
    path = put_wheel(shelf, "top", "1.0")
    first = fetch.collect(["top==1.0"])
    path.unlink()

    again = fetch.collect(["top==1.0"], offline=True)

    assert again == first
    assert hashlib.sha256(again[0].path.read_bytes()).hexdigest() == again[0].sha256


def test_offline_with_an_empty_cache_names_what_is_missing(shelf):
    with pytest.raises(EnvironmentProblem, match=r"top==1.0 is not in the cache"):
        fetch.collect(["top==1.0"], offline=True)


def test_a_cached_file_that_was_changed_is_not_used(shelf):
    path = put_wheel(shelf, "top", "1.0")
    (package,) = fetch.collect(["top==1.0"])
    package.path.write_bytes(b"changed")
    path.unlink()
    with pytest.raises(EnvironmentProblem):
        fetch.collect(["top==1.0"], offline=True)


def test_a_file_with_another_digest_than_the_pin_is_refused(shelf):
    put_wheel(shelf, "top", "1.0")
    with pytest.raises(TargetError, match="the pin says 0000"):
        fetch.collect(["top==1.0"], pins={"top": "0" * 64})


def test_an_sdist_is_fetched_as_a_file_and_nothing_of_it_runs(shelf, tmp_path):
    put_sdist(shelf, "raw", "1.0", tmp_path / "witness")

    (package,) = fetch.collect(["raw"])

    assert package.filename == "raw-1.0.tar.gz"
    assert not (tmp_path / "witness").exists()


def test_an_sdist_whose_digest_differs_from_the_index_is_refused(shelf, tmp_path):
    put_sdist(shelf, "raw", "1.0", tmp_path / "witness").write_bytes(b"replaced")
    with pytest.raises(TargetError, match="the index says"):
        fetch.collect(["raw"])


def test_a_dependency_by_url_is_refused(shelf):
    put_wheel(shelf, "top", "1.0", ["evil @ git+https://evil.test/evil"])
    with pytest.raises(TargetError, match="direct reference"):
        fetch.collect(["top"])


def test_an_unknown_project_is_no_environment_problem(shelf):
    (shelf / "simple").mkdir()
    with pytest.raises(TargetError, match="no index has"):
        fetch.collect(["nowhere==1.0"])


def test_an_index_that_cannot_be_reached_is_named_without_its_password(shelf, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:hunter2@127.0.0.1:9/simple")
    with pytest.raises(EnvironmentProblem, match="no package index answers") as caught:
        fetch.collect(["nowhere==1.0"])
    assert "127.0.0.1:9" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_requirements_that_contradict_each_other_end_in_an_error(shelf):
    put_wheel(shelf, "top", "1.0", ["leaf==1.0", "mid"])
    put_wheel(shelf, "mid", "1.0", ["leaf==2.0"])
    put_wheel(shelf, "leaf", "1.0")
    put_wheel(shelf, "leaf", "2.0")
    (shelf / "simple").mkdir()
    with pytest.raises(TargetError):
        fetch.collect(["top"])


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("", [index.DEFAULT_INDEX]),
        ("global.index-url='https://a.test/simple'\n", ["https://a.test/simple"]),
        (":env:.index-url='https://e.test'\nglobal.index-url='https://a.test'\n", ["https://e.test"]),
        (
            "global.extra-index-url='https://x.test https://y.test'\n",
            [index.DEFAULT_INDEX, "https://x.test", "https://y.test"],
        ),
        ("global.index-url=broken'\nnonsense", [index.DEFAULT_INDEX]),
    ],
)
def test_the_indexes_are_those_of_pip(text, urls):
    assert index.parse_config(text) == urls


def test_pages_in_html_and_json_say_the_same():
    html = b'<a href="../files/raw-1.0.tar.gz#sha256=ab" data-requires-python="&gt;=3.8" data-yanked="">x</a>'
    page = {
        "files": [
            {
                "filename": "raw-1.0.tar.gz",
                "url": "../files/raw-1.0.tar.gz",
                "hashes": {"sha256": "ab"},
                "requires-python": ">=3.8",
                "yanked": True,
            }
        ]
    }
    base = "https://a.test/simple/raw/"
    (one,) = index.parse_page(html, "text/html", base)
    (other,) = index.parse_page(json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json", base)
    url = "https://a.test/simple/files/raw-1.0.tar.gz"
    assert one == other == index.Link("raw-1.0.tar.gz", url, "ab", ">=3.8", True)


def link(name, python=None, yanked=False):
    return index.Link(name, f"https://a.test/{name}", None, python, yanked)


def test_the_newest_fitting_sdist_is_chosen():
    links = [link("raw-1.0.tar.gz"), link("raw-2.0.tar.gz", python=">=99"), link("raw-1.5.zip"), link("other-9.tar.gz")]
    links += [link("raw-1.9.tar.gz", yanked=True), link("raw-1.4-py3-none-any.whl"), link("raw-3.0b1.tar.gz")]
    assert index.choose(links, Requirement("raw")).filename == "raw-1.5.zip"
    assert index.choose(links, Requirement("raw==1.9")).filename == "raw-1.9.tar.gz"
    assert index.choose(links, Requirement("raw>5")) is None


@given(st.binary(max_size=400), st.sampled_from(["text/html", "application/json"]))
def test_any_page_is_read(body, kind):
    for found in index.parse_page(body, kind, "https://a.test/simple/x/"):
        assert isinstance(found.filename, str)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=9) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["files", "filename", "url", "hashes", "sha256", "yanked", "requires-python"]), inner
            )
        ),
        max_leaves=20,
    )
)
def test_json_of_any_shape_is_read(page):
    links = index.parse_page(json.dumps(page).encode(), "application/json", "https://a.test/")
    assert index.choose(links, Requirement("x")) is None or links
