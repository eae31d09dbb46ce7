"""From a target to the commands that detonate it: which phases it has, what each runs, what the world shows.

Pure: everything that reads the host or the index has happened in :mod:`aboveboard.vet.prepare`. The install phase
runs in a world of its own. Its contract must let it write the environment it installs into; in the next world that
environment is part of what must stay as it is, so a package that patches its neighbours when called is seen.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aboveboard.errors import UsageError
from aboveboard.vet.targets import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aboveboard.contract import Contract
    from aboveboard.vet.matrix import Environment
    from aboveboard.vet.prepare import Prepared

HOME = "/home/dev"
TASK = f"{HOME}/task"
"""The workspace: contract globs are relative to it."""
INPUT = f"{TASK}/input"
OUTPUT = f"{TASK}/output"
TOOL = f"{HOME}/tool"
"""Where a script, project or skill is shown."""
ENVIRONMENT = f"{HOME}/.venvs/tool"
"""The virtual environment that packages are installed into."""
WHEELS = f"{HOME}/wheels"
PIP = f"{HOME}/.local/share/pip"
RUN = f"{HOME}/.local/share/run"
"""The driver and the adapter."""

PHASES = ("install", "import", "call", "exit", "post")
"""In the order in which they happen."""

MARK = "{phase-mark}"
"""Stands in an argument for the path prefix by which a driver announces a phase; each world has its own."""

INSTALLER_PROGRAMS = ("cut", "getopt", "lsb_release", "sed", "tr")
"""What pip itself starts to name the distribution in its user agent (``lsb_release`` is a shell script)."""

BUILD_PROGRAMS = (
    "ar", "as", "c++", "cc", "cc1", "cc1plus", "cmake", "collect2", "g++", "gcc", "ld", "ld.bfd", "ldconfig",
    "ldconfig.real", "lto-wrapper", "lto1", "make", "meson", "ninja", "nm", "objcopy", "pkg-config", "ranlib", "strip",
)  # fmt: skip
"""Tools an honest build of a C extension starts, by name; allowed while an sdist or a project is built, never later."""


@dataclass(frozen=True, slots=True)
class Calling:
    """How the user wants a target to be called."""

    entry: str | None = None
    """``module:function`` (Python) or ``export`` (Node)."""
    argv: tuple[str, ...] | None = None
    """Arguments with ``{input}`` and ``{output}``; given, the entry is called as a program."""
    way: str = "paths"
    """What the entry receives: ``paths`` (input and output path), or the input as ``text``, ``bytes`` or ``json``."""
    adapter: bool = False
    """An adapter file is shown beside the driver."""
    modules: tuple[str, ...] = ()
    """Modules to import, instead of the ones found."""
    output: str = "result"
    """File name in ``output/``."""
    instructions: bool = False
    """Run the shell blocks of a SKILL.md as its install phase."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command in a world."""

    phase: str
    name: str
    argv: tuple[str, ...]
    cwd: str = TASK
    env: Mapping[str, str] = field(default_factory=dict)
    needed: bool = False
    """Without its success the later steps make no sense."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that happens to one target in one environment."""

    install: tuple[Step, ...]
    main: tuple[Step, ...]
    carry: tuple[str, ...] = ()
    """Folders of the install world that the next world shows."""
    programs: tuple[str, ...] = ()
    """Programs that are part of running the target at all: its interpreter."""
    install_programs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def plan(prepared: Prepared, calling: Calling, inputs: Sequence[str], environment: Environment, *, python: str) -> Plan:
    """The commands for one target.

    ``inputs`` are names in :data:`INPUT`, ``python`` is the interpreter inside. Raises UsageError when the calling
    does not fit the target.
    """
    kind = prepared.target.kind
    interpreter = f"{ENVIRONMENT}/bin/python" if prepared.installs else python
    notes = list(prepared.notes)
    install: list[Step] = []
    carry: list[str] = []
    if prepared.installs:
        install.append(_pip_step(prepared, interpreter))
        carry.append(ENVIRONMENT)
    spec: dict[str, Any] = {"mark": MARK, "modules": list(calling.modules or prepared.modules)}
    if environment.clock_shift:
        spec["shift"] = environment.clock_shift
    builder = _Builder(calling, inputs, spec, interpreter, prepared, environment)
    if kind in (Kind.WHEEL, Kind.SDIST, Kind.REQUIREMENT, Kind.PROJECT):
        main = builder.package(notes)
    elif kind is Kind.NODE_PROJECT:
        folder = f"{TOOL}/{prepared.inside}"
        if prepared.npm:
            argv = (prepared.npm, "install", "--offline", "--no-audit", "--no-fund", "--foreground-scripts")
            # npm would ask for its own newest version, and read the user's settings, which hold a token.
            env = {"npm_config_update_notifier": "false", "npm_config_userconfig": os.devnull}
            install.append(Step("install", "npm install", argv, folder, env))
            carry.append(folder)
        else:
            notes.append("npm is not on this machine: the install scripts did not run")
        main = builder.node(folder)
    elif kind is Kind.SKILL:
        if calling.instructions:
            install += [
                Step("install", f"instruction {i}", ("bash", "-c", block), f"{TOOL}/{prepared.inside}")
                for i, block in enumerate(prepared.instructions, 1)
            ]
        elif prepared.instructions:
            notes.append(f"SKILL.md has {len(prepared.instructions)} shell blocks that did not run: --instructions")
        main = builder.skill(notes)
    elif kind is Kind.SCRIPT:
        main = builder.script(prepared.inside, prepared.target.argv)
    else:
        main = builder.command(prepared.target.argv)
    if environment.partial:
        notes.append(
            f"{environment.name}: {environment.partial}" if builder.shifted else f"{environment.name}: not shifted"
        )
    builds = kind in (Kind.SDIST, Kind.PROJECT, Kind.NODE_PROJECT) or prepared.builds
    runtime = tuple(dict.fromkeys((python, interpreter, *builder.programs)))
    return Plan(
        install=tuple(install),
        main=tuple(main),
        carry=tuple(carry),
        programs=runtime,
        install_programs=(
            *runtime,
            *(INSTALLER_PROGRAMS if prepared.installs else ()),
            *(BUILD_PROGRAMS if builds else ()),
            *(("node", "npm", "sh", "env") if kind is Kind.NODE_PROJECT else ()),
        ),
        notes=tuple(notes),
    )


