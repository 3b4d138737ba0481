"""Draws that must not change: a hash of each of many runs, recorded before a restructuring and checked after it.

    python -m tests.recorded check      compares with tests/recorded.json
    python -m tests.recorded write      records what this tree gives

Every rule, feed and driver is among the runs. Hashes hold for one version of JAX on one kind of processor, so this is
a tool for whoever changes the engine, not a test: on another machine, record the old commit first.
"""

import hashlib
import json
import platform
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tests.registry import RULES, SUBSAMPLING_RULES

FILE = Path(__file__).with_suffix(".json")
SIZES = {"num_samples": 60, "num_warmup": 40, "num_chains": 3, "rng_key": 2}
DRIVERS = {"alone": tm.ChainByChain, "together": lambda: tm.Together(rounds=32)}


def _log_likelihood(position, row):
    precision = position["log_precision"]
    return -0.5 * (row["y"] - position["mean"]) ** 2 * jnp.exp(precision) + 0.5 * precision


def _softplus_likelihood(weights, row):
    z = row["x"] @ weights
    return row["y"] * z - jax.nn.softplus(z)


INIT = {"mean": 0.5, "log_precision": -1.0}


def _posterior(num_rows):
    rows = np.random.default_rng(0).normal(1.0, 2.0, size=num_rows).astype(np.float32)
    return tm.Posterior(_log_likelihood, {"y": rows}, temperature=num_rows / 50)


def _logistic(num_rows=5000, num_columns=4):
    X, y, _ = tm.models.generate_logistic(num_rows, num_columns)
    return tm.models.logistic_regression(X, y)


def _own(num_rows=5000):
    X, y, _ = tm.models.generate_logistic(num_rows, 4)
    return tm.Posterior(_softplus_likelihood, {"x": X, "y": y})


def _walk(rule, num_rows=3001, **options):
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.2), rule)
    return tm.sample(_posterior(num_rows), kernel, init=INIT, **SIZES, **options)


def _regression(kernel, posterior=None, **options):
    start = np.zeros(4, np.float32)
    options = {"init": start, "control_variate": tm.Taylor(at=start)} | options
    return tm.sample(posterior or _logistic(), kernel, **SIZES, **options)


def _steps(rule, proposal=None):
    return tm.MetropolisHastings(proposal or tm.RandomWalk(0.03), rule)


def _cases() -> dict[str, Callable[[], tm.Run]]:
    cases: dict[str, Callable[[], tm.Run]] = {}
    for driver_name, driver in DRIVERS.items():
        for name, rule in RULES.items():
            cases[f"{name} {driver_name}"] = lambda r=rule, d=driver: _walk(r(), driver=d())
        for name, rule in SUBSAMPLING_RULES.items():
            cases[f"{name} {driver_name}"] = lambda r=rule, d=driver: _regression(_steps(r()), driver=d())
    for name in ("exact", "mh_minibatch", "austere_mh"):
        cases[f"{name} indexed"] = lambda n=name: _walk(RULES[n](), feed=tm.IndexedFeed)
    small = {
        "mh_minibatch": lambda: tm.MHMinibatch(50),
        "austere_mh": lambda: tm.AustereMH(0.05, 50),
        "austere_mh_per_step": lambda: tm.AustereMHPerStep(0.05, 50),
        "mh_sub_lhd": lambda: tm.MHSubLhd(bound=lambda position, proposed: jnp.float32(0.2)),
        "mint": lambda: tm.Mint(50, 0.2),
    }
    for name, rule in small.items():  # enough windows to read them in one shuffle's order
        cases[f"{name} many windows"] = lambda r=rule: _walk(r(), num_rows=60_000)
    weighted = {"feed": tm.WeightedFeed}
    cases |= {
        "mh_minibatch weighted": lambda: _regression(_steps(tm.MHMinibatch(50)), **weighted),
        "austere_mh weighted": lambda: _regression(_steps(tm.AustereMH(0.05, 100)), **weighted),
        "mh_sub_lhd bounds": lambda: _regression(_steps(tm.MHSubLhd(batch_size=50)), control_variate=None),
        "mhss order 1": lambda: _regression(_steps(tm.MHSS(1)), control_variate=None),
        "mala": lambda: _regression(_steps(tm.MHSS(), tm.MALA(0.02))),
        "crank_nicolson": lambda: _regression(_steps(tm.MHSS(), tm.CrankNicolson(np.zeros(4), 0.03 * np.eye(4)))),
        "no init": lambda: _regression(_steps(tm.Exact()), init=None, control_variate=None),
        "moved expansion": lambda: _regression(
            _steps(tm.MHMinibatch(50)), control_variate=tm.Taylor(at=np.full(4, 3.0, np.float32))
        ),
        "automatic regression": lambda: tm.sample(_logistic(), **SIZES),
        "automatic likelihood": lambda: tm.sample(_own(), **SIZES),
        "automatic few rows": lambda: tm.sample(_own(800), **SIZES),
    }
    return cases


def digest(run: tm.Run) -> str:
    """Of every draw and every statistic, bit for bit."""
    names = ["accepted", "rows", "nonfinite", "used_all_rows"]
    leaves = [*jax.tree.leaves(run.samples), *(run.stats[name] for name in names)]
    if run.audit is not None:
        leaves.append(np.asarray([run.audit.error_rate, *run.audit.interval]))
    joined = b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in leaves)
    return hashlib.sha256(joined).hexdigest()[:16]


def main(action: str, *wanted: str) -> int:
    """Writes or checks, all cases or those whose names contain a word of `wanted`."""
    warnings.simplefilter("ignore")
    here = {"jax": jax.__version__, "machine": platform.machine()}
    recorded = json.loads(FILE.read_text()) if FILE.exists() else {"made with": here, "runs": {}}
    different = 0
    for name, case in _cases().items():
        if wanted and not any(word in name for word in wanted):
            continue
        try:
            found = digest(case())
        except Exception as error:  # a case that fails is a difference, not the end
            found = f"{type(error).__name__}: {error}"[:200]
        same = recorded["runs"].get(name) == found
        different += not same
        print(f"{'same     ' if same else 'DIFFERENT'} {name} {found}", flush=True)
        if action == "write":
            recorded["runs"][name] = found
    if action == "write":
        FILE.write_text(json.dumps({"made with": here, "runs": recorded["runs"]}, indent=1) + "\n")
    print(f"{different} differ; recorded with {recorded['made with']}, this is {here}")
    return 0 if action == "write" else different


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["check"])))
