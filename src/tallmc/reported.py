"""What a reader is told of a kernel: in summaries, reports and warnings. Nothing here moves a chain."""

import equinox as eqx
import numpy as np

from tallmc.posterior import Model


class Reported(eqx.Module):
    """Says what there is to say of it; by default, its name."""

    @property
    def label(self) -> str:
        """What it is called in messages and tables."""
        return type(self).__name__

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """What a reader of a run's summary must be told, from the statistics of its transitions."""
        del stats, model
        return []

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """Why the run should not be trusted, from the same."""
        del stats
        return []

    def objections(self, stats: dict[str, np.ndarray]) -> list[str]:
        """What was seen to be wrong with decisions that were promised to be right: it counts among `run.doubts`."""
        del stats
        return []
