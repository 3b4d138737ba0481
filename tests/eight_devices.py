"""What happens on eight devices, which a CPU can pretend to have: `python -m tests.eight_devices [CHECK ...]`.

JAX must be told of them before it starts, so tests run this in a process of its own. It prints a line of JSON: for each
check what was found.
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tallmc.feed import IndexedFeed, InMemoryFeed, WeightedFeed
from tallmc.numerics import programs
from tallmc.numerics.flat import flatten
from tallmc.posterior.passes import Span, likelihood_sums
from tallmc.posterior.rows_on_mesh import RowsOnMesh
from tallmc.setup.meshes import as_mesh

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

NUM_ROWS = 10_007  # a prime: no number of devices divides it


def log_likelihood(position, row):
    return -0.5 * (row["y"] - position[0] - position[1] * row["x"]) ** 2


def data():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, NUM_ROWS)).astype(np.float32)
    return {"x": x, "y": y + x}


POSTERIOR = tm.Posterior(log_likelihood, data(), lambda position: -0.5 * jnp.sum(position**2), temperature=50.0)
START = np.asarray([0.0, 1.0], np.float32)
PLAIN = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch(batch_size=100))
COLD = POSTERIOR.at_temperature(1.0)
SETTINGS = {"num_samples": 40, "num_warmup": 10, "num_chains": 3, "progress": False}


def draws(posterior=POSTERIOR, kernel=PLAIN, **others):
    return tm.sample(posterior, kernel, **{"driver": tm.Together(), **SETTINGS, **others})


def samples():
    """The draws of one device, of eight, and of eight again; and what a round on eight sends around."""
    runs = [draws(init=START, mesh=mesh) for mesh in (None, 8, 8)]
    sent = messages()
    extended, longer = draws(init=START, mesh=8, num_samples=20).extend(20), runs[0]
    return {
        "same": [bool(np.array_equal(runs[0].samples, run.samples)) for run in runs[1:]],
        "rows": bool(np.array_equal(runs[0].stats["rows"], runs[1].stats["rows"])),
        "moved": float(np.mean(runs[1].stats["accepted"])),
        "extended": bool(np.array_equal(extended.samples, longer.samples)),
        "messages": sent,
    }


def messages():
    """What devices send each other in a round of the newest program of rounds, by its compiled text."""
    text = [entry.compiled.as_text() for key, entry in programs._table.items() if is_rounds(key, 8)][-1]
    found = [line.split(" = ")[1].split("{")[0] for line in text.splitlines() if " all-reduce(" in line]
    return [*found, *(name for name in ("all-gather(", "all-to-all(", "collective-permute(") if name in text)]


def is_rounds(key, devices):
    """Whether a program is that of rounds on so many devices."""
    places = [part[1] for part in key[2] if isinstance(part, tuple) and len(part) == 2]
    return key[0].name == "_rounds" and any(len(getattr(place, "device_set", ())) == devices for place in places)


def windows():
    """What three tests see of their rows, from one device and from eight, by each feed, in each of its orders."""
    rows, keys = POSTERIOR.rows, jax.random.split(jax.random.key(0), 3)
    weights = np.random.default_rng(1).exponential(size=NUM_ROWS)
    feeds = {
        "windows": InMemoryFeed(NUM_ROWS, 10),
        "runs": InMemoryFeed(NUM_ROWS, 24),
        "all rows": InMemoryFeed(NUM_ROWS, 640, every_row=True),
        "single rows": IndexedFeed(NUM_ROWS, 20),
        "by weight": WeightedFeed(NUM_ROWS, 20, weights),
    }
    found = {name: same_windows(feed, rows, keys, 8) for name, feed in feeds.items()}
    return found | {"runs, of three": same_windows(feeds["runs"], rows, keys, 3)}


def same_windows(feed, rows, keys, count):
    """Whether values, numbers of rows and scales are the same for the first rounds of each test, the last included."""
    spread = RowsOnMesh(rows, as_mesh(count))

    @jax.jit
    def look(feed, stage, keys):
        def of_test(key):
            def one(cursor, _):
                window = feed.read(stage, cursor, jnp.uint32(0))
                values = window.map(lambda some: jnp.stack([some["x"], some["y"]], 1).sum(1))
                return feed.advance(cursor), (values, window.count)

            return jax.lax.scan(one, feed.start(key), length=min(feed.num_windows, 20))[1]

        return jax.vmap(of_test)(keys)

    (one, counts), (several, others) = (look(feed, feed.arrange(place, 3), keys) for place in (rows, spread))
    return bool(np.array_equal(one, several) and np.array_equal(counts, others) and np.ptp(one) > 0)


def passes():
    """How far sums over all rows, and over some in random order, are from those of one device; relative."""
    flat, unravel = flatten(np.asarray([0.3, 0.5], np.float32))
    words = np.arange(6, dtype=np.uint32)
    spans = {"all": None, "some": Span(100, 3000), "in random order": Span(100, 3000, words)}
    found = {}
    for name, span in spans.items():
        places = POSTERIOR.rows, RowsOnMesh(POSTERIOR.rows, as_mesh(8))
        one, eight = (
            likelihood_sums(POSTERIOR.model, unravel, flat, rows, curvature=True, span=span) for rows in places
        )
        found[name] = max(float(np.max(np.abs(a - b) / np.abs(a))) for a, b in zip(one, eight, strict=True))
    return found


def refusals():
    """What is said of calls that cannot be."""
    few = tm.Posterior(log_likelihood, jax.tree.map(lambda leaf: leaf[:5], data()))
    wrong = {
        "few rows": lambda: draws(few, init=np.zeros(2), mesh=8),
        "driver": lambda: draws(init=np.zeros(2), mesh=8, driver=tm.ChainByChain()),
        "too many": lambda: draws(init=np.zeros(2), mesh=9),
        "no mesh": lambda: draws(init=np.zeros(2), mesh="eight"),
        "all rows": lambda: draws(kernel=tm.NUTS(), mesh=8),
        "gradients of rows": lambda: draws(
            kernel=tm.MetropolisHastings(tm.SGLD(1e-4, batch_size=50), tm.MHMinibatch()), init=np.zeros(2), mesh=8
        ),
    }
    return {name: said(call) for name, call in wrong.items()}


def said(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


def kernels():
    """How far draws are from those of one device, by rules that read otherwise; with set-up of their own."""
    around = tm.CrankNicolson(np.asarray([0.0, 1.0]), np.eye(2) / 100, beta=0.5)
    calls = {
        "exact": (
            POSTERIOR,
            tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact(2048)),
            {"init": START},
        ),
        "sequential": (
            POSTERIOR,
            tm.MetropolisHastings(tm.RandomWalk(0.1), tm.AustereMH(batch_size=400)),
            {"init": START},
        ),
        "subsampled": (COLD, tm.MetropolisHastings(around, tm.MHSS()), {"init": START}),
        "chosen": (COLD, None, {"init": START}),
    }
    found = {}
    for name, (posterior, kernel, others) in calls.items():
        one, eight = (draws(posterior, kernel, mesh=mesh, **others) for mesh in (None, 8))
        widest = np.std(np.asarray(one.samples, float), axis=(0, 1)).max()
        found[f"{name}: messages"] = messages()
        found[name] = float(np.max(np.abs(np.asarray(one.samples) - np.asarray(eight.samples))) / widest)
    return found


CHECKS = {check.__name__: check for check in (windows, passes, refusals, samples, kernels)}

if __name__ == "__main__":
    print(json.dumps({name: CHECKS[name]() for name in sys.argv[1:]}))
