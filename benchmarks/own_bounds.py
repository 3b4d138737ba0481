"""Likelihoods of one's own with bounds that are worked out: right, and how fast, with them and without.

`python -m benchmarks.own_bounds` measures all models, `python -m benchmarks.own_bounds probit ordinal --rows 20000`
those that are named. Each measurement is a process of its own; what is there already, in `--file`, is not done again.
What the columns mean is in docs/benchmarks.md, "Bounds that are worked out".
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as st
import numpy as np
from jax.scipy.special import gammaln

ROOT = Path(__file__).parents[1]
NUM_ROWS = 100_000
KEPT = 10_000  # draws of each of four chains, for the comparison: errors of a mean of about 0.006 sd
PAIRS = 1000  # mirrored draws of the reference
TASKS = ("bounds", "without", "reference")
LATER = 3  # calls after the first, of which the shortest counts
LONGEST = 420  # seconds of one task


class Own(NamedTuple):
    """A likelihood as a user writes it.

    Args:
        generate: Rows, from columns, a linear predictor and random numbers.
        log_likelihood: Of one row.
        size: Numbers of a position, given the columns.
        columns: How many.
    """

    generate: Callable[[np.ndarray, np.ndarray, np.random.Generator], dict[str, np.ndarray]]
    log_likelihood: Callable[[Any, Any], Any]
    size: Callable[[int], int]
    columns: int = 5


def logistic(p, row):
    z = row["x"] @ p
    return row["y"] * z - jax.nn.softplus(z)


def probit(p, row):
    return st.norm.logcdf((2 * row["y"] - 1) * (row["x"] @ p))


def poisson(p, row):
    z = row["x"] @ p
    return row["y"] * z - jnp.exp(z)


def negative_binomial(p, row):
    z, log_size, y = row["x"] @ p[:-1], p[-1], row["y"]
    size = jnp.exp(log_size)
    counted = gammaln(y + size) - gammaln(size)
    return counted - size * jnp.log1p(jnp.exp(z - log_size)) - y * jax.nn.softplus(log_size - z)


def weibull(p, row):
    shape, excess = jnp.exp(p[-1]), row["log_time"] - row["x"] @ p[:-1]
    return row["seen"] * (p[-1] + shape * excess) - jnp.exp(shape * excess)


def ordinal(p, row):
    cuts = p[0] + jnp.concatenate([jnp.zeros(1, p.dtype), jnp.cumsum(jnp.exp(p[1:3]))])
    below = jax.nn.sigmoid(cuts - row["x"] @ p[3:])
    below = jnp.concatenate([jnp.zeros(1, p.dtype), below, jnp.ones(1, p.dtype)])
    return jnp.log(below[row["class"] + 1] - below[row["class"]])


def student(p, row):
    return st.t.logpdf(row["y"], 4.0, row["x"] @ p[:-1], jnp.exp(p[-1]))


def heteroscedastic(p, row):
    half = p.shape[0] // 2
    log_scale = row["x"] @ p[half:]
    return -0.5 * ((row["y"] - row["x"] @ p[:half]) * jnp.exp(-log_scale)) ** 2 - log_scale


def softmax(p, row):
    return jax.nn.log_softmax(p.reshape(5, -1) @ row["x"])[row["class"]]


def _binary(link: Callable) -> Callable:
    return lambda x, z, generator: {"x": x, "y": link(z, generator)}


def _negative_binomial_rows(x, z, generator):
    return {"x": x, "y": generator.negative_binomial(3.0, 3.0 / (3.0 + np.exp(z)))}


def _weibull_rows(x, z, generator):
    event, censored = np.exp(z) * generator.weibull(1.5, len(z)), generator.exponential(3.0, len(z))
    return {"x": x, "log_time": np.log(np.minimum(event, censored)), "seen": event < censored}


def _ordinal_rows(x, z, generator):
    x = np.concatenate([generator.normal(size=(len(x), 1)), x[:, 1:]], axis=1)  # cuts take the intercept's place
    classes = np.searchsorted([-1.0, 0.0, 1.0], z + generator.logistic(size=len(z)))
    return {"x": x, "class": classes.astype(np.int32)}


def _heteroscedastic_rows(x, z, generator):
    return {"x": x, "y": z + np.exp(0.2 * x[:, 1]) * generator.normal(size=len(z))}


def _softmax_rows(x, z, generator):
    scores = x @ (0.3 * generator.normal(size=(5, x.shape[1]))).T + generator.gumbel(size=(len(x), 5))
    return {"x": x, "class": scores.argmax(axis=1).astype(np.int32)}


MODELS = {
    "logistic": Own(_binary(lambda z, g: g.random(len(z)) < 1 / (1 + np.exp(-z))), logistic, lambda d: d),
    "probit": Own(_binary(lambda z, g: g.normal(size=len(z)) < z), probit, lambda d: d),
    "Poisson": Own(_binary(lambda z, g: g.poisson(np.exp(z))), poisson, lambda d: d),
    "negative binomial": Own(_negative_binomial_rows, negative_binomial, lambda d: d + 1),
    "Weibull, censored": Own(_weibull_rows, weibull, lambda d: d + 1),
    "Student t": Own(_binary(lambda z, g: z + g.standard_t(4, len(z))), student, lambda d: d + 1),
    "heteroscedastic": Own(_heteroscedastic_rows, heteroscedastic, lambda d: 2 * d),
    "softmax, 5 classes": Own(_softmax_rows, softmax, lambda d: 5 * d, 10),
    "ordinal": Own(_ordinal_rows, ordinal, lambda d: 3 + d),
}


def posterior_of(name: str, num_rows: int) -> tuple[Any, np.ndarray]:
    """The posterior, with a standard normal prior, and where the search for its mode begins."""
    import tallmc as tm

    own, generator = MODELS[name], np.random.default_rng(0)
    x = generator.normal(size=(num_rows, own.columns))
    x[:, 0] = 1
    made = own.generate(x, x @ (0.3 * generator.normal(size=own.columns)), generator)
    rows = {key: part if part.dtype == np.int32 else part.astype(np.float32) for key, part in made.items()}
    position = np.zeros(own.size(own.columns), np.float32)
    return tm.Posterior(own.log_likelihood, rows, lambda p: -0.5 * jnp.sum(p**2)), position


def bounds(name: str, num_rows: int) -> dict[str, Any]:
    """`tm.sample(posterior)`: a first call, a later one, and a long one whose draws are compared."""
    return _sampled(name, num_rows, KEPT)


def without(name: str, num_rows: int) -> dict[str, Any]:
    """The same without bounds: what is chosen where none can be worked out."""
    import tallmc.setup.automatic as automatic

    automatic._bounded = lambda situation: (situation, ())
    return _sampled(name, num_rows, None)


def _sampled(name: str, num_rows: int, kept: int | None) -> dict[str, Any]:
    import tallmc as tm

    posterior, init = posterior_of(name, num_rows)
    seconds, runs, facts = [], [], {}
    for key in range(1 + LATER):
        started = time.perf_counter()
        runs = [tm.sample(posterior, init=init, rng_key=key, progress=False)]
        seconds.append(time.perf_counter() - started)
    (run,) = runs
    facts |= {
        "label": _way(run),
        "ess": float(np.min(run.summary().table["ess_bulk"])),
        "seconds": [seconds[0], min(seconds[1:])],
    }
    facts |= {"timing": run.timing, "doubts": list(run.doubts)}
    if kept is not None:
        run = tm.sample(posterior, init=init, rng_key=2, num_samples=kept, progress=False)
    draws = np.asarray(run.samples, float).reshape(-1, run.samples.shape[-1])
    facts |= {"mean": draws.mean(axis=0).tolist(), "sd": draws.std(axis=0).tolist(), "audit": str(run.audit)}
    facts |= {name: float(np.sum(run.stats[name])) for name in ("violations", "outside") if name in run.stats}
    return facts | {"rows": float(run.stats["rows"].mean()), "doubts": facts["doubts"] + list(run.doubts)}


def _way(run: Any) -> str:
    parts = [getattr(run.kernel, name, None) for name in ("proposal", "rule")]
    return ", ".join(type(part).__name__ for part in parts if part is not None) or run.kernel.label


def reference(name: str, num_rows: int) -> dict[str, Any]:
    """Means and standard deviations from all rows in float64, by importance sampling with the normal at the mode.

    It knows nothing of bounds, expansions or chains; only the mode is ours, and any normal would do.
    """
    import tallmc as tm
    from tallmc.control_variates import covariance_factor

    posterior, init = posterior_of(name, num_rows)
    found = tm.optimise.mode(posterior, init=init, progress=False)
    centre, factor = np.asarray(found.position, float), covariance_factor(np.asarray(found.hessian, float))
    assert factor is not None, "the posterior is flat in some direction"
    half = np.random.default_rng(1).normal(size=(PAIRS, len(centre)))
    white = np.stack([half, -half], axis=1).reshape(2 * PAIRS, -1)
    jax.config.update("jax_enable_x64", True)
    log_weights = _log_densities(MODELS[name].log_likelihood, posterior.data, centre + white @ factor.T)
    log_weights += np.sum(white**2, axis=1) / 2
    weights = np.exp(log_weights - log_weights.max())
    mean, sd = _moments(weights, white, factor)
    parts = [_moments(w, z, factor) for w, z in zip(np.split(weights, 10), np.split(white, 10), strict=True)]
    error = max(float(np.max(np.std([part[k] / sd for part in parts], axis=0, ddof=1))) / np.sqrt(10) for k in (0, 1))
    share = float(weights.sum() ** 2 / np.sum(weights**2) / len(weights))
    return {"mean": (centre + mean).tolist(), "sd": sd.tolist(), "error": error, "effective": share}


def _log_densities(log_likelihood: Callable, data: Any, positions: np.ndarray) -> np.ndarray:
    rows = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64) if x.dtype == np.float32 else jnp.asarray(x), data)

    @jax.jit
    def density(p, rows):
        return jnp.sum(jax.vmap(log_likelihood, (None, 0))(p, rows)) - 0.5 * jnp.sum(p**2)

    return np.array([float(density(p, rows)) for p in positions])


def _moments(weights: np.ndarray, white: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean less the normal's, and standard deviations, as differences from those of the normal."""
    excess = (weights / weights.mean() - 1)[:, None] * white
    mean = factor @ excess.mean(axis=0)
    second = factor @ (np.eye(white.shape[1]) + white.T @ excess / len(white)) @ factor.T
    return mean, np.sqrt(np.diag(second) - mean**2)


