"""A call of `tm.sample` as a whole: few programs, kept between processes, no copies of the data, and known times."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.feed.alias import AliasTable
from tallmc.numerics.memory import must_fit
from tallmc.posterior import resident

FIRST_CALL = """
import json, sys
import jax, jax.monitoring, numpy as np
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.append(event) if event.endswith("backend_compile_duration") else None
)
import tallmc as tm
from tallmc.numerics.programs import programs_ledger
X, y, _ = tm.models.generate_logistic(5000, 3)
if sys.argv[1] == "ready":
    posterior = tm.models.logistic_regression(X, y)
else:
    def log_likelihood(position, row):
        z = row["x"] @ position
        return row["y"] * z - jax.numpy.logaddexp(0, z)
    posterior = tm.Posterior(log_likelihood, {"x": X, "y": y}, lambda p: -0.5 * jax.numpy.sum(p**2))
before = len(compiled)
run = tm.sample(posterior, num_samples=500, num_warmup=500, progress=False)
first = len(compiled) - before
tm.sample(posterior, num_samples=500, num_warmup=500, progress=False, rng_key=1)
print(json.dumps({
    "first": first, "later": len(compiled) - before - first, "ours": programs_ledger().compiled,
    "loaded": programs_ledger().loaded, "draws": float(np.sum(np.asarray(run.samples, float))), "timing": run.timing,
}))
"""


def first_call(kind, cache):
    environment = os.environ | {"TALLMC_CACHE": str(cache)}
    command = [sys.executable, "-c", FIRST_CALL, kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["ready", "own"])
def test_a_cold_call_compiles_few_programs_and_a_warm_one_none(kind, tmp_path):
    cold = first_call(kind, tmp_path)
    assert cold["first"] <= 25
    assert cold["later"] == 0
    warm = first_call(kind, tmp_path)
    assert warm["ours"] == 0
    assert warm["loaded"] == cold["ours"]
    assert warm["draws"] == cold["draws"]
    assert warm["timing"]["compiling"] < cold["timing"]["compiling"]


def test_the_phases_of_a_call_add_up():
    X, y, _ = tm.models.generate_logistic(5000, 3)
    run = tm.sample(tm.models.logistic_regression(X, y), num_samples=500, num_warmup=500, progress=False)
    phases = {name: seconds for name, seconds in run.timing.items() if name != "total"}
    assert set(phases) == {"reading", "mode", "expansion", "pilot", "compiling", "warmup", "sampling", "audit"}
    assert all(seconds >= 0 for seconds in phases.values())
    assert 0.7 * run.timing["total"] < sum(phases.values()) <= run.timing["total"]
    assert "time  " in str(run.summary())
    assert "compiling" in str(run.summary()) or "warmup" in str(run.summary())


@pytest.mark.parametrize("columns", [3, 4, 8, 16, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
@pytest.mark.parametrize("offset", [0, 4, 12])
def test_rows_are_read_where_they_lie(columns, dtype, offset, monkeypatch):
    """Whatever the address and the length of a row: the rows are those of a copy, and none is made without need."""
    monkeypatch.setattr(resident, "_LARGE", 1)
    if jax.default_backend() != "cpu":
        pytest.skip("only a CPU reads the caller's memory")
    rows, width = 500, np.dtype(dtype).itemsize
    memory = resident.aligned_empty((rows * columns * width + 64,), np.dtype(np.uint8))
    data = memory[offset * 4 : offset * 4 + rows * columns * width].view(dtype).reshape(rows, columns)
    data[:] = np.random.default_rng(0).integers(-100, 100, data.shape)
    (column,) = jax.tree.leaves(
        resident.resident({"x": data}, jax.devices()[0]), is_leaf=lambda leaf: isinstance(leaf, resident.Column)
    )
    indices = jnp.asarray([0, 1, 2, 7, 15, 16, 63, 64, 499, 498, 0], jnp.int32)
    np.testing.assert_array_equal(column.take(indices), data[np.asarray(indices)])
    for start in (0, 1, 13, 200, 436):
        np.testing.assert_array_equal(column.block(jnp.int32(start), 64), data[start : start + 64])
    address, row = data.ctypes.data, data.strides[0]
    begins = any((address + first * row) % 64 == 0 for first in range(64)) or (row % 16 == 0 and address % 16 == 0)
    assert begins == (address <= column.units.unsafe_buffer_pointer() < address + data.nbytes)


MEMORY = """
import numpy as np, tallmc as tm
def resident():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024
X, y, _ = tm.models.generate_logistic(1_000_000, 50)
posterior = tm.models.logistic_regression(X, y)
tm.sample(posterior, progress=False)
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before = resident()
tm.sample(posterior, progress=False, rng_key=1)
print((resident() - before) / (X.nbytes + y.nbytes))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="peak memory can be reset on Linux only")
def test_a_call_takes_little_memory_beside_the_data():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) < 0.3


def test_an_alias_table_draws_as_the_weights_say():
    generator = np.random.default_rng(0)
    for weights in (
        generator.chisquare(3, 300_000) ** 2,
        np.repeat([0.0, 1.0, 1e-6, 50.0], 70_000),
        np.ones(5),
        np.array([3.0]),
        generator.random(1001).astype(np.float32),
    ):
        table = AliasTable.of(weights)
        own, other = np.asarray(table.own_share, float), np.asarray(table.other)
        size = len(weights)
        chance = (own + np.bincount(other, 1 - own, size)) / size
        np.testing.assert_allclose(chance, weights / weights.sum(dtype=float), rtol=1e-5, atol=1e-12)


def test_an_audit_may_be_cut_short():
    """It then rests on whole passes, and says on how many steps."""
    X, y, _ = tm.models.generate_logistic(5000, 3)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.03), tm.AustereMH(0.05))
    run = tm.sample(
        tm.models.logistic_regression(X, y), kernel, init=np.zeros(3), num_samples=200, num_warmup=50, progress=False
    )
    short, long = tm.audit(run, seconds=0.0), tm.audit(run)
    assert len(short.accepted) == 8
    assert short.rows_read == 8 * 5000
    assert len(long.accepted) == 64
    assert "8 steps" in str(short)
    np.testing.assert_array_equal(short.log_ratio, long.log_ratio[:8])


def test_memory_that_is_short_is_named_with_what_helps():
    full = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 80GiB.\nmore")
    with (
        pytest.raises(MemoryError, match=r"the data did not fit .*80GiB\); use fewer rows"),
        must_fit("the data", "use fewer rows"),
    ):
        raise full
    other = jax.errors.JaxRuntimeError("INTERNAL: something else")
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"), must_fit("the data", "use fewer rows"):
        raise other
