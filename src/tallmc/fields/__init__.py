"""Gibbs sampling of random fields: how their factors are laid out, in which order sites come, and the kernel."""

from tallmc.fields.feed import FieldFeed
from tallmc.fields.kernel import SiteUpdates
from tallmc.fields.layout import Shape, SiteTables, shape_of
from tallmc.fields.sweeps import FixedSweep, RandomSweep, Sweep

__all__ = ["FieldFeed", "FixedSweep", "RandomSweep", "Shape", "SiteTables", "SiteUpdates", "Sweep", "shape_of"]
