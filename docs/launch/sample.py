"""One of several processes that sample one posterior together; the same file runs in all of them.

    python sample.py DATA STORE

DATA is a folder with a file of rows for each process, part-0.npz, part-1.npz and so on, with arrays x and y. STORE is
the folder that draws are written to; all processes must see it.
"""

import sys

import jax

jax.distributed.initialize()  # under SLURM, Open MPI and on cloud TPUs it finds out by itself; else see below

import numpy as np  # noqa: E402

import tallmc as tm  # noqa: E402


def main(data: str, store: str) -> None:
    """Samples a logistic regression of the rows in all parts."""
    with np.load(f"{data}/part-{jax.process_index()}.npz") as part:
        posterior = tm.models.logistic_regression(part["x"], part["y"])
    run = tm.sample(posterior, store=store, resume=True, progress=False)  # all devices of all processes
    if jax.process_index() == 0:
        print(run)


if __name__ == "__main__":
    main(*sys.argv[1:3])
