"""The project keeps its promises about itself: its commands, its public names, the direction of its dependencies."""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import aboveboard
from aboveboard import errors

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "aboveboard"

#: Package → what it must not import. The picture: docs/explanation/architecture.md.
ENGINES = {"inspect_ai", "harbor"}
SHELL = {"cli", "vet", "report", "trace", "benchmarks", "agents", "controls", "judges", "integrations", "plan"}
FORBIDDEN_ARROWS = {
    "errors": ENGINES | SHELL | {"contract", "evidence", "world", "oracles", "identity", "analysis"},
    "contract": ENGINES | SHELL | {"evidence", "world", "oracles", "identity", "analysis"},
    "evidence": ENGINES | SHELL | {"world", "oracles", "identity", "analysis"},
    "oracles": ENGINES | SHELL | {"world", "identity", "analysis"},
    "world": ENGINES | SHELL | {"oracles", "identity", "analysis"},
    "identity": ENGINES | SHELL | {"world"},
    "analysis": ENGINES | SHELL - {"benchmarks"} | {"world"},
    "trace": ENGINES | {"cli", "vet", "benchmarks"},
    "vet": ENGINES | {"cli", "benchmarks"},
    "report": ENGINES | {"cli"},
}
#: Loaded at start-up by nothing that runs code in a world: each costs more than the rest of a small command.
HEAVY = ("rich", "asyncio", "logging", "pydantic", "msgspec", "inspect_ai", "packaging", "urllib.request", "ssl")


