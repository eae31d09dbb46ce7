"""Ordinary code is not called forbidden: the part of ``benchmarks/benign_packages.toml`` that every run checks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

BENCHMARK = Path(__file__).resolve().parent.parent / "benchmarks" / "benign.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benign_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


benign = load()
PART = [package for package in benign.packages() if package.ci]


@pytest.fixture(scope="module")
def python(world_available: None, index_available: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    found: str = benign.install(PART, tmp_path_factory.mktemp("packages") / "venv")
    return found


def test_the_list_is_long_and_has_no_package_twice() -> None:
    names = [package.name.lower() for package in benign.packages()]
    assert len(names) >= 110
    assert len(names) == len(set(names))
    assert all("==" in package.requirement for package in benign.packages())


@pytest.mark.network
@pytest.mark.parametrize("package", PART, ids=lambda package: package.name)
def test_an_ordinary_package_is_clean(package: object, python: str) -> None:
    result = benign.check(package, python)
    assert result.status == 0, result.error
    assert result.verdict == "clean", (result.effects, result.reasons)
