"""What it costs that draws survive: the share of a run that goes into its store, at one checkpoint every ten seconds.

`python -m benchmarks stores` samples for half a minute with a store, by a chain of cheap steps (many draws a second, so
that most is written) and by steps on all rows (few draws, so that checkpoints are all there is). Time in the store is
taken in the same process as the time around it, so that it does not matter what else the machine does; the ratio of two
runs, with a store and without, stands beside it.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tallmc as tm
from tallmc.run.store import Store

COLUMNS = ("figure", "measured", "wanted")
SECONDS, NUM_CHAINS = 32.0, 4
SET_UP = ("reading", "mode", "expansion", "pilot", "compiling", "warmup")


class Clock:
    """Adds up the time that is spent in methods of a class."""

    def __init__(self, kind: type, *names: str):
        self.kind, self.spent, self.calls = kind, 0.0, dict.fromkeys(names, 0)
        self.originals: dict[str, Callable[..., Any]] = {name: getattr(kind, name) for name in names}

    def __enter__(self) -> "Clock":
        for name, original in self.originals.items():
            setattr(self.kind, name, self.timed(name, original))
        return self

    def __exit__(self, *_: object) -> None:
        for name, original in self.originals.items():
            setattr(self.kind, name, original)

    def timed(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*args, **options)
            finally:
                self.spent += time.perf_counter() - began
                self.calls[name] += 1

        return method


def cases() -> dict[str, tuple[tm.Posterior, Any]]:
    X, y, _ = tm.models.generate_logistic(200_000, 20)
    regression = tm.models.logistic_regression(X, y)
    rows = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    mean = tm.Posterior(lambda position, row: -0.5 * (row - position) ** 2, rows, temperature=1000.0)
    return {
        "cheap steps": (mean, tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch(50))),
        "exact steps, 20 columns, chosen by itself": (regression, None),
        "NUTS on 200,000 rows": (regression, tm.NUTS()),
    }


def run() -> Iterator[tuple[str, str, str]]:
    """Some lines a case."""
    warnings.simplefilter("ignore")
    for name, (posterior, kernel) in cases().items():
        options: dict[str, Any] = {"num_chains": NUM_CHAINS, "num_warmup": 200, "progress": False}
        if name == "cheap steps":
            options["init"] = 0.0
        trial = tm.sample(posterior, kernel, num_samples=2_000, **options)
        again = tm.sample(posterior, kernel, num_samples=2_000, **options)
        count = max(200, int(SECONDS * 2_000 / max(min(trial.seconds, again.seconds), 1e-3)))
        with tempfile.TemporaryDirectory() as folder:
            yield from with_store(name, posterior, kernel, Path(folder) / "run.zarr", {**options, "num_samples": count})


def with_store(
    name: str, posterior: tm.Posterior, kernel: Any, path: Path, options: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    with Clock(Store, "checkpoint", "append", "settled") as clock:
        kept = tm.sample(posterior, kernel, store=path, **options)
    share = clock.spent / kept.seconds
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    rate = kept.num_draws * NUM_CHAINS / kept.seconds
    yield (
        f"{name}: share of the run that goes into its store",
        f"{100 * share:.2f} % ({clock.calls['checkpoint']} checkpoints in {kept.seconds:.0f} s; {rate:,.0f} draws/s, "
        f"{size / 1e6:,.0f} MB written)",
        "< 3 %",
    )
    plain = tm.sample(posterior, kernel, **options)
    yield f"{name}: seconds with a store over seconds without", f"{kept.seconds / plain.seconds:.3f}", "1"
    resumed = tm.sample(posterior, kernel, store=path, resume=True, **options)
    same = np.array_equal(np.asarray(resumed.samples), np.asarray(plain.samples))
    again, first = (sum(found.timing[phase] for phase in SET_UP) for found in (resumed, plain))
    yield (
        f"{name}: set-up when a store is resumed, against that of a new run",
        f"{again:.2f} s against {first:.2f} s; draws {'the same' if same else 'DIFFER'}",
        "the same draws",
    )
