"""`import tallmc` loads what every session needs: JAX and Equinox. Others wait for the call that needs them."""

import os
import subprocess
import sys

import pytest

HEAVY = {
    "arviz_base",
    "arviz_plots",
    "arviz_stats",
    "blackjax",
    "formulaic",
    "fsspec",
    "matplotlib",
    "narwhals",
    "numpyro",
    "optax",
    "pandas",
    "pyarrow",
    "pymc",
    "rich",
    "scipy",
    "sklearn",
    "typer",
    "xarray",
    "zarr",
}
# Of the processor's time, which other programs hardly change. Measured: 1.6, or 1.9 where Python keeps no bytecode;
# 4 with all of the above. Equinox alone is 1.3.
LARGEST_RATIO = 2.5


def fresh_python(code, **environment):
    """What a new interpreter prints."""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert not found.returncode, found.stderr
    return found.stdout


def loaded_by(module):
    listed = fresh_python(f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})")
    return set(listed.split())


def test_no_heavy_library_is_loaded():
    assert not loaded_by("tallmc") & HEAVY
    assert loaded_by("pandas") & HEAVY  # otherwise the line above would pass on anything


def test_nothing_is_computed():
    """Any JAX program, and any array, would start the backend; here there is none to start."""
    fresh_python("import tallmc", JAX_PLATFORMS="none_such")
    with pytest.raises(AssertionError, match="none_such"):
        fresh_python("import jax.numpy as jnp; jnp.zeros(1)", JAX_PLATFORMS="none_such")


def test_a_run_ends_without_what_only_a_summary_needs():
    code = """
import sys, jax.numpy as jnp, tallmc as tm
posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, jnp.linspace(-2.0, 2.0, 1000))
kernel = tm.MetropolisHastings(tm.RandomWalk(0.05), tm.Exact())
tm.sample(posterior, kernel, init=0.0, num_samples=1000, progress=False).doubts
print(*{name.partition('.')[0] for name in sys.modules})
"""
    assert not set(fresh_python(code).split()) & HEAVY - {"scipy"}


def test_it_takes_little_longer_than_jax():
    def seconds(module):
        return float(fresh_python(f"import {module}, time; print(time.process_time())"))

    pairs = [(seconds("tallmc"), seconds("jax")) for _ in range(3)]
    ours, jax = (min(times) for times in zip(*pairs, strict=True))
    assert ours < LARGEST_RATIO * jax, f"{ours:.2f} s against {jax:.2f} s"
