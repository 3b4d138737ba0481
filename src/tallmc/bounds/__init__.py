"""Bounds on what a row can say, worked out from the program of its log likelihood by interval arithmetic."""

from tallmc.bounds.curvature import is_concave
from tallmc.bounds.of_row import why_not_covered
from tallmc.bounds.refusal import NotCoveredError
from tallmc.bounds.region_bounds import FromProgram, RegionBounds, bounds_of, usual_radius

__all__ = [
    "FromProgram",
    "NotCoveredError",
    "RegionBounds",
    "bounds_of",
    "is_concave",
    "usual_radius",
    "why_not_covered",
]
