"""Draws docs/bounds.svg: a row's log likelihood, its expansion, and the band that is proven around it."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm

_PLACE = Path(__file__).parents[1] / "docs" / "bounds.svg"


def log_likelihood(position, row):
    """Of a Poisson regression with a log link."""
    z = row["x"] @ position
    return row["count"] * z - jnp.exp(z)


def main() -> None:
    """Draws the picture."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tallmc"
    import matplotlib.pyplot as plt

    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 2)).astype(np.float32)
    rows = {"x": x, "count": generator.poisson(np.exp(x @ [0.5, -0.4])).astype(np.float32)}
    posterior = tm.Posterior(log_likelihood, rows, lambda p: -0.5 * jnp.sum(p**2))
    mode = tm.optimise.mode(posterior, init=np.zeros(2, np.float32), progress=False)
    factor = np.linalg.cholesky(np.linalg.inv(mode.hessian))
    bounds = tm.bounds_of(posterior, mode.position, factor, radius=5.0)
    loudest = int(np.argmax(bounds.third))
    row = jax.tree.map(lambda leaf: leaf[loudest], rows)
    direction = factor.T @ row["x"]
    along = factor @ direction / np.linalg.norm(direction)

    def at(t):
        return log_likelihood(jnp.asarray(mode.position + t * along, jnp.float32), row)

    value, slope, bend = (float(f(0.0)) for f in (at, jax.grad(at), jax.grad(jax.grad(at))))
    t = np.linspace(-5, 5, 201)
    expansion = value + slope * t + bend * t**2 / 2
    band = float(bounds.third[loudest]) * np.abs(t) ** 3 / 6
    figure, axes = plt.subplots(figsize=(8.4, 4.2))
    axes.fill_between(t, expansion - band, expansion + band, color="#c6dbef", label="proven")
    wide = np.linspace(-6.5, 6.5, 261)
    axes.plot(wide, [float(at(s)) for s in wide], color="#08306b", label="log likelihood of a row")
    axes.plot(t, expansion, "--", color="#d94801", label="its expansion")
    for edge in (-5, 5):
        axes.axvline(edge, color="grey", linewidth=0.8)
    axes.set_xlabel("standard deviations from the mode")
    axes.legend(frameon=False, loc="lower left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(_PLACE, metadata={"Date": None})


if __name__ == "__main__":
    main()
