"""The environments in which a target is run."""

from __future__ import annotations

import pytest

from aboveboard.errors import UsageError
from aboveboard.vet import matrix


def test_the_default_is_a_developers_machine():
    assert [environment.name for environment in matrix.parse(None)] == ["dev"]


def test_names_keep_their_order_and_count_once():
    assert [environment.name for environment in matrix.parse("ci, dev,ci")] == ["ci", "dev"]
    assert len(matrix.parse("all")) == len(matrix.ENVIRONMENTS)


@pytest.mark.parametrize("text", ["", ",", "dve", "dev,moon"])
def test_an_unknown_name_is_refused_with_the_choices(text):
    with pytest.raises(UsageError) as caught:
        matrix.parse(text)
    assert "locale" in caught.value.advice
    assert ("Did you mean 'dev'" in caught.value.advice) == (text == "dve")


def test_only_the_shifted_clock_says_that_it_is_partial():
    assert [environment.name for environment in matrix.ENVIRONMENTS.values() if environment.partial] == ["future"]


def test_the_ci_environment_says_so_and_holds_no_secret():
    env = matrix.ENVIRONMENTS["ci"].env
    assert env["CI"] == env["GITHUB_ACTIONS"] == "true"
    assert not [name for name in env if "TOKEN" in name or "SECRET" in name]
