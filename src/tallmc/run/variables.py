"""Draws by the names under which ArviZ knows them: one array (chain, draw, ...) for each variable of each group."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from tallmc.feed import Drawn
from tallmc.kernel_parts import rule_feeds, rule_needs
from tallmc.posterior import Posterior
from tallmc.posterior.labels import named
from tallmc.run import files
from tallmc.run.records import Draw
from tallmc.run.session import Session

POSTERIOR, UNCONSTRAINED, STATS = "posterior", "unconstrained_posterior", "sample_stats"
_KINDS = "biufc"


class Column(NamedTuple):
    """One variable of a store.

    Args:
        group: Of the tree that ArviZ sees.
        name: Of the variable.
        shape: Of one draw of one chain.
        dtype: Its name.
    """

    group: str
    name: str
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def checked(cls, group: Any, name: Any, shape: Any, dtype: Any) -> "Column":
        """As a file describes it, if that can be: a folder inside the store, numbers, a shape."""
        kind, lengths = np.dtype(str(dtype)), tuple(shape)
        if group not in (POSTERIOR, UNCONSTRAINED, STATS) or kind.kind not in _KINDS:
            raise ValueError(f"there is no variable {group}/{name} of {dtype}")
        if not all(isinstance(length, int) and length >= 0 for length in lengths):
            raise ValueError(f"variable {name} cannot have shape {shape}")
        return cls(group, str(name), lengths, kind.name)

    @property
    def folder(self) -> tuple[str, str]:
        """Where it is in a store."""
        return self.group, files.safe_name(self.name)

    @property
    def num_bytes(self) -> int:
        """Of one draw of one chain."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Kept(NamedTuple):
    """Draws as a run shows them.

    Args:
        samples: On the natural scale.
        unconstrained: As the chains made them, if they are shown otherwise.
        stats: One array a name.
    """

    samples: PyTree
    unconstrained: PyTree
    stats: dict[str, Any]

    @classmethod
    def of(cls, draws: Draw, session: Session, posterior: Posterior) -> "Kept":
        """Adds what follows from the draws of chains."""
        stats = {**draws.stats, "used_all_rows": used_all_rows(draws, session)}
        natural = posterior.constrain_draws(draws.position)
        return cls(natural, draws.position if posterior.reports_otherwise else None, stats)

    def named(self) -> dict[tuple[str, str], Any]:
        """Every array by its group and name."""
        groups = {POSTERIOR: named(self.samples), STATS: self.stats}
        if self.unconstrained is not None:
            groups[UNCONSTRAINED] = named(self.unconstrained)
        return {(group, name): array for group, arrays in groups.items() for name, array in arrays.items()}

    def columns(self) -> list[Column]:
        """What is to be stored."""
        found = []
        for (group, name), array in self.named().items():
            if array.dtype.kind not in _KINDS or not array.dtype.isnative:
                raise ValueError(
                    f"a store keeps truth values and numbers that NumPy knows, and {name} is {array.dtype}"
                )
            found.append(Column(group, name, tuple(array.shape[2:]), array.dtype.name))
        return found

    def template(self) -> "Kept":
        """Its shape as a tree, without draws."""
        nothing = lambda tree: jax.tree.map(lambda leaf: np.zeros((), np.int8), tree)  # noqa: E731
        return Kept(nothing(self.samples), nothing(self.unconstrained), dict.fromkeys(self.stats, True))  # pyright: ignore

    def filled(self, read: Callable[[str, str], Any]) -> "Kept":
        """A tree of this shape with what `read` gives for each group and name; statistics when they are asked for."""

        def filled(group: str, tree: PyTree) -> PyTree:
            if tree is None:
                return None
            leaves = [read(group, name) for name in named(tree)]
            return jax.tree.unflatten(jax.tree.structure(tree), leaves)

        samples, unconstrained = filled(POSTERIOR, self.samples), filled(UNCONSTRAINED, self.unconstrained)
        return Kept(samples, unconstrained, LateStats(list(self.stats), lambda name: read(STATS, name)))


class LateStats(dict[str, np.ndarray]):
    """Statistics that are read when they are asked for, and not kept.

    Args:
        names: Of all of them.
        read: Gives one.
    """

    def __init__(self, names: list[str], read: Callable[[str], np.ndarray]):
        self.update({name: np.zeros(0) for name in names})  # that they are there is all that these say
        self._read = read

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:  # whoever copies a dict looks here whether it is one like others
        yield from self.keys()

    def get(self, name: str, default: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One of them, or the default."""
        return self[name] if name in self.keys() else default

    def items(self) -> Any:
        """Pairs of names and arrays, read one after the other."""
        return ((name, self[name]) for name in self.keys())

    def values(self) -> Any:
        """Arrays, read one after the other."""
        return (self[name] for name in self.keys())


def used_all_rows(draws: Draw, session: Session) -> np.ndarray:
    """As many draws with replacement as there are rows are not all rows; a rule that asks for all gets each once."""
    enough = draws.stats["rows"] - draws.stats.get("proposal_rows", 0) >= session.model.num_rows
    sources = rule_feeds(session.kernel, session.feed)
    for number, (part, source) in enumerate(zip(session.kernel.parts(), sources, strict=True)):
        if source.drawn is Drawn.BY_WEIGHT and not rule_needs(part).row_bounds:
            enough = enough & (draws.stats["part"] != number if "part" in draws.stats else False)
    return enough
