"""`tm.sample(posterior)` from its call to its draws, as users make it: seconds, programs compiled and memory.

`python -m benchmarks.whole` prints all lines, `python -m benchmarks.whole later first --size 100000x20 --repeats 1`
those that are named, on other sizes. Each measurement is a process of its own (`benchmarks.whole_child`) with an empty
folder for compiled programs; ours and theirs take turns and the shortest of a few counts. What a line means exactly is
in docs/benchmarks.md, "Whole calls".
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.whole_models import OWN

COLUMNS = ("figure", "measured", "wanted", "details")
ROOT = Path(__file__).parents[1]
GPU_CHAINS = 1024
DRAWS_OF_TRUTH = 5000  # of each of NUTS's two chains: errors of a mean of about a hundredth of a sd
LARGEST_REFERENCE = 200_000_000  # numbers in the rows; importance sampling on 10^7 x 50 takes longer than all calls
Line = tuple[str, str, str, str]


class Plan(NamedTuple):
    """What the command line asked for.

    Args:
        sizes: Rows and columns in place of a line's own, if any.
        repeats: Of each measurement; the shortest counts.
    """

    sizes: tuple[tuple[int, int], ...] = ()
    repeats: int = 3

    def of(self, *sizes: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        """The sizes of a line."""
        return self.sizes or sizes

    def rows(self, rows: int) -> int:
        """The rows of a line whose columns are fixed."""
        return self.sizes[0][0] if self.sizes else rows


def measure(task: str, cache: str | None = None, **options: Any) -> dict[str, Any]:
    """One task of `benchmarks.whole_child` in a process of its own, which keeps its programs in `cache`, if given."""
    with tempfile.TemporaryDirectory() as empty:
        environment = os.environ | {"TALLMC_CACHE": cache or empty}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # nobody's earlier programs
        command = [sys.executable, "-m", "benchmarks.whole_child", task, json.dumps(options)]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def later(plan: Plan) -> Iterator[Line]:
    """A later call against the fit of the mode that everybody knows."""
    for size in plan.of((1_000_000, 20), (1_000_000, 50)):
        found = measure("later", size=size, repeats=plan.repeats, peer=True)
        ours, theirs = _shortest(found["later"]), min(found["fits"])
        measured = f"{ours['seconds'] / theirs:.1f} x ({ours['seconds']:.2f} s against {theirs:.2f} s)"
        what = f"later call, {_size(size)}, against scikit-learn's fit of the mode"
        yield what, measured, "<= 3 x", f"{_accuracy(found)}; {_cost(found)}{_timing(ours)}"


def large(plan: Plan) -> Iterator[Line]:
    """Time and memory where the rows are most of what a process holds."""
    for size in plan.of((10_000_000, 20), (10_000_000, 50)):
        found = measure("later", size=size, repeats=plan.repeats, accuracy=size[0] * size[1] <= LARGEST_REFERENCE)
        ours, peaks = _shortest(found["later"]), [call["peak"] for call in found["later"]]
        details = f"{_accuracy(found)}; {_cost(found)}{_timing(ours)}"
        bar = "<= 6 s" if size[1] == 20 else ""
        yield f"later call, {_size(size)}", f"{ours['seconds']:.1f} s", bar, details
        first_peak, later_peak = (_memory(peak, found["bytes"]) for peak in (found["first"]["peak"], max(peaks)))
        what = f"most memory of the first call above what was there before, {_size(size)}"
        details = f"later calls {later_peak}; the data has {found['bytes'] / 1e6:,.0f} MB"
        yield what, first_peak, "<= 30 % of the data", details


def first(plan: Plan) -> Iterator[Line]:
    """The first call of a process, before and after another process left its programs on disk."""
    for size in plan.of((100_000, 20)):
        for name, found, wanted in zip(("no", "all"), _cold_and_warm(size, plan), ("<= 5 s", "<= 2.5 s"), strict=True):
            what = f"first call of a process, {_size(size)}, {name} programs in the cache"
            whole = found["import"] + found["building"] + found["seconds"]
            details = f"{whole:.1f} s with `import tallmc` ({found['import']:.2f} s) and the posterior; {_cost(found)}"
            yield what, f"{found['seconds']:.1f} s", wanted, details + _timing(found)
            counted = f"{found['from_cache']} of them from the cache"
            yield "programs compiled by that call", str(found["programs"]), "<= 25", counted


def nuts(plan: Plan) -> Iterator[Line]:
    """Effective draws a second of whole calls, against NUTS in a process of its own."""
    for size in plan.of((100_000, 20)):
        theirs, cold, warm = [], [], []
        for _ in range(plan.repeats):
            for found, fresh in zip((cold, warm), _cold_and_warm(size, plan._replace(repeats=1)), strict=True):
                found.append(fresh)
            theirs.append(measure("nuts", size=size))
        after = measure("later", size=size, repeats=plan.repeats, accuracy=False)
        calls = (_shortest(cold), _shortest(warm), after | _shortest(after["later"]))
        kinds = ("first call, empty cache", "first call, programs in the cache", "later call")
        for kind, ours, wanted in zip(kinds, calls, (">= 3.5 x", ">= 7 x", ">= 50 x"), strict=True):
            what = f"{kind}, {_size(size)}: effective draws/s of the whole call against NumPyro's NUTS"
            yield what, *_against(ours, _shortest(theirs), wanted)


def own(plan: Plan) -> Iterator[Line]:
    """Likelihoods of five parameters that no ready model has, first calls on both sides."""
    for model in OWN:
        options = {"model": model, "rows": plan.rows(20_000)}
        ours, theirs = [], []
        for _ in range(plan.repeats):
            ours.append(measure("own", **options))
            theirs.append(measure("own_nuts", **options))
        best, truth = _shortest(ours), measure("own_nuts", **options, num_samples=DRAWS_OF_TRUTH)
        ratio, wanted, details = _against(best, _shortest(theirs), ">= 1 x")
        errors = [f"{_difference(draws, truth)} ({name})" for name, draws in (("ours", best), ("NUTS", theirs[-1]))]
        long = f"against {truth['ess']:,.0f} effective draws of a long NUTS: {', '.join(errors)}"
        what = f"{model}, 5 parameters, {options['rows']:,} rows, first call: effective draws/s against NumPyro's NUTS"
        yield what, ratio, wanted, f"{details}; {long}; {_cost(best)}{_timing(best)}"


def hand(plan: Plan) -> Iterator[Line]:
    """The same rows with a likelihood by hand and with the ready model."""
    for size in plan.of((1_000_000, 20)):
        found = measure("by_hand", size=size, repeats=plan.repeats)
        seconds = {name: _shortest(calls["later"])["seconds"] for name, calls in found.items()}
        ratio = f"{seconds['own'] / seconds['ready']:.1f} x ({seconds['own']:.2f} s against {seconds['ready']:.2f} s)"
        parts = [f"{name}: {_accuracy(calls)}; {_cost(calls)}" for name, calls in found.items()]
        yield (
            f"likelihood by hand against the ready model, later call, {_size(size)}",
            ratio,
            "<= 2 x",
            "; ".join(parts),
        )


def imports(plan: Plan) -> Iterator[Line]:
    """What `import tallmc` costs, and how much of it is JAX."""
    seconds: dict[str, list[float]] = {"tallmc": [], "jax": []}
    for _ in range(plan.repeats):
        for package, found in seconds.items():
            found.append(measure("imports", package=package)["seconds"])
    yield "import tallmc", f"{min(seconds['tallmc']):.2f} s", "<= 0.9 s", f"import jax: {min(seconds['jax']):.2f} s"


def gpu(plan: Plan) -> Iterator[Line]:
    """Many chains on a GPU."""
    where = measure("backend")
    bars = {20: ("<= 12 s", "<= 1 s"), 50: ("<= 25 s", "<= 4 s")}
    for size in plan.of((1_000_000, 20), (10_000_000, 50)):
        what = f"{GPU_CHAINS:,} chains of 1,000 draws, {_size(size)}"
        if where["backend"] != "gpu":
            yield f"{what}: first and later call", "no GPU here", ", ".join(bars.get(size[1], ())), ""
            continue
        found = measure(
            "later",
            size=size,
            repeats=plan.repeats,
            accuracy=size[0] * size[1] <= LARGEST_REFERENCE,
            num_chains=GPU_CHAINS,
        )
        wanted = bars.get(size[1], ("", ""))
        details = f"{where['device']}; {_accuracy(found)}; {_cost(found)}"
        calls = found["first"], _shortest(found["later"])
        for name, call, bar in zip(("first", "later"), calls, wanted, strict=True):
            yield f"{what}: {name} call", f"{call['seconds']:.1f} s", bar, details + _timing(call)


def _cold_and_warm(size: tuple[int, int], plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """The shortest first calls, each pair in a folder of its own: the first finds it empty, the second filled."""
    cold, warm = [], []
    for _ in range(plan.repeats):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(measure("first", cache, size=size))
            warm.append(measure("first", cache, size=size))
    return _shortest(cold), _shortest(warm)


def _shortest(calls: list[dict[str, Any]]) -> dict[str, Any]:
    return min(calls, key=lambda call: call["seconds"])


def _against(ours: dict[str, Any], theirs: dict[str, Any], wanted: str) -> tuple[str, str, str]:
    """Ratio of effective draws a second, of the worst mean; beside it that of squares and of plain seconds."""
    mine, other = ours["seconds"], theirs["seconds"]
    rates = [(one["ess"] / one["seconds"], one["ess_squares"] / one["seconds"]) for one in (ours, theirs)]
    ratio = f"{rates[0][0] / rates[1][0]:.1f} x ({rates[0][0]:,.0f} against {rates[1][0]:,.0f})"
    squares = f"{rates[0][1] / rates[1][1]:.1f} x for squares"
    seconds = f"{other / mine:.1f} x in seconds of the call ({mine:.2f} s against {other:.2f} s)"
    draws = f"{ours['ess']:,.0f} effective draws against {theirs['ess']:,.0f}"
    return ratio, wanted, f"{squares}; {seconds}; {draws}; {_difference(ours, theirs)} apart"


def _difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Largest of two runs' means, in standard deviations, and of their standard deviations."""
    means, sds = (np.array([run[name] for run in (one, other)]) for name in ("mean", "sd"))
    return f"{np.max(np.abs(means[0] - means[1]) / sds[1]):.3f} sd, {100 * np.max(np.abs(sds[0] / sds[1] - 1)):.1f} %"