def install_contract(contract: Contract, plan: Plan) -> Contract:
    """The user's contract plus what installing means: read the target and the wheels, write the environment."""
    work = (f"{ENVIRONMENT}/**", f"{TOOL}/**")
    return contract.replace(
        read=(*contract.read, *work, f"{WHEELS}/**", f"{PIP}/**", f"{RUN}/**"),
        write=(*contract.write, *work),
        delete=(*contract.delete, *work),
        metadata=(*contract.metadata, *work),
        programs=(*contract.programs, *plan.install_programs),
    )


def main_contract(contract: Contract, plan: Plan) -> Contract:
    """The user's contract plus what running the target means: read its own files, start its interpreter."""
    return contract.replace(
        read=(*contract.read, f"{ENVIRONMENT}/**", f"{TOOL}/**", f"{RUN}/**"),
        programs=(*contract.programs, *plan.programs),
    )


class _Builder:
    """The steps of the main world, by kind of target."""

    def __init__(
        self,
        calling: Calling,
        inputs: Sequence[str],
        spec: dict[str, Any],
        interpreter: str,
        prepared: Prepared,
        environment: Environment,
    ) -> None:
        self.calling = calling
        self.inputs = inputs
        self.spec = spec
        self.interpreter = interpreter
        self.prepared = prepared
        self.programs: list[str] = []
        self.shifted = False
        self._shift = bool(environment.clock_shift)

    def package(self, notes: list[str]) -> list[Step]:
        modules = self.spec["modules"]
        steps = []
        if modules:
            steps.append(self._driver("import", {"mode": "import"}, "import"))
        else:
            notes.append("no importable module was found: name it with --module")
        if self.calling.adapter:
            # The first module is handed to the adapter; further ones would only hide which one it is.
            chosen = {"mode": "call", "adapter": f"{RUN}/adapter.py", "modules": self._module_for_adapter()}
            return [*steps, *self._calls(chosen, argv=None)]
        entry, argv = self.calling.entry, self.calling.argv
        if entry is None:
            entry = self._console_script(notes)
            if entry is None:
                return steps
            argv = argv if argv is not None else ("{input}",)
        elif ":" not in entry and argv is None:
            raise UsageError(f"--entry {entry!r} has no function", advice="Write MODULE:FUNCTION.")
        return [*steps, *self._calls({"mode": "call", "entry": entry, "pass": self.calling.way}, argv=argv)]

    def _module_for_adapter(self) -> list[str]:
        modules: list[str] = self.spec["modules"]
        named = self.prepared.name.replace("-", "_")
        return [named] if named in modules else modules[:1]

    def _console_script(self, notes: list[str]) -> str | None:
        scripts = dict(self.prepared.scripts)
        if len(scripts) == 1:
            return next(iter(scripts.values()))
        if self.prepared.name in scripts:
            return scripts[self.prepared.name]
        found = f"it has {len(scripts)} console scripts" if scripts else "it has no console script"
        notes.append(f"nothing was called: {found}; give --entry MODULE:FUNCTION or --adapter FILE")
        return None

    def _driver(self, phase: str, more: dict[str, Any], name: str) -> Step:
        self.shifted = self._shift
        return Step(phase, name, (self.interpreter, f"{RUN}/run.py", json.dumps({**self.spec, **more})))

    def _calls(self, more: dict[str, Any], *, argv: Sequence[str] | None) -> list[Step]:
        steps = []
        for source, target in self._paths():
            words = None if argv is None else fill(argv, source, target)
            spec = {**more, "input": source, "output": target, "argv": words}
            # The interpreter's own start (.pth files) comes before the driver's first mark: it belongs to the import.
            steps.append(self._driver("import", spec, f"call {os.path.basename(source)}".strip()))
        return steps

    def _paths(self) -> list[tuple[str, str]]:
        if not self.inputs:
            return [("", f"{OUTPUT}/{self.calling.output}")]
        if len(self.inputs) == 1:
            return [(f"{INPUT}/{self.inputs[0]}", f"{OUTPUT}/{self.calling.output}")]
        return [(f"{INPUT}/{name}", f"{OUTPUT}/{name}.{self.calling.output}") for name in self.inputs]

    def node(self, folder: str) -> list[Step]:
        self.programs.append("node")
        spec = {
            "mark": self.spec["mark"],
            "folder": folder,
            "pass": self.calling.way,
            "entry": self.calling.entry or "",
        }
        driver = ("node", f"{RUN}/run.cjs")
        steps = [Step("import", "import", (*driver, json.dumps({**spec, "mode": "import"})))]
        if self.calling.entry is not None:
            for source, target in self._paths():
                more = {"mode": "call", "input": source, "output": target}
                steps.append(
                    Step("import", f"call {os.path.basename(source)}", (*driver, json.dumps({**spec, **more})))
                )
        return steps

    def script(self, inside: str, words: Sequence[str]) -> list[Step]:
        path = f"{TOOL}/{inside}"
        argv = self.calling.argv if self.calling.argv is not None else self._default_argv()
        steps = []
        for source, target in self._paths():
            filled = fill(argv, source, target)
            name = f"call {os.path.basename(source)}".strip()
            if words and _is_python(words[0]):
                if self._shift:
                    steps.append(self._driver("call", {"mode": "call", "script": path, "argv": filled}, name))
                    continue
                command = (self.interpreter, *words[1:], path, *filled)
            else:
                command = (*words, path, *filled)
                # A name from a shebang is the target's claim; only its base name is allowed, and only as that program.
                self.programs += [os.path.basename(words[0])] if words else [path]
            steps.append(Step("call", name, command))
        return steps

    def _default_argv(self) -> tuple[str, ...]:
        return ("{input}", "{output}") if self.inputs else ("{output}",)

    def skill(self, notes: list[str]) -> list[Step]:
        chosen = [
            (inside, words)
            for inside, words in self.prepared.skill_scripts
            if self.calling.entry is None or inside == self.calling.entry
        ]
        if not chosen:
            if self.calling.entry is not None:
                known = ", ".join(inside for inside, _ in self.prepared.skill_scripts) or "none"
                raise UsageError(f"the skill has no script {self.calling.entry!r}", advice=f"Its scripts: {known}.")
            notes.append("the skill has no script: nothing was called")
        return [step for inside, words in chosen for step in self.script(f"{self.prepared.inside}/{inside}", words)]

    def command(self, argv: Sequence[str]) -> list[Step]:
        self.programs.append(argv[0])
        steps = []
        for source, target in self._paths():
            words = tuple(fill(argv, source, target))
            steps.append(Step("call", f"call {os.path.basename(source)}".strip(), words))
        return steps


