"""Reversible jumps: inclusion probabilities by each rule, and a real selection from both ends."""

import time
import warnings

import jax
import numpy as np

import tallmc as tm
from benchmarks import datasets
from tallmc.posterior.at_zero import at_zero
from tallmc.run.mixing import mixing

NUM_ROWS, NUM_COLUMNS = 50_000, 50
# Effects in posterior standard deviations: five that no data could miss, three that it may.
EFFECTS = (60.0, 40.0, 25.0, 15.0, 8.0, 4.0, 3.5, 3.0)
# What rules can be given at temperature 1. MHMinibatch reads until its noise is below that of a logistic variable, which
# steps that change the log density by about one need all rows for; see docs/variable-selection.md.
RULES = {
    "Exact": lambda: tm.Exact(5000),
    "AustereMH(0.001)": lambda: tm.AustereMH(0.001, 1000),
    "AustereMH(0.01)": lambda: tm.AustereMH(0.01, 1000),
    "AustereMH(0.05)": lambda: tm.AustereMH(0.05, 1000),
    "MHMinibatch": lambda: tm.MHMinibatch(5000),
}


def run(num_samples: int = 30_000) -> list[tuple[str, str, str]]:
    """Figure, measured, wanted."""
    return [*likelihood(), *known_support(num_samples), *letor()]


def generated() -> tuple[tm.Posterior, dict[str, np.ndarray]]:
    """Columns of known effect, and the start at these."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((NUM_ROWS, NUM_COLUMNS), np.float32)
    beta = np.zeros(NUM_COLUMNS, np.float32)
    beta[: len(EFFECTS)] = np.asarray(EFFECTS) * 2 / np.sqrt(NUM_ROWS)
    y = (generator.random(NUM_ROWS) < 1 / (1 + np.exp(-X @ beta))).astype(np.float32)
    return tm.models.variable_selection(X, y, size_penalty=1.0), {"beta": beta, "gamma": beta != 0}


def known_support(num_samples: int) -> list[tuple[str, str, str]]:
    """Each rule's inclusion probabilities beside those of exact tests."""
    posterior, init = generated()
    found = at_zero(posterior.log_likelihood.link, posterior.rows)
    assert found is not None
    proposal = tm.ReversibleJump(2.4 / np.sqrt(found.bend), 4 / np.sqrt(found.bend))
    lines, exact = [], None
    for name, rule in RULES.items():
        began = time.perf_counter()
        kernel = tm.MetropolisHastings(proposal, rule())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = tm.sample(posterior, kernel, init=init, num_samples=num_samples, num_warmup=2000, progress=False)
        seconds = time.perf_counter() - began
        share = done.samples["gamma"].mean(axis=(0, 1))
        exact = share if exact is None else exact
        column = int(np.argmax(np.abs(share - exact)))
        error = np.sqrt(np.maximum(share * (1 - share), 1e-4) / mixing(done.samples["gamma"]).ess_bulk)
        spread = np.std(done.samples["beta"][..., 0])
        shown = ", ".join(f"{value:.3f}" for value in share[4:9])
        rows = done.stats["rows"].mean() / NUM_ROWS
        birth, accepted = done.stats["birth"], done.stats["accepted"]
        update = ~birth & ~done.stats["death"]
        lines += [
            (f"{name}: inclusion of columns 4 to 8", f"{shown} (Monte Carlo error up to {error.max():.3f})", ""),
            (f"{name}: largest distance from Exact", f"{abs(share - exact)[column]:.3f} (column {column})", "<= 0.05"),
            (
                f"{name}: rows a step, accepted births and updates, sd of column 0",
                f"{100 * rows:.0f} %, {accepted[birth].mean():.3f} and {accepted[update].mean():.2f}, {spread:.5f}",
                "",
            ),
            (f"{name}: steps a second", f"{done.num_chains * (num_samples + 2000) / seconds:,.0f}", ""),
        ]
    return lines


