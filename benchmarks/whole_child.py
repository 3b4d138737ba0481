"""One measurement of a whole call in a process of its own: `python -m benchmarks.whole_child later '{"size": ...}'`.

Its last line of output is the result as JSON. The packages that are timed are imported inside the functions, for
importing is part of what is measured; warnings are silenced because doubts of a run are reported.
"""

import contextlib
import json
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

Fields = dict[str, object]
STATUS, REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
DRAWS_OF_REFERENCE = 2_000_000_000  # rows x draws that a reference may cost: a minute or so on two cores


def imports(package: str) -> Fields:
    """Seconds of `import package`."""
    started = time.perf_counter()
    __import__(package)
    return {"seconds": time.perf_counter() - started}


def backend() -> Fields:
    """Where JAX runs, and on what."""
    import jax

    return {"backend": jax.default_backend(), "device": jax.devices()[0].device_kind}


def first(size: list[int]) -> Fields:
    """The first call of a process, with the import and without, and the programs that it compiled."""
    started = time.perf_counter()
    import tallmc as tm

    importing = time.perf_counter() - started
    from benchmarks import whole_models

    X, y = whole_models.logistic_rows(*size)
    started = time.perf_counter()
    posterior = tm.models.logistic_regression(X, y)
    building = time.perf_counter() - started
    compiled = _count_programs()
    run, facts = _call(tm, posterior, 0)
    programs = {"programs": len(compiled["built"]), "from_cache": len(compiled["found"])}
    return facts | _draws(run) | programs | {"import": importing, "building": building}


def later(size: list[int], repeats: int, peer: bool = False, accuracy: bool = True, **options: int) -> Fields:
    """Later calls in one process, taking turns with scikit-learn's fit; the first call, and how right the draws are."""
    import tallmc as tm
    from benchmarks import whole_models

    X, y = whole_models.logistic_rows(*size)
    posterior = tm.models.logistic_regression(X, y)
    first_call = _call(tm, posterior, 0, **options)[1]
    laters, fits = [], []
    for key in range(1, repeats + 1):
        run, facts = _call(tm, posterior, key, **options)
        laters.append(facts)
        if peer:
            fits.append(_fit(X, y))
    found = {"first": first_call, "later": laters, "fits": fits, "bytes": X.nbytes + y.nbytes} | _draws(run)
    return found | (_errors(posterior, run, size) if accuracy else {})


def by_hand(size: list[int], repeats: int) -> Fields:
    """Later calls of the likelihood by hand and of the ready model, in turn, after a first call of each."""
    import tallmc as tm
    from benchmarks import whole_models

    X, y = whole_models.logistic_rows(*size)
    own = tm.Posterior(whole_models.logistic_log_likelihood, {"x": X, "y": y}, whole_models.standard_normal)
    posteriors = {"own": own, "ready": tm.models.logistic_regression(X, y)}
    found: dict[str, list] = {name: [] for name in posteriors}
    runs = {}
    for key in range(repeats + 1):
        for name, posterior in posteriors.items():
            runs[name], facts = _call(tm, posterior, key)
            found[name].append(facts)
    last = {name: _draws(run) | _errors(posteriors["ready"], run, size) for name, run in runs.items()}
    return {name: last[name] | {"first": calls[0], "later": calls[1:]} for name, calls in found.items()}


def own(model: str, rows: int) -> Fields:
    """The first call on a likelihood of one's own."""
    import tallmc as tm
    from benchmarks import whole_models

    chosen = whole_models.OWN[model]
    posterior = tm.Posterior(chosen.log_likelihood, chosen.generate(rows), whole_models.standard_normal)
    run, facts = _call(tm, posterior, 0, init=chosen.init)
    return facts | _draws(run)


def nuts(size: list[int]) -> Fields:
    """NumPyro's NUTS on logistic regression."""
    from benchmarks import whole_models

    X, y = whole_models.logistic_rows(*size)
    return _nuts(whole_models.logistic_numpyro, {"x": X, "y": y}, 1000)


def own_nuts(model: str, rows: int, num_samples: int = 1000) -> Fields:
    """NumPyro's NUTS on a likelihood of one's own."""
    from benchmarks import whole_models

    chosen = whole_models.OWN[model]
    return _nuts(chosen.numpyro, chosen.generate(rows), num_samples)


