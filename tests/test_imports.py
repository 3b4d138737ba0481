"""Who may import whom. Imports inside functions count as any other; those for a type checker only do not run."""

import ast
from pathlib import Path

import tallmc as tm

SOURCE = Path(tm.__file__).parent

# A room is a folder of the source, or one of its files; what it may import besides itself.
ROOMS = {
    "numerics": set(),
    "console": set(),
    "posterior": set(),
    "models": {"posterior"},
    "feed": {"numerics", "posterior"},
    "kernel": {"feed", "posterior"},
    "control_variates": {"numerics", "posterior"},
    "acceptance": {"numerics", "posterior", "feed"},
    "proposals": {"numerics", "posterior", "feed", "control_variates"},
    "metropolis": {"numerics", "posterior", "feed", "kernel", "acceptance", "proposals"},
    "compose": {"posterior", "feed", "kernel"},
    "run": {"numerics", "console", "posterior", "feed", "kernel"},
    "diagnostics": {"numerics", "console", "posterior", "feed", "kernel", "metropolis", "run"},
    "optimise": {"console", "posterior", "models"},  # models: only for the checks of a user's columns, and the links
    "design": {"posterior", "acceptance", "diagnostics", "run"},
    "setup": {
        "numerics",
        "console",
        "posterior",
        "feed",
        "kernel",
        "acceptance",
        "proposals",
        "control_variates",
        "metropolis",
        "run",
        "diagnostics",
        "optimise",
    },
    "commands": {
        "posterior",
        "models",
        "kernel",
        "acceptance",
        "proposals",
        "metropolis",
        "run",
        "diagnostics",
        "design",
        "setup",
    },
}
ON_TOP = {"__init__", "__main__", "cli"}  # may import anything; nothing imports them, but the command line `tallmc`


def module_name(path):
    """`tallmc.feed` for the package, `tallmc.feed.alias` for a file in it."""
    parts = ("tallmc", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


class _Imports(ast.NodeVisitor):
    """Modules of ours that some code imports, whatever it is indented by; not what is under `if TYPE_CHECKING`."""

    def __init__(self):
        self.found = set()

    def visit_If(self, node):  # noqa: N802
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)

    def visit_Import(self, node):  # noqa: N802
        self.found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "tallmc"}

    def visit_ImportFrom(self, node):  # noqa: N802
        assert not node.level, "imports are absolute"
        if (node.module or "").split(".")[0] == "tallmc":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                self.found.add(whole if whole in MODULES else node.module)


def imports(source):
    visitor = _Imports()
    visitor.visit(ast.parse(source))
    return visitor.found


def room(module):
    return (module.split(".") + ["__init__"])[1]


GRAPH = {module: imports(path.read_text()) for module, path in MODULES.items()}


def misplaced(module, imported):
    """Imports that the table does not allow."""
    own = room(module)
    if own in ON_TOP:
        return set()
    return {other for other in imported if room(other) != own and room(other) not in ROOMS[own]}


def find_cycle(graph):
    """Some modules that import each other in a circle, or nothing."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        path.append(module)
        for other in sorted(graph.get(module, ())):
            if found := visit(other):
                return found
        done.add(path.pop())
        return None

    return next((found for module in sorted(graph) if (found := visit(module))), None)


def test_every_room_is_in_the_table():
    assert {room(module) for module in MODULES} == set(ROOMS) | ON_TOP
    assert all(imported <= set(ROOMS) for imported in ROOMS.values())


def test_rooms_import_only_what_they_may():
    assert {module: found for module, imported in GRAPH.items() if (found := misplaced(module, imported))} == {}


def test_the_table_allows_nothing_that_is_not_used():
    used = {(room(module), room(other)) for module, imported in GRAPH.items() for other in imported}
    assert {(own, other) for own, others in ROOMS.items() for other in others} <= used


def test_no_module_imports_itself_by_a_detour():
    assert find_cycle(GRAPH) is None
    assert find_cycle({own: set(others) for own, others in ROOMS.items()}) is None


def test_an_import_that_is_out_of_place_is_found():
    """Negative control: late imports too."""
    late = imports("def f():\n    from tallmc.setup.sample import sample\n    import tallmc.feed\n")
    assert late == {"tallmc.setup.sample", "tallmc.feed"}
    assert misplaced("tallmc.run.drive", late) == {"tallmc.setup.sample"}
    assert imports("if TYPE_CHECKING:\n    from tallmc.run import Run\n") == set()
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c", "b"]


def test_only_public_names_are_listed():
    assert sorted(dir(tm)) == sorted([*tm.__all__, "__version__"])
    assert all(hasattr(tm, name) for name in dir(tm))
    assert not {name for name in dir(tm) if name.startswith("_")} - {"__version__"}
