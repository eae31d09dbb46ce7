"""Run one target in one environment: the thin shell between a plan and the worlds it needs."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.errors import EnvironmentProblem
from aboveboard.evidence.verdict import Reason
from aboveboard.oracles.process import judge
from aboveboard.vet import fetch, phases
from aboveboard.vet.compare import Output
from aboveboard.vet.results import Observed, Ran, Trial, observe
from aboveboard.vet.targets import Kind
from aboveboard.world import Limits, Mount, World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aboveboard.contract import Contract
    from aboveboard.evidence import Evidence, Verdict
    from aboveboard.vet.matrix import Environment
    from aboveboard.vet.phases import Calling, Plan, Step
    from aboveboard.vet.prepare import Prepared

MAX_OUTPUT_BYTES = 64 << 20
"""Of all output files of one trial together; what is beyond is left out of the comparison and noted."""
MAX_OUTPUT_FILES = 10_000
SAID_CHARS = 2_000
_WORLD_ENDED = (errno.EPIPE, errno.EIO, errno.EFBIG)
"""What a world answers when it is over, or when its candidate made more than can be taken out."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is the same for every trial of one report."""

    contract: Contract
    inputs: tuple[Path, ...] = ()
    input_names: tuple[str, ...] = ()
    adapter: Path | None = None
    add: tuple[Path, ...] = ()
    tier: str = "auto"
    timeout: float = 120.0
    limits: Limits | None = None
    keep: bool = False
    """The evidence folder stays."""


def run(
    prepared: Prepared,
    calling: Calling,
    environment: Environment,
    settings: Settings,
    folder: Path,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Trial:
    """One trial; ``folder`` receives the evidence of its worlds in ``install`` and ``main``.

    Raises EnvironmentProblem when the world cannot run here or the disk is full, UsageError when the calling does
    not fit.
    """
    plan = phases.plan(prepared, calling, settings.input_names, environment, python=base_python())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="vet-"))
        try:
            return _Trial(prepared, plan, environment, settings, folder, work, progress).run()
        finally:
            # A candidate may have made its own folders unreadable; rmtree of our copies must not depend on its modes.
            _remove(work)
    except OSError as problem:
        where = f" ({problem.filename})" if problem.filename else ""
        raise EnvironmentProblem(
            f"{prepared.target.label} cannot be vetted: {problem.strerror or problem}{where}",
            advice="Free some space or name other folders with --out and TMPDIR.",
        ) from problem


