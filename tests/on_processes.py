"""One of several processes that sample together: `python -m tests.on_processes RANK SIZE PORT DRAWS NUMBER [STORE]`.

It makes its own rows and no others, and writes the draws that come of all of them to files that begin with DRAWS.
"""

import sys

import jax
import numpy as np

import tallmc as tm

NUM_ROWS, NUM_SHARES = 20_003, 12  # shares can be dealt out to 1, 2, 3 or 4 processes


def log_likelihood(position, row):
    return -0.5 * (row["y"] - position[0] - position[1] * row["x"]) ** 2


def share(number):
    """A part of the rows, made from its number alone."""
    count = NUM_ROWS // NUM_SHARES + (number == 0) * (NUM_ROWS % NUM_SHARES)
    x, y = np.random.default_rng(number).normal(size=(2, count)).astype(np.float32)
    return {"x": x, "y": y + x}


def sample(rank, size, num_samples, store=None):
    own = [share(number) for number in range(rank * NUM_SHARES // size, (rank + 1) * NUM_SHARES // size)]
    rows = {name: np.concatenate([part[name] for part in own]) for name in ("x", "y")}
    posterior = tm.Posterior(log_likelihood, rows, temperature=50.0)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch(batch_size=100))
    return tm.sample(
        posterior,
        kernel,
        init=np.zeros(2, np.float32),
        num_samples=num_samples,
        num_warmup=10,
        num_chains=2,
        store=store,
        resume=store is not None,
        driver=tm.Together(rounds=64),
        progress=False,
    )


if __name__ == "__main__":
    rank, size, port = map(int, sys.argv[1:4])
    if size > 1:
        jax.distributed.initialize(
            f"localhost:{port}", size, rank, heartbeat_timeout_seconds=10, shutdown_timeout_seconds=10
        )
    if len(sys.argv) > 6:
        from tallmc.run import store as stores

        stores._SECONDS_BETWEEN, stores._SHARE = 0.2, 1.0  # checkpoints come often
    run = sample(rank, size, int(sys.argv[5]), *sys.argv[6:])
    np.save(f"{sys.argv[4]}-{rank}.npy", np.asarray(run.samples))
    print(run.posterior.num_rows, len(run.posterior.rows.own.all()["x"]) if size > 1 else NUM_ROWS, flush=True)
