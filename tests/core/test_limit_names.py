"""Errors about a limit name it in `details.limit`, with its size in `details.value`: checked in the
source.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import kbcore
import kbplanner
import kbplugins
import kbserver
from kbcore.config import SETTINGS
from kbcore.limit_names import BUDGET_LIMITS, FIXED_LIMITS

PACKAGES = (kbcore, kbplanner, kbplugins, kbserver)
SETTING_NAMES = {setting.name for setting in SETTINGS}
KNOWN = {*BUDGET_LIMITS, *FIXED_LIMITS, *SETTING_NAMES}
ERRORS = {"TooLarge": 1, "RateLimited": 2, "TooManyBodies": 1}
"""Errors about a limit, and the position of their details."""


@functools.cache
def modules() -> list[tuple[str, ast.Module]]:
    """The modules that name an error about a limit, or a limit."""
    words = re.compile("|".join([*ERRORS, "BudgetExceeded", "Buckets", '"limit"']))
    return [
        (str(path.relative_to(root.parent)), ast.parse(text))
        for root in (Path(package.__file__ or "").parent for package in PACKAGES)
        for path in sorted(root.rglob("*.py"))
        if words.search(text := path.read_text(encoding="utf-8"))
    ]


def keys_of(node: ast.Dict) -> set[object]:
    return {key.value for key in node.keys if isinstance(key, ast.Constant)}


def named(node: ast.expr, module: ast.Module) -> set[str]:
    """The names that an expression can be: a text, a constant of the module, or a loop variable."""
    if isinstance(node, ast.Constant):
        return {str(node.value)}
    assert isinstance(node, ast.Name | ast.Attribute), ast.unparse(node)
    if isinstance(node, ast.Attribute):
        assert node.attr == "name", ast.unparse(node)
        return set()  # of a Buckets, whose names are checked where they are made
    for other in ast.walk(module):
        if (
            isinstance(other, ast.Assign)
            and [ast.unparse(target) for target in other.targets] == [node.id]
            and isinstance(other.value, ast.Constant)
        ):
            return {str(other.value.value)}
        if isinstance(other, ast.For) and isinstance(other.target, ast.Tuple):
            loop = [ast.unparse(target) for target in other.target.elts]
            if node.id in loop and isinstance(other.iter, ast.Tuple):
                rows = [row for row in other.iter.elts if isinstance(row, ast.Tuple)]
                return set().union(*(named(row.elts[loop.index(node.id)], module) for row in rows))
    raise AssertionError(f"no value of {node.id} is known")


def details_of(module: ast.Module) -> Iterator[ast.Dict]:
    """Yield the details of errors about a limit: dictionaries with `limit` and any other
    measure.
    """
    for node in ast.walk(module):
        if isinstance(node, ast.Dict) and {"limit", "value"} <= keys_of(node):
            yield node
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        position = ERRORS.get(node.func.id)
        if position is None or len(node.args) <= position:
            continue
        details = node.args[position]
        if isinstance(details, ast.Name):  # assigned shortly before
            values = [
                other.value
                for other in ast.walk(module)
                if isinstance(other, ast.Assign)
                and [ast.unparse(target) for target in other.targets] == [details.id]
                and isinstance(other.value, ast.Dict)
            ]
            yield from values
        if isinstance(details, ast.Dict):
            yield details


def test_every_error_about_a_limit_names_a_known_one_and_its_value() -> None:
    limits, wrong = set(), []
    for path, module in modules():
        for details in details_of(module):
            if not {"limit", "value"} <= keys_of(details):
                wrong.append(f"{path}:{details.lineno}: {ast.unparse(details)}")
                continue
            pairs = zip(details.keys, details.values, strict=True)
            value = next(v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "limit")
            if path == "kbplanner/errors.py":  # BudgetExceeded itself
                continue
            names = named(value, module)
            limits |= names
            wrong += [f"{path}:{details.lineno}: {name}" for name in names - KNOWN]
    assert wrong == []
    policies = {"address", "bootstrap", "credentials", "default", "tenant", "tokens"}
    assert set(FIXED_LIMITS) - policies <= limits
    assert {"TX_MAX_BYTES", "TENANT_MAX_FACTS"} <= limits


def test_every_error_about_a_limit_has_details() -> None:
    """The arguments of the calls; every one of the server."""
    without = [
        f"{path}:{node.lineno}"
        for path, module in modules()
        if "/shell/" not in path
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and len(node.args) <= ERRORS.get(node.func.id, -1)
    ]
    assert without == []


def test_every_budget_that_is_exceeded_is_known() -> None:
    names: set[str] = set()
    for _, module in modules():
        for node in ast.walk(module):
            if not isinstance(node, ast.Call):
                continue
            function = ast.unparse(node.func)
            position = {"BudgetExceeded": 1, "BudgetExceeded.of_run": 0}.get(function)
            if position is not None and isinstance(node.args[position], ast.Constant):
                names.add(node.args[position].value)
    # `of_run` also gets the budgets of the engine by variable.
    assert names | {"derivedRows", "steps", "memoryBytes"} == set(BUDGET_LIMITS)


def test_every_policy_of_a_rate_limit_is_known() -> None:
    names = {
        node.args[0].value
        for path, module in modules()
        if path.startswith(("kbserver/security", "kbserver/routes/node"))
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("Buckets", "_buckets")
        and isinstance(node.args[0], ast.Constant)
    }
    assert names == {"address", "bootstrap", "credentials", "default", "tenant", "tokens"}
    assert names <= set(FIXED_LIMITS)
