"""The library's front door: vet targets, in parallel, and put what they did side by side."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from aboveboard.contract import Contract
from aboveboard.errors import ContractError, EnvironmentProblem, UsageError
from aboveboard.evidence.verdict import CLEAN
from aboveboard.vet import matrix, phases, targets, trial
from aboveboard.vet.prepare import Prepared, prepare
from aboveboard.vet.release import check_destination, release
from aboveboard.vet.results import TargetReport, Trial, VetReport, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aboveboard.vet.matrix import Environment
    from aboveboard.vet.phases import Calling
    from aboveboard.vet.targets import Target
    from aboveboard.world import Limits

_T = TypeVar("_T")

WAYS = ("paths", "text", "bytes", "json")


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of the work, for a progress bar."""

    done: int
    """Trials that are over."""
    total: int
    label: str
    environment: str
    stage: str


def vet(
    given: Sequence[str | Path | Target] | str | Path | Target,
    *,
    contract: Contract | Path | str | None = None,
    inputs: Sequence[Path | str] = (),
    command: Sequence[str] = (),
    entry: Sequence[str] | str = (),
    adapter: Sequence[Path | str] | Path | str = (),
    argv: Sequence[str] | None = None,
    way: str = "paths",
    modules: Sequence[str] = (),
    output: str = "result",
    instructions: bool = False,
    requires: Sequence[str] = (),
    add: Sequence[Path | str] = (),
    environments: Sequence[Environment] = matrix.DEFAULT,
    evidence: Path | str | None = None,
    release_to: Path | str | None = None,
    jobs: int | None = None,
    tier: str = "auto",
    timeout: float = 120.0,
    limits: Limits | None = None,
    offline: bool = False,
    pins: Mapping[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> VetReport:
    """Run each target on the same inputs in disposable worlds and judge what it did.

    Parameters
    ----------
    given
        Targets as a person writes them (:func:`aboveboard.vet.targets.recognise`), or recognised ones.
    contract
        What they may do; ``read input/**, write output/**`` and nothing else when None.
    inputs
        Files or folders, copied to ``input/`` of the workspace. Every call gets one of them.
    command
        One more target: an argument vector.
    entry, adapter
        ``module:function``, and a file that defines ``run(module, input_path, output_path)``: none, one for all
        targets, or one a target in their order.
    argv, way
        See :class:`aboveboard.vet.phases.Calling`.
    requires, add
        Requirements to install, and files to show, beside the target.
    evidence
        Folder for the evidence of every world; a temporary one that is removed when None.
    release_to
        New or empty folder that receives the declared outputs of every clean target.
    jobs
        Trials at once; the number of CPUs when None.
    timeout
        Seconds for each command.
    offline, pins
        See :func:`aboveboard.vet.fetch.collect`.

    Raises
    ------
    UsageError, TargetError, ContractError
        Something given makes no sense, cannot be read or does not fit.
    EnvironmentProblem
        This machine cannot run a world, the index cannot be reached, a disk is full.
    """
    started = time.monotonic()
    if isinstance(given, (str, Path, targets.Target)):
        given = [given]
    allowed = contract if isinstance(contract, Contract) else _contract(contract)
    chosen = _recognise(given, command)
    paths = [_input(Path(path)) for path in inputs]
    names = _input_names(paths)
    if way not in WAYS:
        raise UsageError(f"an input cannot be passed as {way!r}", advice=f"Choose from {', '.join(WAYS)}.")
    if not output or "/" in output or output in (".", "..") or "\0" in output:
        raise UsageError(f"{output!r} is not a file name for the output", advice="Give a plain name: result.json.")
    entries = _spread("entry", [entry] if isinstance(entry, str) else list(entry), len(chosen))
    adapters = _spread("adapter", [adapter] if isinstance(adapter, (str, Path)) else list(adapter), len(chosen))
    files = [None if path is None else _input(Path(path)) for path in adapters]
    more = tuple(_input(Path(path)) for path in add)
    if release_to is not None:
        check_destination(Path(release_to))
    if timeout <= 0:
        raise UsageError(
            f"a timeout of {timeout:g} s leaves no time to run", advice="Give a positive number of seconds."
        )
    prepared = [prepare(target, requires=requires, offline=offline, pins=pins) for target in chosen]
    callings = [
        phases.Calling(
            entry=None if one is None else str(one),
            argv=None if argv is None else tuple(argv),
            way=way,
            adapter=file is not None,
            modules=tuple(modules),
            output=output,
            instructions=instructions,
        )
        for one, file in zip(entries, files, strict=True)
    ]
    settings = trial.Settings(
        allowed, tuple(paths), names, None, more, tier, timeout, limits, keep=evidence is not None
    )
    root = _evidence_root(evidence)
    try:
        work = [
            (number, where, replace(settings, adapter=files[number]))
            for number in range(len(prepared))
            for where in environments
        ]
        trials = _run_all(prepared, callings, work, root, jobs, progress)
        reports = compare(prepared, trials)
        if release_to is not None:
            reports = _release(reports, allowed, Path(release_to))
    finally:
        if evidence is None:
            shutil.rmtree(root, ignore_errors=True)
    digests = tuple((name, _digest(path)) for name, path in zip(names, paths, strict=True))
    return VetReport(reports, allowed.digest(), digests, time.monotonic() - started)


async def avet(
    given: Sequence[str | Path | Target] | str | Path | Target,
    **options: object,
) -> VetReport:
    """:func:`vet` for asyncio code: the same arguments and errors; the event loop stays free meanwhile."""
    import asyncio
    from functools import partial

    return await asyncio.to_thread(partial(vet, given, **options))  # type: ignore[arg-type]


def _contract(source: Path | str | None) -> Contract:
    if source is None:
        return Contract.default()
    try:
        return Contract.load(source)
    except ValueError as problem:
        raise ContractError(str(problem), advice="docs/reference/contract.md has the grammar.") from None


def _recognise(given: Sequence[str | Path | Target], command: Sequence[str]) -> tuple[Target, ...]:
    ready = [one for one in given if isinstance(one, targets.Target)]
    if ready and len(ready) == len(given) and not command:
        return tuple(ready)
    if ready:
        raise UsageError("recognised targets and plain ones are mixed", advice="Give all of one sort.")
    return targets.recognise_all([os.fspath(one) for one in given if not isinstance(one, targets.Target)], command)


def _run_all(
    prepared: Sequence[Prepared],
    callings: Sequence[Calling],
    work: Sequence[tuple[int, Environment, trial.Settings]],
    root: Path,
    jobs: int | None,
    progress: Callable[[Progress], None] | None,
) -> list[list[Trial]]:
    lock = threading.Lock()
    done = 0

    def tell(number: int, where: Environment, stage: str) -> None:
        if progress is not None:
            with lock:
                progress(Progress(done, len(work), prepared[number].target.label, where.name, stage))

    def one(item: tuple[int, Environment, trial.Settings]) -> Trial:
        nonlocal done
        number, where, settings = item
        folder = root / f"{number + 1:02d}-{phases.safe_name(prepared[number].target.label)}" / where.name
        result = trial.run(
            prepared[number],
            callings[number],
            where,
            settings,
            folder,
            progress=lambda stage: tell(number, where, stage),
        )
        with lock:
            done += 1
        tell(number, where, result.verdict)
        return result

    wide = min(len(work), jobs if jobs is not None else os.cpu_count() or 1)
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} jobs at once is not possible", advice="Give --jobs 1 or more.")
    with ThreadPoolExecutor(max_workers=max(1, wide)) as pool:
        futures = [pool.submit(one, item) for item in work]
        try:
            results = [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    rows: list[list[Trial]] = [[] for _ in prepared]
    for (number, _, _), result in zip(work, results, strict=True):
        rows[number].append(result)
    return rows


def _release(reports: Sequence[TargetReport], contract: Contract, folder: Path) -> tuple[TargetReport, ...]:
    """Outputs of every target that is clean in all environments, one folder a target when there are several."""
    if not any(report.verdict == CLEAN for report in reports):
        return tuple(reports)
    rules = contract.compile(workspace=phases.TASK, home=phases.HOME)
    several = len(reports) > 1
    if several:
        folder.mkdir(exist_ok=True)
    out = []
    for number, report in enumerate(reports):
        first = report.trials[0]
        if report.verdict != CLEAN or not first.taken:
            out.append(report)
            continue
        place = folder / f"{number + 1:02d}-{phases.safe_name(report.label)}" if several else folder
        released = release(
            Path(first.taken), place, declared=rules.write.match, judged=first.judged, workspace=phases.TASK
        )
        out.append(replace(report, released=released))
    return tuple(out)


def _spread(what: str, values: Sequence[_T], count: int) -> list[_T | None]:
    if not values:
        return [None] * count
    if len(values) == 1:
        return [values[0]] * count
    if len(values) != count:
        raise UsageError(
            f"{len(values)} of --{what} for {count} targets",
            advice=f"Give one --{what} for all, or one a target in order.",
        )
    return list(values)


def _input(path: Path) -> Path:
    try:
        path = path.expanduser().absolute()
        if path.is_dir():
            targets.digest_tree(path)
            return path
        if not path.exists():
            raise UsageError(f"{str(path)!r} does not exist", advice="Check the path; relative paths start here.")
        if not path.is_file():
            raise UsageError(f"{str(path)!r} is neither a file nor a folder", advice="Give a regular file.")
        if path.stat().st_size > targets.MAX_FILE_BYTES:
            raise UsageError(
                f"{str(path)!r} has more than {targets.MAX_FILE_BYTES:,} bytes", advice="Give a part of it."
            )
        with path.open("rb"):
            return path
    except OSError as problem:
        raise UsageError(f"{str(path)!r} may not be read: {problem.strerror}", advice="Check its mode.") from None
    except ValueError as problem:
        raise UsageError(f"{str(path)!r} is not a path: {problem}", advice="Give a plain path.") from None


def _input_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """Names in the workspace: their own, made plain and unique."""
    seen: dict[str, int] = {}
    names = []
    for path in paths:
        name = phases.safe_name(path.name)
        count = seen[name] = seen.get(name, 0) + 1
        names.append(name if count == 1 else f"{count}-{name}")
    return tuple(names)


def _digest(path: Path) -> str:
    return targets.digest_tree(path).sha256 if path.is_dir() else targets.digest_file(path)


def _evidence_root(evidence: Path | str | None) -> Path:
    if evidence is None:
        return Path(tempfile.mkdtemp(prefix="aboveboard-"))
    root = Path(evidence).expanduser().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            # Evidence is never overwritten, and never mixed with that of another run.
            raise UsageError(f"the evidence folder {str(root)!r} is not empty", advice="Name a new folder with --out.")
    except OSError as problem:
        raise EnvironmentProblem(
            f"the evidence folder {str(root)!r} cannot be used: {problem.strerror}", advice="Name another with --out."
        ) from None
    return root
