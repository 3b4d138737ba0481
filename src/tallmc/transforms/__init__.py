"""Parameters with limits, for `tm.Posterior(transforms=...)`: `positive`, `interval(low, high)`, `ordered`, `simplex`.

A posterior with transforms is written, started and summed up on the natural scale, on which the parameters have their
limits. Its chains move on another, on which there are none. The change of volume between the two (the Jacobian) is
added to the prior; it is NumPyro's, as are the transforms.
"""

from tallmc.transforms.contract import Transform
from tallmc.transforms.elementwise import Interval, Positive, interval, positive
from tallmc.transforms.vectors import Ordered, Simplex, ordered, simplex

__all__ = ["Interval", "Ordered", "Positive", "Simplex", "Transform", "interval", "ordered", "positive", "simplex"]
