"""Reversible jumps: inclusion probabilities by each rule, and a real selection from both ends."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

import tallmc as tm
from benchmarks import datasets, jumps_reference
from tallmc.posterior.at_zero import at_zero
from tallmc.run.mixing import mixing

NUM_ROWS, NUM_COLUMNS = 50_000, 50
# Effects in posterior standard deviations: five that no data could miss, three that it may.
EFFECTS = (60.0, 40.0, 25.0, 15.0, 8.0, 4.0, 3.5, 3.0)
# Each with and without an expansion of the log likelihood at the mode of all columns, and how many draws of each chain:
# without one, a step reads so many rows that there is no time for more.
SHORT, LONG = 10_000, 40_000
RULES = {
    "Exact": (lambda: tm.Exact(5000), False, SHORT),
    "AustereMH(0.01)": (lambda: tm.AustereMH(0.01, 1000), False, SHORT),
    "AustereMH(0.05)": (lambda: tm.AustereMH(0.05, 1000), False, SHORT),
    "MHMinibatch": (lambda: tm.MHMinibatch(5000), False, SHORT),
    "AustereMH(0.01), Taylor(2)": (lambda: tm.AustereMH(0.01, 500), True, LONG),
    "AustereMH(0.05), Taylor(2)": (lambda: tm.AustereMH(0.05, 500), True, LONG),
    "MHMinibatch, Taylor(2)": (lambda: tm.MHMinibatch(500), True, LONG),
}


def run() -> Iterator[tuple[str, str, str]]:
    """Figure, measured, wanted."""
    yield from likelihood()
    yield from known_support()
    yield from letor()


def generated() -> tuple[tm.Posterior, dict[str, np.ndarray]]:
    """Columns of known effect, and the start at these."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((NUM_ROWS, NUM_COLUMNS), np.float32)
    beta = np.zeros(NUM_COLUMNS, np.float32)
    beta[: len(EFFECTS)] = np.asarray(EFFECTS) * 2 / np.sqrt(NUM_ROWS)
    y = (generator.random(NUM_ROWS) < 1 / (1 + np.exp(-X @ beta))).astype(np.float32)
    return tm.models.variable_selection(X, y, size_penalty=1.0), {"beta": beta, "gamma": beta != 0}


def known_support(names: Sequence[str] = tuple(RULES)) -> Iterator[tuple[str, str, str]]:
    """Each rule's inclusion probabilities beside those of the normal approximation, which is all but exact here."""
    posterior, init = generated()
    found = at_zero(posterior.log_likelihood.link, posterior.rows)
    assert found is not None
    proposal, wanted = (
        tm.ReversibleJump(2.4 / np.sqrt(found.bend), 4 / np.sqrt(found.bend)),
        jumps_reference.inclusion(posterior, init),
    )
    yield "normal approximation: inclusion of columns 4 to 8", _shown(wanted[4:9]), ""
    for name in names:
        rule, expanded, num_samples = RULES[name]
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = tm.sample(
                posterior,
                tm.MetropolisHastings(proposal, rule()),
                init=init,
                num_samples=num_samples,
                num_warmup=2000,
                control_variate=tm.Taylor(2) if expanded else None,
                progress=False,
            )
        yield _of_known(name, done, wanted, time.perf_counter() - began)


def _of_known(name: str, done: tm.Run, wanted: np.ndarray, seconds: float) -> tuple[str, str, str]:
    share = done.samples["gamma"].mean(axis=(0, 1))
    column = int(np.argmax(np.abs(share - wanted)))
    error = np.sqrt(wanted * (1 - wanted) / mixing(done.samples["gamma"]).ess_bulk)
    birth, death, accepted = (done.stats[part] for part in ("birth", "death", "accepted"))
    rows, update = done.stats["rows"], ~birth & ~death
    return (
        f"{name}: inclusion of columns 4 to 8; largest distance",
        f"{_shown(share[4:9])}; {abs(share - wanted)[column]:.3f} (column {column}, "
        f"Monte Carlo error {error.max():.3f}); "
        f"rows a step {rows.mean():,.0f} (births {rows[birth].mean():,.0f}, updates {rows[update].mean():,.0f}), "
        f"accepted births {accepted[birth].mean():.3f}, updates {accepted[update].mean():.2f}; "
        f"{rows.size / seconds:,.0f} draws a second of the call",
        "<= 0.05",
    )


def _shown(shares: np.ndarray) -> str:
    return ", ".join(f"{share:.3f}" for share in shares)


def letor(num_samples: int = 3_000) -> Iterator[tuple[str, str, str]]:
    """Relevance of documents (LETOR 4.0), from one variable and from the mode, with the paper's settings."""
    if not datasets.available("letor4.npz"):
        yield "letor4", "data not here", ""
        return
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
    at_mode = f"{_error(mode, other, truth)}, {truth.mean():.3f}"
    yield "letor4: test error at the mode, and of the commoner class", at_mode, ""
    for name, init in starts.items():
        for label, rule in (("Exact", tm.Exact(8000)), ("AustereMH(0.05)", tm.AustereMH(0.05, 1000))):
            kernel = tm.MetropolisHastings(tm.ReversibleJump(0.01, 0.1), rule)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                done = tm.sample(posterior, kernel, init=init, num_samples=num_samples, num_warmup=5000, progress=False)
            yield f"letor4 from {name}, {label}", _of_letor(done, other, truth), ""


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


def _microseconds(product: Callable, X: jax.Array, beta: jax.Array, num_calls: int) -> float:
    """The shortest of many calls: other work on the machine only adds to it."""

    def ratio(X: jax.Array, beta: jax.Array) -> jax.Array:
        there, here = (jax.nn.softplus(product(X, at)) for at in (beta * 1.01, beta))
        return jax.numpy.sum(there - here)

    compiled, taken = jax.jit(ratio), []
    for _ in range(num_calls + 1):
        began = time.perf_counter()
        compiled(X, beta).block_until_ready()
        taken.append(time.perf_counter() - began)
    return 1e6 * min(taken[1:])
