"""Runs a real program natively and in a world, in the same empty folder: the table is ``programs.toml``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from aboveboard.world import Mount, World

TABLE = Path(__file__).with_name("programs.toml")
SECONDS = 120


class Missing(Exception):
    """What cannot be had on this machine."""


@dataclass(frozen=True)
class Program:
    """A row of the table; the fields are explained at its top."""

    name: str
    title: str
    what: str
    commands: tuple[str, ...]
    version: str
    needed: str
    script: str
    npm: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    toolchain: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a script ended and what it printed."""

    code: int
    stdout: str
    stderr: str


def load() -> list[Program]:
    """The rows of the table."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["program"]
    names = {f.name for f in fields(Program)}
    return [
        Program(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items() if k in names}) for row in rows
    ]


def search_path() -> str:
    """Where programs are looked for: beside the interpreter of the tests first."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])


@dataclass(frozen=True)
class Setup:
    """What a program needs around it: variables of its script, directories shown, installations."""

    variables: dict[str, str]
    mounts: tuple[Mount, ...]
    programs: tuple[str, ...]


def prepare(program: Program) -> Setup:
    """Find or install what ``program`` needs. Raises ``Missing`` with the reason."""
    for command in program.commands:
        if shutil.which(command, path=search_path()) is None:
            raise Missing(f"{command} is not installed")
    variables = {"PYTHON": sys.executable, "SHELL": "/bin/bash", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    mounts: list[Mount] = []
    shown = [str(shutil.which(p, path=search_path())) for p in program.programs]
    if program.npm:
        folder = npm_packages(program.npm)
        variables["NPM"] = folder
        mounts.append(Mount(folder, folder, "ro"))
    if program.toolchain:
        done = _shell(program.toolchain, variables)
        if done.code:
            raise Missing(f"{program.toolchain} failed: {done.stderr.strip()[-200:]}")
        variables["TOOLCHAIN"] = done.stdout.strip()
        shown += [f"{variables['TOOLCHAIN']}/bin/{name}" for name in program.programs]
    return Setup(variables, tuple(mounts), tuple(shown))


def npm_packages(requirements: tuple[str, ...]) -> str:
    """A folder, kept below the user's cache directory, with npm packages installed. Raises ``Missing``."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aboveboard-tests"
    folder = cache / hashlib.sha256(" ".join(requirements).encode()).hexdigest()[:16]
    if folder.exists():
        return str(folder)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--fetch-retries=1"]
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # Made beside its place and moved there whole: test processes share the cache.
        with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as draft:
            Path(draft, "package.json").write_text('{"private": true}\n', encoding="utf-8")
            options = {"cwd": draft, "stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 600}
            subprocess.run([*command, *requirements], check=True, **options)
            os.chmod(draft, 0o755)
            try:
                os.rename(draft, folder)
            except OSError:
                if not folder.exists():  # else another process was faster
                    raise
    except subprocess.CalledProcessError as e:
        reason = e.stderr.decode(errors="replace").strip()[-300:]
        raise Missing(f"npm could not install {' '.join(requirements)}: {reason}") from e
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Missing(f"npm could not install {' '.join(requirements)}: {e}") from e
    return str(folder)


def _shell(script: str, variables: dict[str, str], cwd: Path | None = None) -> Outcome:
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        env={"HOME": os.environ.get("HOME", "/"), "PATH": search_path()} | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )
    return Outcome(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def version(program: Program, setup: Setup) -> str:
    """What the program says of itself, one line."""
    done = _shell(program.version, setup.variables)
    return next(iter((done.stdout or done.stderr).strip().splitlines()), "unknown")


def run_natively(program: Program, setup: Setup, workspace: Path, home: Path) -> Outcome:
    """The script on this machine, with a home of its own."""
    return _shell(program.script, setup.variables | {"HOME": str(home)}, workspace)


def run_in_world(program: Program, setup: Setup, workspace: Path) -> Outcome:
    """The script in a world that shows ``workspace`` at the same path."""
    with World(workspace=workspace, mounts=setup.mounts, programs=setup.programs) as world:
        done = world.run(
            ["bash", "-c", program.script],
            env=setup.variables | {"PATH": f"{os.path.dirname(sys.executable)}:{world.path}"},
            timeout=SECONDS,
        )
    return Outcome(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