def fill(argv: Sequence[str], source: str, target: str) -> list[str]:
    """The arguments with ``{input}`` and ``{output}`` put in; other braces stay."""
    return [word.replace("{input}", source).replace("{output}", target) for word in argv]


def split_argv(text: str) -> tuple[str, ...]:
    """Words of ``--argv``, as a shell would split them. Raises UsageError on an open quote."""
    try:
        return tuple(shlex.split(text))
    except ValueError as problem:
        raise UsageError(f"--argv {text!r} cannot be split: {problem}", advice="Balance the quotes.") from None


_SAFE = re.compile(r"[^A-Za-z0-9._+-]")


def safe_name(name: str) -> str:
    """``name`` as a file name of plain characters, for paths inside a world; never empty, never hidden."""
    return _SAFE.sub("_", name)[-120:].lstrip(".") or "target"


def _pip_step(prepared: Prepared, interpreter: str) -> Step:
    files = [f"{WHEELS}/{package.filename}" for package in prepared.packages]
    argv = (
        interpreter,
        f"{PIP}/{prepared.pip_name}",
        "install",
        "--no-index",
        "--no-deps",
        "--no-cache-dir",
        "--no-input",
        "--no-color",
        "--disable-pip-version-check",
        "--progress-bar=off",
        "--quiet",
        f"--find-links={WHEELS}",
        *files,
        *((f"{TOOL}/{prepared.inside}",) if prepared.install_target else ()),
    )
    # Build isolation starts a second pip: it must find the same wheels and no index either.
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS, "PIP_CONFIG_FILE": os.devnull}
    return Step("install", "pip install", argv, HOME, env, needed=True)


def _is_python(word: str) -> bool:
    return re.fullmatch(r"python(3(\.\d+)?)?", os.path.basename(word)) is not None
