"""A run that was saved is the run, and goes on as if nothing had happened."""

import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tests.registry import real

DRAWS = {"num_samples": 40, "num_warmup": 30, "num_chains": 2, "progress": False}


class Place(NamedTuple):
    mean: jax.Array
    log_precision: jax.Array


def log_likelihood(place, row):
    return (
        -0.5 * (row["y"] - place.mean[0]) ** 2 * jnp.exp(place.log_precision["all"]) + 0.5 * place.log_precision["all"]
    )


def own_posterior(likelihood=log_likelihood, shift=0.0):
    rows = np.asarray(real(np.random.default_rng(0).normal(1.0, 2.0, size=3001))) + np.asarray(real(shift))
    return tm.Posterior(likelihood, {"y": rows}, temperature=60.0)


INIT = Place(np.zeros(1), {"all": np.zeros(())})
WALK = tm.RandomWalk(0.2)


def regression():
    X, y, _ = tm.models.generate_logistic(3000, 3)
    return tm.models.logistic_regression(X, y)


CASES = {
    "own likelihood": lambda n: tm.sample(
        own_posterior(), tm.MetropolisHastings(WALK, tm.MHMinibatch(50)), init=INIT, **DRAWS | {"num_samples": n}
    ),
    "composite": lambda n: tm.sample(
        own_posterior(),
        tm.Cycle([tm.MetropolisHastings(WALK, tm.Exact()), tm.MetropolisHastings(WALK, tm.AustereMH(0.05, 100))]),
        init=INIT,
        **DRAWS | {"num_samples": n},
    ),
    "automatic": lambda n: tm.sample(regression(), **DRAWS | {"num_samples": n}),
}


def assert_same(one, other):
    assert jax.tree.structure(one.samples) == jax.tree.structure(other.samples)
    jax.tree.map(np.testing.assert_array_equal, one.samples, other.samples)
    for name in one.stats:
        np.testing.assert_array_equal(one.stats[name], other.stats[name])
    jax.tree.map(np.testing.assert_array_equal, one.step_size, other.step_size)


@pytest.mark.parametrize("name", CASES)
def test_a_saved_run_comes_back_and_goes_on(name, tmp_path):
    run = CASES[name](40)
    run.save(tmp_path / "run.zarr")
    again = tm.load(tmp_path / "run.zarr")
    assert_same(run, again)
    assert (again.choices, again.doubts, again.setup_rows) == (run.choices, run.doubts, run.setup_rows)
    assert str(again.audit) == str(run.audit)
    assert str(again.summary()) == str(run.summary())
    assert_same(CASES[name](65), again.extend(25, progress=False))


def test_another_process_takes_the_run_up(tmp_path):
    """A fresh interpreter has no compiled code and no objects of this one: all it needs is in the folder."""
    run = CASES["automatic"](40)
    run.save(tmp_path / "run.zarr")
    code = (
        "import sys, tallmc as tm; run = tm.load(sys.argv[1]).extend(20, progress=False); run.save(sys.argv[1]); "
        "print(run.num_draws)"
    )
    environment = {**os.environ, "JAX_ENABLE_X64": str(int(jax.config.jax_enable_x64))}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, tmp_path / "run.zarr"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.stdout.strip() == "60", done.stderr
    assert_same(CASES["automatic"](60), tm.load(tmp_path / "run.zarr"))


def test_a_lambda_is_not_saved_and_the_message_says_what_to_do(tmp_path):
    posterior = own_posterior(lambda place, row: log_likelihood(place, row))
    run = tm.sample(posterior, tm.MetropolisHastings(WALK, tm.MHMinibatch(50)), init=INIT, **DRAWS)
    run.save(tmp_path / "run")
    again = tm.load(tmp_path / "run")
    assert_same(run, again)
    with pytest.raises(ValueError, match=r"tm\.load\(path, posterior\)"):
        again.extend(5)
    assert_same(run.extend(5, progress=False), tm.load(tmp_path / "run", posterior).extend(5, progress=False))


def test_rows_may_stay_behind_and_others_are_refused(tmp_path):
    run = CASES["own likelihood"](40)
    run.save(tmp_path / "with", rows=True)
    run.save(tmp_path / "without", rows=False)
    assert sum(f.stat().st_size for f in (tmp_path / "without").rglob("*")) < sum(
        f.stat().st_size for f in (tmp_path / "with").rglob("*")
    )
    without = tm.load(tmp_path / "without")
    assert_same(run, without)
    with pytest.raises(ValueError, match="without its rows"):
        without.extend(5)
    with pytest.raises(ValueError, match="other rows"):
        tm.load(tmp_path / "without", own_posterior(shift=1e-3))
    with pytest.raises(ValueError, match="temperature"):
        tm.load(tmp_path / "without", own_posterior().at_temperature(50.0))
    assert_same(run.extend(5, progress=False), tm.load(tmp_path / "without", own_posterior()).extend(5, progress=False))


def test_saving_replaces_a_run_and_nothing_else(tmp_path):
    run = CASES["own likelihood"](40)
    (tmp_path / "notes").mkdir()
    with pytest.raises(ValueError, match="is not a saved run"):
        run.save(tmp_path / "notes")
    with pytest.raises(ValueError, match="is not a saved run"):
        tm.load(tmp_path / "notes")
    run.save(tmp_path / "run")
    run.extend(5, progress=False).save(tmp_path / "run")
    assert tm.load(tmp_path / "run").num_draws == 45
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "run"]