def imports_of(module: Path) -> set[str]:
    """Absolute dotted names a module imports at run time, wherever in it, type-checking blocks left out."""
    package = ("aboveboard", *module.relative_to(SOURCE).parts[:-1])
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join([*base, *filter(None, [node.module])])
            found.add(name)
            found.update(f"{name}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(module.read_text(encoding="utf-8")))
    return found


def modules_of(part: str) -> list[Path]:
    single = SOURCE / f"{part}.py"
    return [single] if single.exists() else sorted((SOURCE / part).rglob("*.py"))


@pytest.mark.parametrize("part", FORBIDDEN_ARROWS)
def test_dependencies_point_one_way(part: str) -> None:
    for module in modules_of(part):
        for name in imports_of(module):
            words = name.split(".")
            where = words[1] if words[0] == "aboveboard" and len(words) > 1 else words[0]
            assert where not in FORBIDDEN_ARROWS[part], f"{module.relative_to(ROOT)} imports {name}"


def test_the_arrow_reader_sees_relative_lazy_and_aliased_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    (tmp_path / "world").mkdir()
    module = tmp_path / "world" / "x.py"
    module.write_text(
        "from .. import oracles\n"
        "from ..oracles.process import judge\n"
        "def f():\n    import inspect_ai.model as m\n"
        "if TYPE_CHECKING:\n    import harbor\n"
    )
    found = imports_of(module)
    assert {"aboveboard.oracles", "aboveboard.oracles.process", "inspect_ai.model"} <= found
    assert "harbor" not in found


def fresh(code: str) -> str:
    """What ``code`` prints in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    "module",
    [
        "aboveboard",
        "aboveboard.cli",
        "aboveboard.contract",
        "aboveboard.evidence",
        "aboveboard.oracles.process",
        "aboveboard.world",
    ],
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    loaded = fresh(f"import sys, {module}; print(*sys.modules, sep=chr(10))").splitlines()
    assert module in loaded
    assert not set(HEAVY) & set(loaded)


def test_importing_the_package_imports_none_of_its_parts() -> None:
    loaded = fresh("import sys, aboveboard; print(*sys.modules, sep=chr(10))").splitlines()
    assert [name for name in loaded if name.startswith("aboveboard")] == ["aboveboard"]


@pytest.mark.parametrize("name", [name for name in aboveboard.__all__ if name != "__version__"])
def test_every_public_name_can_be_imported(name: str) -> None:
    assert fresh(f"from aboveboard import {name}; print(callable({name}))") == "True\n"
    assert name in dir(aboveboard)


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = aboveboard.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["aboveboard.vet", "aboveboard.vet.targets", "aboveboard.cli.vet"])
def test_vet_is_a_function_and_a_package_whatever_was_imported_first(first: str) -> None:
    code = (
        f"import aboveboard, {first}\n"
        "from aboveboard.vet import targets\n"
        "try:\n    aboveboard.vet([])\nexcept aboveboard.AboveboardError:\n    print('called')"
    )
    assert fresh(code) == "called\n"


def test_the_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    promised = set(re.findall(r"\bmake ([a-z][a-z-]*)", readme))
    assert {"demo", "test"} <= promised
    assert promised <= targets


def test_the_readme_names_only_commands_and_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    from aboveboard.cli import COMMANDS
    from aboveboard.cli.app import command_parser

    for file in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in re.findall(r"```(?:sh|console|bash)\n(.*?)```", file.read_text(encoding="utf-8"), re.DOTALL):
            for line in re.sub(r"\\\n", " ", block).splitlines():
                called = re.match(r"(?:\$ )?aboveboard (?P<command>[a-z]+)(?P<rest>.*)", line.partition(" # ")[0])
                if not called:
                    continue
                assert called["command"] in COMMANDS, f"{file}: {line}"
                known = command_parser(called["command"]).format_help()
                for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", called["rest"].partition(" -- ")[0]):
                    assert re.search(rf"{option}\b", known), f"{file}: {line}: no option {option}"


def test_every_lock_pins_every_file_by_digest_and_names_no_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    locks = {lock.stem: lock.read_text(encoding="utf-8") for lock in (ROOT / "requirements").glob("*.lock")}
    assert set(locks) == {"core"} | set(project["dependency-groups"]) - {"build"}
    for name, text in locks.items():
        pins = re.findall(r"^[a-z0-9][\w.-]*==\S+.*\n\s+--hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
        assert len(pins) == len(re.findall(r"^\S+==", text, re.MULTILINE)) > 0, name
        assert "://" not in text, name


def test_locks_agree_so_that_one_environment_can_have_them_all() -> None:
    versions: dict[tuple[str, str], set[str]] = {}
    for lock in (ROOT / "requirements").glob("*.lock"):
        for name, version, marker in re.findall(
            r"^([a-z0-9][\w.-]*)==([^\s;]+)\s*(?:;\s*(.*?))?\s*\\$", lock.read_text(encoding="utf-8"), re.MULTILINE
        ):
            versions.setdefault((name, marker if "python_full_version" in marker else ""), set()).add(version)
    assert {key: found for key, found in versions.items() if len(found) > 1} == {}


def test_bootstrap_can_be_parsed_by_an_old_python() -> None:
    source = (ROOT / "scripts" / "bootstrap.py").read_text(encoding="utf-8")
    assert ast.parse(source, feature_version=(3, 7))
    assert "\nfrom __future__" not in source


def test_committed_files_hold_no_machine_paths() -> None:
    # The folders this project was first developed in; a world's own root has a home, not these.
    pattern = re.compile(r"(?<![\w}])/(?:work/(?:main|shared)|farm)\b|/tmp/h_|/root/\.")
    for folder in ("src", "docs", "scripts", "benchmarks"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in {".py", ".md", ".sh", ".toml"}:
                assert not pattern.search(file.read_text(encoding="utf-8", errors="replace")), file


@pytest.mark.parametrize("kind", [k for k in vars(errors).values() if isinstance(k, type)], ids=lambda k: k.__name__)
def test_errors_keep_message_and_advice_through_pickle(kind: type[errors.AboveboardError]) -> None:
    error = pickle.loads(pickle.dumps(kind("the wheel is unreadable", advice="Download it again.")))
    assert type(error) is kind
    assert (error.message, error.advice, error.exit_code) == ("the wheel is unreadable", "Download it again.", 2)
    assert str(error) == "the wheel is unreadable. Download it again."


def test_printable_leaves_text_alone_and_disarms_the_rest() -> None:
    assert errors.printable("naïve – ファイル") == "naïve – ファイル"
    assert errors.printable("a\x1b[2J\r\n\u202e\udcff\x9b") == "a\\x1b[2J\\r\\n\\u202e\\udcff\\x9b"


def test_the_version_stands_in_the_changelog() -> None:
    assert f"## {aboveboard.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