class _Trial:
    def __init__(
        self,
        prepared: Prepared,
        plan: Plan,
        environment: Environment,
        settings: Settings,
        folder: Path,
        work: Path,
        progress: Callable[[str], None],
    ) -> None:
        self._prepared = prepared
        self._plan = plan
        self._environment = environment
        self._settings = settings
        self._folder = folder
        self._work = work
        self._progress = progress
        self._ran: list[Ran] = []
        self._reasons: list[Reason] = []
        self._notes: list[str] = list(plan.notes)
        self._verdicts: list[tuple[str, Verdict]] = []
        self._observed: list[Observed] = []
        self._stdout: list[tuple[str, bytes]] = []
        self._judged: dict[str, str] = {}

    def run(self) -> Trial:
        stage = self._stage()
        carried: tuple[Mount, ...] = ()
        if self._plan.install:
            contract = phases.install_contract(self._settings.contract, self._plan)
            carried = self._world("install", self._plan.install, contract, (*stage, *self._install_mounts()))
        output = Output({})
        taken = self._folder / "workspace"
        if not self._reasons and self._plan.main:
            contract = phases.main_contract(self._settings.contract, self._plan)
            shown = {mount.target for mount in carried}
            kept = tuple(mount for mount in stage if mount.target not in shown)
            self._world("main", self._plan.main, contract, (*kept, *carried), take=taken)
            output = self._output(taken)
            self._doubt(output)
        elif not self._reasons:
            self._reasons.append(Reason("nothing-ran", "", "the target has nothing that could be imported or called"))
        return Trial(
            environment=self._environment.name,
            verdicts=tuple(self._verdicts),
            observed=tuple(self._observed),
            output=output,
            ran=tuple(self._ran),
            reasons=tuple(self._reasons),
            evidence=tuple(str(self._folder / world) for world, _ in self._verdicts) if self._settings.keep else (),
            notes=tuple(dict.fromkeys(self._notes)),
            judged=self._judged,
            taken=str(taken) if taken.is_dir() else "",
        )

    def _world(
        self, name: str, steps: Sequence[Step], contract: Contract, mounts: Sequence[Mount], *, take: Path | None = None
    ) -> tuple[Mount, ...]:
        """Run steps in a world of their own, judge it, and return the folders that the plan carries on."""
        settings = self._settings
        limits = settings.limits or Limits()
        if contract.wall_seconds is not None:
            limits = replace(limits, wall_seconds=min(limits.wall_seconds, contract.wall_seconds))
        carried: list[Mount] = []
        world = World(
            evidence=self._folder / name,
            contract=contract,
            workspace=phases.TASK,
            mounts=mounts,
            env=dict(self._environment.env),
            limits=limits,
            tier=settings.tier,
            grace_seconds=contract.grace_seconds,
            programs=self._plan.install_programs if name == "install" else self._plan.programs,
            candidate=[mount.target for mount in mounts if mount.target in (phases.TOOL, phases.ENVIRONMENT)],
        )
        with world:
            try:
                if all(self._step(world, step) for step in steps) and take is None:
                    carried = [self._carry(world, inside) for inside in self._plan.carry]
                if take is not None:
                    world.get_tree(phases.TASK, take)
            except OSError as problem:
                if problem.errno not in _WORLD_ENDED:
                    raise
                # A candidate that uses up its world must still get a verdict: the evidence so far is sealed and judged.
                self._reasons.append(Reason("world-ended", "", f"the world ended before the target did: {problem}"))
            evidence = world.close()
        verdict = judge(evidence, contract)
        self._verdicts.append((name, verdict))
        self._observed += observe(evidence, verdict, self._environment.name)
        if take is not None:
            self._judged = judged_files(evidence)
        return tuple(carried)

    def _step(self, world: World, step: Step) -> bool:
        self._progress(f"{step.phase}: {step.name}" if step.phase != step.name else step.phase)
        mark = world.phase_prefix
        started = time.monotonic()
        done = world.run(
            [word.replace(phases.MARK, mark) for word in step.argv],
            cwd=step.cwd,
            env=dict(step.env),
            stdin=b"",
            timeout=self._settings.timeout,
            phase=step.phase,
            name=step.name,
        )
        said = (done.stderr or done.stdout).decode("utf-8", "surrogateescape")[-SAID_CHARS:]
        seconds = time.monotonic() - started
        self._ran.append(Ran(step.phase, step.name, done.returncode, done.timed_out, round(seconds, 3), said))
        if step.name.startswith("call"):
            self._stdout.append((step.name.removeprefix("call").strip() or "stdout", done.stdout))
        if done.timed_out:
            detail = f"{step.name} did not end within {self._settings.timeout:g} s and was stopped"
            self._reasons.append(Reason("target-timeout", "", detail))
        elif step.needed and done.returncode != 0:
            last = last_words(said)
            self._reasons.append(Reason("target-failed", "", f"{step.name} failed with {done.returncode}: {last}"))
            return False
        return True

    def _doubt(self, output: Output) -> None:
        """A run that came to nothing exercised little: its silence is no proof."""
        calls = [ran for ran in self._ran if ran.name.startswith("call")]
        failed = [ran for ran in calls if ran.returncode != 0 and not ran.timed_out]
        if failed and not output.files:
            ran = failed[0]
            last = last_words(ran.said)
            self._reasons.append(
                Reason("target-failed", "", f"{ran.name} failed with {ran.returncode} and left no output: {last}")
            )
        imports = [ran for ran in self._ran if ran.name == "import" and ran.returncode != 0 and not ran.timed_out]
        if imports:
            last = last_words(imports[0].said)
            self._reasons.append(Reason("target-failed", "", f"the import failed: {last}"))

    def _carry(self, world: World, inside: str) -> Mount:
        target = self._work / "carried" / inside.strip("/").replace("/", "-")
        target.parent.mkdir(exist_ok=True)
        world.get_tree(inside, target)
        if inside == phases.ENVIRONMENT:
            # Links are not taken out of a world; those of the interpreter are ours to make.
            link_interpreter(target, base_python())
        return Mount(str(target), inside, "cow")

    def _output(self, taken: Path) -> Output:
        files, cut = read_tree(taken / "output")
        if cut:
            self._notes.append(f"the output is larger than {MAX_OUTPUT_BYTES:,} bytes: only a part was compared")
        if files:
            return Output(files)
        spoken = {name if len(self._stdout) > 1 else "stdout": data for name, data in self._stdout if data}
        return Output(spoken)

    def _stage(self) -> tuple[Mount, ...]:
        """Copies of what the target may change, mounts of what it may only read."""
        prepared, settings, work = self._prepared, self._settings, self._work
        task = work / "task"
        (task / "input").mkdir(parents=True)
        (task / "output").mkdir()
        for source, name in zip(settings.inputs, settings.input_names, strict=True):
            _copy(source, task / "input" / name)
        mounts = [Mount(str(task), phases.TASK, "cow")]
        driver = work / "run"
        driver.mkdir()
        for name in ("run.py", "run.cjs"):
            shutil.copyfile(Path(__file__).parent / "drivers" / name, driver / name)
        if settings.adapter is not None:
            shutil.copyfile(settings.adapter, driver / "adapter.py")
        mounts.append(Mount(str(driver), phases.RUN, "ro"))
        target = prepared.target
        if target.path is not None or settings.add:
            tool = work / "tool"
            tool.mkdir()
            if target.path is not None:
                _copy(target.path, tool / prepared.inside)
            for source in settings.add:
                _copy(source, tool / phases.safe_name(source.name))
            mounts.append(Mount(str(tool), phases.TOOL, "cow"))
        return tuple(mounts)

    def _install_mounts(self) -> tuple[Mount, ...]:
        prepared, work = self._prepared, self._work
        if not prepared.installs:
            return ()
        environment = work / "environment"
        make_environment(environment, base_python())
        wheels = work / "wheels"
        wheels.mkdir()
        for package in {*prepared.packages, *prepared.build_packages}:
            if not (wheels / package.filename).exists():
                shutil.copyfile(package.path, wheels / package.filename)
        pip = fetch.pip_home()
        shown = (
            Mount(str(pip), f"{phases.PIP}/{pip.name}", "ro")
            if pip.suffix == ".whl"
            else Mount(str(pip / "pip"), f"{phases.PIP}/pip", "ro")
        )
        return (Mount(str(environment), phases.ENVIRONMENT, "cow"), Mount(str(wheels), phases.WHEELS, "ro"), shown)