def _nuts(model: Callable, data: dict, num_samples: int) -> Fields:
    """From the making of the sampler to draws on the host: compilation and warm-up are part of it."""
    import jax
    from numpyro.infer import MCMC, NUTS

    from benchmarks import whole_models

    started = time.perf_counter()
    chains = MCMC(NUTS(model), num_warmup=1000, num_samples=num_samples, num_chains=2, progress_bar=False)
    chains.run(jax.random.key(0), **data)
    samples = jax.device_get(chains.get_samples(group_by_chain=True))
    seconds = time.perf_counter() - started
    return {"seconds": seconds} | _moments(whole_models.as_matrix(samples))


def _call(tm, posterior, key: int, **options):
    """`tm.sample` as a user calls it: the run, and its seconds and peak of memory."""
    with _peak() as peak:
        started = time.perf_counter()
        run = tm.sample(posterior, rng_key=key, **options)
        seconds = time.perf_counter() - started
    timing = {name: float(spent) for name, spent in getattr(run, "timing", {}).items()}
    return run, {"seconds": seconds, "peak": peak["bytes"], "timing": timing}


def _draws(run) -> Fields:
    """What a run is worth and what it read."""
    from benchmarks import whole_models

    rows, num_rows = run.stats["rows"], run.posterior.num_rows
    cost = {"setup_passes": run.setup_rows / num_rows, "rows_a_step": float(rows.mean())}
    words = {"rule": type(run.kernel.rule).__name__, "doubts": list(run.doubts)}
    return cost | words | _moments(whole_models.as_matrix(run.samples))


def _moments(draws) -> Fields:
    """Effective draws of the worst coordinate and of the worst square, means and standard deviations."""
    from tallmc.run.mixing import mixing  # the figures of ArviZ, which not every GPU machine has

    flat = draws.reshape(-1, draws.shape[-1])
    both = {"ess": draws, "ess_squares": (draws - flat.mean(0)) ** 2}
    sizes = {name: float(mixing(values).ess_bulk.min()) for name, values in both.items()}
    return sizes | {"mean": flat.mean(0).tolist(), "sd": flat.std(0, ddof=1).tolist()}


def _errors(posterior, run, size: list[int]) -> Fields:
    """Worst errors of a mean and a standard deviation; fewer draws of the reference where rows are many."""
    from benchmarks import peers, reference

    exact = reference.moments(posterior, int(min(2000, max(200, DRAWS_OF_REFERENCE // size[0]))))
    mean_error, sd_error = peers.accuracy(run.samples, exact.mean, exact.sd)
    return {"mean_error": mean_error, "sd_error": sd_error, "reference_error": exact.error}


def _fit(X, y) -> float:
    """Seconds of scikit-learn's fit of the same posterior's mode, with its default tolerance."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(solver="lbfgs", C=1.0, fit_intercept=False)
    started = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - started


def _count_programs() -> dict[str, list[str]]:
    """Names of the events that JAX reports from now on: programs built, or found in its cache on disk."""
    import jax

    seen: dict[str, list[str]] = {"built": [], "found": []}

    def built(name: str, seconds: float, **_: object) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            seen["built"].append(name)

    def found(name: str, **_: object) -> None:
        if name == "/jax/compilation_cache/cache_hits":
            seen["found"].append(name)

    jax.monitoring.register_event_duration_secs_listener(built)
    jax.monitoring.register_event_listener(found)
    return seen


def _status(name: str) -> int:
    """A figure of this process, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return 1024 * int(line.split()[1])


@contextlib.contextmanager
def _peak() -> Iterator[dict[str, int]]:
    """Most memory that the process has inside, above what it has on entering; -1 where nothing tells."""
    found = {"bytes": -1}
    if not STATUS.exists():
        yield found
        return
    before, stop, polled = _status("VmRSS"), threading.Event(), [0]

    def poll() -> None:
        while not stop.wait(0.005):
            polled.append(max(polled.pop(), _status("VmRSS")))

    watcher = None
    try:
        REFS.write_text("5")  # the kernel forgets the peak so far
    except OSError:
        watcher = threading.Thread(target=poll, daemon=True)
        watcher.start()
    yield found
    stop.set()
    if watcher is not None:
        watcher.join()
    found["bytes"] = max(0, (polled[0] if watcher else _status("VmHWM")) - before)


TASKS = {task.__name__: task for task in (imports, backend, first, later, by_hand, own, nuts, own_nuts)}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    result = TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(result))