def _accuracy(found: dict[str, Any]) -> str:
    if "mean_error" not in found:
        return "accuracy not looked at"
    known = f"reference good to {found['reference_error']:.1e}"
    return f"worst mean {found['mean_error']:.3f} sd, worst sd {100 * found['sd_error']:.1f} % ({known})"


def _cost(found: dict[str, Any]) -> str:
    doubts = "; ".join(found["doubts"]) or "none"
    passes, rows = f"set-up read {found['setup_passes']:.1f} passes", found["rows_a_step"]
    return f"{passes}, a step {rows:,.{0 if rows >= 10 else 2}f} rows ({found['rule']}); doubts: {doubts}"


def _timing(call: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in call["timing"].items())
    return f"; {parts}" if parts else ""


def _memory(peak: int, data: int) -> str:
    return "not known" if peak < 0 else f"{100 * peak / data:.0f} % ({peak / 1e6:,.0f} MB)"


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]:,} x {size[1]}"


LINES: dict[str, Callable[[Plan], Iterator[Line]]] = {
    line.__name__: line for line in (later, large, first, nuts, own, hand, imports, gpu)
}


def run(names: tuple[str, ...] = tuple(LINES), plan: Plan | None = None) -> Iterator[Line]:
    """Figure, measured, wanted, details."""
    for name in names:
        yield from LINES[name](plan or Plan())


def main() -> None:
    """Prints the lines that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole", description=main.__doc__)
    parser.add_argument("lines", nargs="*", metavar="line", help=", ".join(LINES))
    parser.add_argument("--size", action="append", default=[], help="rows x columns in place of a line's: 100000x20")
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement; the shortest counts")
    options = parser.parse_args()
    if unknown := set(options.lines) - set(LINES):
        parser.error(f"no such line: {', '.join(sorted(unknown))}; there are {', '.join(LINES)}")
    sizes = tuple((int(rows), int(columns)) for rows, columns in (size.split("x") for size in options.size))
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for row in run(tuple(options.lines) or tuple(LINES), Plan(sizes, options.repeats)):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