def letor(num_samples: int = 30_000) -> list[tuple[str, str, str]]:
    """Relevance of documents (LETOR 4.0), from one variable and from the mode, with the paper's settings."""
    if not datasets.available("letor4.npz"):
        return [("letor4", "data not here", "")]
    (X, y), (other, truth) = datasets.relevance()
    posterior = tm.models.variable_selection(X, y, size_penalty=1e-10)
    found = at_zero(posterior.log_likelihood.link, posterior.rows)
    assert found is not None
    best = np.arange(X.shape[1]) == np.argmax(found.gain)
    mode = tm.optimise.mode(tm.models.logistic_regression(X, y, prior_precision=0.01), progress=False).position
    starts = {
        "one variable": {"beta": np.where(best, found.slope / found.bend, 0).astype(np.float32), "gamma": best},
        "the mode": {"beta": np.asarray(mode), "gamma": np.ones(len(best), bool)},
    }
    lines = [
        ("letor4: test error at the mode, of the commoner class", f"{_error(mode, other, truth)}, {truth.mean():.3f}", "")
    ]
    for name, init in starts.items():
        for label, rule in (("Exact", tm.Exact(8000)), ("AustereMH(0.05)", tm.AustereMH(0.05, 1000))):
            kernel = tm.MetropolisHastings(tm.ReversibleJump(0.01, 0.1), rule)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                done = tm.sample(posterior, kernel, init=init, num_samples=num_samples, num_warmup=5000, progress=False)
            lines.append((f"letor4 from {name}, {label}", _of_letor(done, other, truth), ""))
    return lines


def _of_letor(done: tm.Run, X: np.ndarray, y: np.ndarray) -> str:
    sizes = done.samples["gamma"][:, -num_last(done) :].sum(axis=2)
    jumps = done.stats["birth"] | done.stats["death"]
    accepted = done.stats["accepted"]
    draws = done.samples["beta"][:, -num_last(done) :: 100].reshape(-1, X.shape[1])
    chance = np.mean(1 / (1 + np.exp(-draws @ X.T)), axis=0)
    return (
        f"{sizes.mean():.1f} columns ({', '.join(f'{size:.1f}' for size in sizes.mean(axis=1))} by chain), test error "
        f"{np.mean((chance > 0.5) != y):.3f}, births and deaths accepted {accepted[jumps].mean():.4f}, updates "
        f"{accepted[~jumps].mean():.2f}, rows a step {100 * done.stats['rows'].mean() / done.posterior.num_rows:.0f} %"
    )


def num_last(done: tm.Run) -> int:
    """The second half of the draws."""
    return done.num_draws // 2


def _error(beta: np.ndarray, X: np.ndarray, y: np.ndarray) -> str:
    return f"{np.mean((X @ beta > 0) != y):.3f}"


def likelihood(num_calls: int = 20) -> list[tuple[str, str, str]]:
    """A plain product with all columns, beside one with the eight that are in, gathered."""
    lines = []
    for num_columns in (50, 300):
        for num_rows in (1000, 50_000):
            generator = np.random.default_rng(0)
            X = jax.device_put(generator.standard_normal((num_rows, num_columns), np.float32))
            gamma = np.arange(num_columns) < 8
            beta = jax.device_put(np.where(gamma, 0.1, 0).astype(np.float32))
            shown = {name: f"{_microseconds(product, X, beta, num_calls):,.0f}" for name, product in PRODUCTS.items()}
            lines.append(
                (
                    f"microseconds for log ratios of {num_rows:,} rows, 8 of {num_columns} columns in",
                    ", ".join(f"{name} {value}" for name, value in shown.items()),
                    "",
                )
            )
    return lines


def _plain(X: jax.Array, beta: jax.Array) -> jax.Array:
    return X @ beta


def _gathered(X: jax.Array, beta: jax.Array) -> jax.Array:
    columns = jax.numpy.flatnonzero(beta, size=8, fill_value=0)
    return jax.vmap(lambda x: x[columns] @ beta[columns])(X)


PRODUCTS = {"all columns": _plain, "gathered": _gathered}


def _microseconds(product, X: jax.Array, beta: jax.Array, num_calls: int) -> float:
    """The shortest of many calls: other work on the machine only adds to it."""

    def ratio(X, beta):
        there, here = (jax.nn.softplus(product(X, at)) for at in (beta * 1.01, beta))
        return jax.numpy.sum(there - here)

    compiled, taken = jax.jit(ratio), []
    for _ in range(num_calls + 1):
        began = time.perf_counter()
        compiled(X, beta).block_until_ready()
        taken.append(time.perf_counter() - began)
    return 1e6 * min(taken[1:])