def line(name: str, found: dict[str, dict[str, Any]]) -> str:
    """One of the table of docs/benchmarks.md."""
    ours, other, exact = (found.get(task, {}) for task in TASKS)
    if "mean" not in ours or "mean" not in exact:
        return f"| {name} | not measured |"
    mean, sd = (np.asarray(exact[key]) for key in ("mean", "sd"))
    off = np.max(np.abs(np.asarray(ours["mean"]) - mean) / sd), np.max(np.abs(np.asarray(ours["sd"]) / sd - 1))
    rates = [one["ess"] / one["seconds"][1] if "ess" in one else np.nan for one in (ours, other)]
    cells = (
        name,
        ours["label"],
        f"{ours['rows']:.2f}",
        f"{ours.get('violations', np.nan):.0f}, {ours.get('outside', np.nan):.0f}",
        f"{off[0]:.3f} sd, {100 * off[1]:.1f} % ({exact['error']:.3f})",
        f"{ours['seconds'][0]:.1f} s, {ours['seconds'][1]:.1f} s",
        f"{rates[0]:,.0f}",
        f"{other.get('label', 'longer than ' + str(LONGEST) + ' s')}",
        f"{rates[1]:,.0f}",
        f"{rates[0] / rates[1]:.1f} x",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measures what is missing and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []])
    parser.add_argument("--rows", type=int, default=NUM_ROWS)
    parser.add_argument("--file", type=Path, default=Path("own_bounds.json"))
    parser.add_argument("--task", choices=TASKS)
    options = parser.parse_args()
    names = options.models or list(MODELS)
    if options.task:
        warnings.simplefilter("ignore")
        print(
            json.dumps(
                {task.__name__: task for task in (bounds, without, reference)}[options.task](names[0], options.rows)
            )
        )
        return
    kept: dict[str, dict[str, Any]] = json.loads(options.file.read_text()) if options.file.exists() else {}
    for name in names:
        for task in TASKS:
            if task in kept.setdefault(f"{name} {options.rows}", {}):
                continue
            command = [sys.executable, "-m", "benchmarks.own_bounds", name, "--task", task, "--rows", str(options.rows)]
            try:
                done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=LONGEST)
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
                print(f"{name}, {task}: {error}", file=sys.stderr)
                continue
            kept[f"{name} {options.rows}"][task] = json.loads(done.stdout.splitlines()[-1])
            options.file.write_text(json.dumps(kept, indent=1))
        print(line(name, kept[f"{name} {options.rows}"]), flush=True)


if __name__ == "__main__":
    main()
