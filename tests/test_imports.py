"""Imports point one way: what each room of the library may import, lazy imports inside functions included."""

import ast
from pathlib import Path

import tallmc as tm

SOURCE = Path(tm.__file__).parent

# Rooms from the bottom up. A room may import itself and what is named here; `__init__` gathers everything.
MAY_IMPORT = {
    "numerics": set(),
    "console": {"numerics"},
    "transforms": {"numerics"},
    "frames": {"numerics"},
    "posterior": {"frames", "transforms", "numerics"},
    "bounds": {"posterior", "numerics"},
    "disk": {"posterior", "console", "numerics"},
    "feed": {"posterior", "numerics"},
    "reported": {"posterior"},
    "kernel": {"reported", "feed", "posterior"},
    "kernel_parts": {"kernel", "feed"},
    "acceptance": {"feed", "posterior", "numerics"},
    "control_variates": {"bounds", "posterior", "numerics"},
    "window_adaptation": {"numerics"},
    "proposals": {"control_variates", "window_adaptation", "feed", "posterior", "numerics"},
    "models": {"frames", "posterior", "numerics"},
    "optimise": {"posterior", "console", "models", "numerics"},
    "nuts": {"window_adaptation", "kernel", "feed", "posterior", "numerics"},
    "metropolis": {"acceptance", "proposals", "kernel", "feed", "posterior", "numerics"},
    "remembering": {"kernel"},
    "whole_metropolis": {"remembering", "acceptance", "proposals", "kernel", "feed", "posterior", "numerics"},
    "compose": {
        "remembering",
        "metropolis",
        "acceptance",
        "proposals",
        "kernel_parts",
        "kernel",
        "feed",
        "posterior",
        "numerics",
    },
    "fields": {"models", "acceptance", "kernel", "feed", "posterior", "numerics"},
    "run": {"kernel_parts", "kernel", "feed", "posterior", "frames", "console", "numerics"},
    "diagnostics": {
        "run",
        "metropolis",
        "acceptance",
        "proposals",
        "kernel_parts",
        "kernel",
        "feed",
        "posterior",
        "console",
        "numerics",
    },
    "design": {"diagnostics", "run", "acceptance", "posterior", "numerics"},
    "setup": {
        "compose",
        "whole_metropolis",
        "design",
        "nuts",
        "fields",
        "models",
        "bounds",
        "diagnostics",
        "run",
        "metropolis",
        "acceptance",
        "proposals",
        "control_variates",
        "kernel_parts",
        "kernel",
        "feed",
        "posterior",
        "optimise",
        "console",
        "numerics",
    },
    "bridges": {
        "setup",
        "run",
        "kernel",
        "control_variates",
        "models",
        "posterior",
        "transforms",
        "numerics",
    },
    "sklearn": {"bridges"},
}
TOP = {"__init__", "__main__", "cli", "commands", "reproduce"}  # they use the library as its users do


def imported(path: Path) -> set[str]:
    """Full names of everything of ours that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "tallmc"}


def room_of(name: str) -> str:
    return name.split(".")[1] if "." in name else "__init__"


def module_of(path: Path) -> str:
    parts = ("tallmc", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for path in SOURCE.rglob("*.py")}


def test_every_room_has_its_place():
    rooms = {room_of(module) for module in FILES}
    assert rooms == set(MAY_IMPORT) | TOP


def test_imports_point_one_way():
    wrong = []
    for module, path in FILES.items():
        room = room_of(module)
        if room in TOP:
            continue
        allowed = MAY_IMPORT[room] | {room}
        wrong += [f"{module} imports {name}" for name in sorted(imported(path)) if room_of(name) not in allowed]
    assert not wrong, "\n".join(wrong)


def test_the_table_itself_has_no_cycle():
    seen: list[str] = []
    for room, below in MAY_IMPORT.items():
        assert below <= set(seen) | {"models"}, f"{room} may import {below - set(seen)}, which stands above it"
        seen.append(room)


def test_no_modules_import_each_other():
    """Not even by way of others, and not even inside functions."""
    graph = {}
    for module, path in FILES.items():
        targets = set()
        for name in imported(path):
            target = name if name in FILES else name.rsplit(".", 1)[0]
            targets.add(target)
        # A package gathers its own modules; what imports the package from inside imports a sibling, not the gathering.
        graph[module] = {t for t in targets if t in FILES and t != module}
    packages = {module for module, path in FILES.items() if path.name == "__init__.py"}
    for module, targets in graph.items():
        graph[module] = {t for t in targets if not (t in packages and module.startswith(t + "."))}
    state: dict[str, int] = {}

    def visit(module: str, path: tuple[str, ...]) -> None:
        if state.get(module) == 2:
            return
        assert state.get(module) != 1, f"cycle: {' -> '.join((*path[path.index(module) :], module))}"
        state[module] = 1
        for target in sorted(graph[module]):
            visit(target, (*path, module))
        state[module] = 2

    for module in sorted(graph):
        visit(module, ())


def test_the_optimiser_knows_nothing_of_kernels():
    assert not {"kernel", "metropolis", "run", "setup"} & MAY_IMPORT["optimise"]


def test_the_contract_is_short():
    assert len((SOURCE / "kernel.py").read_text().splitlines()) < 150


def test_public_names_only():
    assert set(dir(tm)) == {*tm.__all__, "__version__"}
    assert all(hasattr(tm, name) for name in tm.__all__)
    assert not {"alias", "arithmetic", "version", "feed", "run", "kernel", "posterior"} & set(dir(tm))