def base_python() -> str:
    """The interpreter below any virtual environment: the one that a world shows."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def make_environment(folder: Path, python: str) -> None:
    """An empty virtual environment (PEP 405) for ``python``, to be mounted. Nothing runs for it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / f"python{version}" / "site-packages").mkdir(parents=True)
    link_interpreter(folder, python)
    home = os.path.dirname(python)
    full = ".".join(map(str, sys.version_info[:3]))
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\nversion = {full}\n")


def link_interpreter(folder: Path, python: str) -> None:
    """Make ``bin/python`` and its usual names point to ``python``, unless something else bears the name."""
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}"):
        if not os.path.lexists(folder / "bin" / name):
            os.symlink(python, folder / "bin" / name)


def judged_files(evidence: Evidence) -> dict[str, str]:
    """Digest by path of every regular file that the overlay witness saw created or changed."""
    return {
        event.path: event.text("h256")
        for event in evidence.events()
        if event.type == "change" and event.text("k") == "file" and event.text("h256")
    }


def last_words(said: str) -> str:
    """The line of an error output that says most: the last one that is not advice."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if not line.lower().startswith(("hint:", "note:", "[notice]", "╰─>"))]
    return (telling or lines or [""])[-1][:300]


def read_tree(root: Path) -> tuple[dict[str, bytes], bool]:
    """Regular files below ``root`` by relative name, and whether the bounds cut something. Links are not followed."""
    files: dict[str, bytes] = {}
    budget = MAX_OUTPUT_BYTES
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                continue
            with open(descriptor, "rb") as stream:
                info = os.fstat(descriptor)
                if not stat.S_ISREG(info.st_mode):
                    continue
                if info.st_size > budget or len(files) >= MAX_OUTPUT_FILES:
                    return files, True
                data = stream.read(budget)
            budget -= len(data)
            files[os.path.relpath(path, root)] = data
    return files, False


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        # Links stay links: what they point at is not part of what the user gave.
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _remove(folder: Path) -> None:
    def force(function: Callable[[str], object], path: str, _: object) -> None:
        try:
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700, follow_symlinks=True)
            function(path)
        except OSError:
            pass

    shutil.rmtree(folder, onerror=force)


def needs_node(prepared: Prepared) -> bool:
    """Whether the target runs under Node, which then must be on this machine."""
    return prepared.target.kind is Kind.NODE_PROJECT
