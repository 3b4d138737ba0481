"""What the package imports is declared; the development environment would hide what is not."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tallmc"
MODULES = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Files that load an extra when they are used, and which.
EXTRAS = {
    "commands/design.py": "plots",
    "diagnostics/plots.py": "plots",
    "bridges/sklearn_classifiers.py": "sklearn",
    "bridges/sklearn_fit.py": "sklearn",
    "bridges/sklearn_regressors.py": "sklearn",
    "bridges/pymc_limits.py": "pymc",
    "bridges/pymc_models.py": "pymc",
    "bridges/pymc_posterior.py": "pymc",
    "bridges/pymc_to_jax.py": "pymc",
    "disk/sources.py": "disk",
    "disk/layout.py": "disk",
}
OF_AN_EXTRA_ALONE = re.compile(r"bridges/(sklearn|pymc)_(?!models)")  # only loaded by others, when they are called
IMPORTED_AS = {"scikit_learn": {"sklearn"}, "pymc": {"pymc", "pytensor"}}  # PyMC is made of PyTensor
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def declared(requirements):
    """Packages as they are imported; most of ours are named as their distributions, but for the dashes."""
    names = {re.split(r"[^\w.-]", requirement)[0].replace("-", "_").lower() for requirement in requirements}
    return set().union(*(IMPORTED_AS.get(name, {name}) for name in names))


REQUIRED = declared(PROJECT["dependencies"])


def packages(node):
    """Third-party packages that one statement imports."""
    modules = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        modules = [node.module]
    return {module.partition(".")[0] for module in modules} - sys.stdlib_module_names - {"tallmc"}


def imported(tree, in_functions):
    """Third-party packages that a module imports: when it is loaded, or also when its functions run."""
    found, nodes = set(), [tree]
    while nodes:
        node = nodes.pop()
        found |= packages(node)
        if in_functions or not isinstance(node, FUNCTIONS):
            nodes += ast.iter_child_nodes(node)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_imports_are_declared(name):
    tree = ast.parse(MODULES[name].read_text())
    extra = declared(PROJECT["optional-dependencies"][EXTRAS[name]]) if name in EXTRAS else set()
    assert imported(tree, in_functions=False) <= (REQUIRED | extra if OF_AN_EXTRA_ALONE.match(name) else REQUIRED)
    assert imported(tree, in_functions=True) <= REQUIRED | extra


def test_imports_are_found():
    """Otherwise the test above would pass on anything."""
    tree = ast.parse("import os, a.b\nfrom c.d import e\ndef f():\n    if e:\n        import g\n")
    assert imported(tree, in_functions=False) == {"a", "c"}
    assert imported(tree, in_functions=True) == {"a", "c", "g"}
