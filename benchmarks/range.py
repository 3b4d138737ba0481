"""Some sixty posteriors that users write, by `tm.sample(posterior)` and by NumPyro's NUTS: how fast, and how right.

`python -m benchmarks range` prints a line for each; `python -m benchmarks range funnel lasso --seeds 3` those that are
named, from three keys; `--set small` a few of many kinds. Every measurement is a first call in a process of its own
(`benchmarks.range_child`), compiling included, which is ended at the time limit. What was measured is kept in a
temporary folder, so that a run that was stopped goes on where it was: references and NUTS until the posterior changes,
ours until the library does.
"""

import argparse
import getpass
import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.range_verdict import Estimates, distance, verdict

COLUMNS = (
    "posterior (rows x parameters)",
    "chosen",
    "whole call",
    "effective draws/s",
    "NUTS's",
    "ratio",
    "worst mean error (sd)",
    "worst sd ratio",
    "doubts raised",
    "verdict",
)
TAKES_ARGUMENTS = True
ROOT = Path(__file__).parents[1]
KEPT = Path(tempfile.gettempdir()) / f"tallmc-range-{getpass.getuser()}"
REFERENCE_LIMIT = 900.0  # seconds; a reference is worked out once
Line = tuple[str, ...]


def run(arguments: Sequence[str] = ()) -> Iterator[Line]:
    """One line a posterior and key, as they are measured; then how many were right."""
    from tests.range import CASES, SMALL

    options = _options(arguments, CASES)
    names = options.names or (SMALL if options.set == "small" else CASES)
    verdicts, ratios = Counter(), []
    for name in names:
        truth = measure("reference", name, 0, REFERENCE_LIMIT)
        theirs = measure("nuts", name, 0, options.limit, fresh=options.fresh)
        for seed in range(options.seeds):
            mine = measure("ours", name, seed, options.limit, fresh=options.fresh)
            line, ratio = _line(_title(name, seed), mine, theirs, truth)
            verdicts[line[-1]] += 1
            ratios += [ratio] if np.isfinite(ratio) else []
            yield line
    counted = ", ".join(f"{count} {found}" for found, count in verdicts.most_common())
    middle = f"{np.median(ratios):.2g} x (median)" if ratios else ""
    faster = f"at least as fast: {sum(ratio >= 1 for ratio in ratios)} of {len(ratios)}"
    yield f"{verdicts.total()} in all", "", "", faster, "", middle, "", "", "", counted


def _options(arguments: Sequence[str], known: Any) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks range", description="see benchmarks/range.py")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(known))
    parser.add_argument("--seeds", type=int, default=1, help="sample each from so many keys")
    parser.add_argument("--set", choices=("small", "all"), default="all", help="where no names are given")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each call, ours or NUTS's")
    parser.add_argument("--fresh", action="store_true", help="measure calls again; references are kept")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(known):
        parser.error(f"no such posterior: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return options


def measure(task: str, name: str, seed: int, limit: float, *, fresh: bool = False) -> dict[str, Any]:
    """What a process of its own found, or what an earlier one did; `failed` says why there is nothing."""
    kept = KEPT / f"{task}-{name}-{_key(task, name, seed)}.json"
    if kept.exists() and not fresh:
        found = json.loads(kept.read_text())
        if found.get("limit", np.inf) >= limit:  # a longer time may do
            return found
    with tempfile.TemporaryDirectory() as empty:
        environment = os.environ | {"TALLMC_CACHE": empty, "JAX_PLATFORMS": "cpu"}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # nobody's earlier programs
        command = [sys.executable, "-m", "benchmarks.range_child", task, name, str(seed)]
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            found = {"failed": f"more than {limit:.0f} s", "limit": limit}
        else:
            said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            found = {"failed": said[-1]} if done.returncode else json.loads(done.stdout.splitlines()[-1])
    KEPT.mkdir(exist_ok=True)
    kept.write_text(json.dumps(found))
    return found


def _key(task: str, name: str, seed: int) -> str:
    """A hash of all that a measurement depends on."""
    import jax
    import jaxlib
    import numpyro
    from tests.range import CASES

    from benchmarks import range_child

    chosen = CASES[name]()
    parts: list[Any] = [seed, jax.__version__, jaxlib.__version__, inspect.getsource(Estimates)]
    for one in (chosen, *([CASES[chosen.same_as]()] if chosen.same_as else [])):
        position, data = (jax.tree.map(jax.numpy.asarray, part) for part in (one.init, one.data))
        row = jax.tree.map(lambda leaf: leaf[0], data)
        for function, inputs in (
            (one.log_likelihood, (position, row)),
            (one.log_prior, (position,)),
            (one.look, (position,)),
        ):
            program = jax.make_jaxpr(function)(*inputs)
            parts += [re.sub("0x[0-9a-f]+", "", str(program)), *(np.asarray(each).tobytes() for each in program.consts)]
        parts += [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((position, data, one.modes, one.truth))]
    if task == "ours":
        parts += [path.read_bytes() for path in sorted((ROOT / "src").rglob("*.py"))]
    else:
        own = (
            ("REFERENCE", "LARGEST_DENSE", "POINTS", "WIDER") if task == "reference" else ("NUTS_CHAINS", "NUTS_DRAWS")
        )
        parts += [numpyro.__version__, *(getattr(range_child, setting) for setting in own)]
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
    return digest.hexdigest()


def _title(name: str, seed: int) -> str:
    import jax
    from tests.range import CASES

    chosen = CASES[name]()
    num_rows = len(jax.tree.leaves(chosen.data)[0])
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(chosen.init))
    return f"{name} ({num_rows:,} x {size}){f', key {seed}' if seed else ''}"


def _line(title: str, mine: dict[str, Any], theirs: dict[str, Any], truth: dict[str, Any]) -> tuple[Line, float]:
    """A line of the table, and the ratio in it."""
    rate, other = _rate(mine), _rate(theirs)
    nuts = theirs.get("failed") or f"{other:,.3g} ({theirs['seconds']:.1f} s)"
    if "estimates" in mine and truth.get("estimates"):
        exact = _estimates(truth)
        if "estimates" in theirs and exact.trusted:
            nuts += "" if distance(_estimates(theirs), exact).right else ", not right"
        found = distance(_estimates(mine), exact)
        errors = f"{found.mean:.3f}", f"{found.sd_ratio:.3f}"
        outcome = verdict(_estimates(mine), exact, mine["doubts"])
    else:
        errors, outcome = ("", ""), _without(mine)
    if "estimates" not in mine:
        why = mine.get("refused") or mine.get("failed", "")
        return (title, _in_cell(why), "", "", nuts, "", *errors, "", outcome), float("nan")
    chosen = f"{mine['chosen']}, {mine['rows_a_step']:,.3g} rows a step, {mine['accepted']:.2f} accepted"
    ratio = rate / other
    cells = f"{mine['seconds']:.1f} s", f"{rate:,.3g}", nuts, f"{ratio:.2g} x" if np.isfinite(ratio) else ""
    doubts = _in_cell("; ".join(mine["doubts"])) or "none"
    return (title, chosen, *cells, *errors, doubts, outcome), ratio


def _without(mine: dict[str, Any]) -> str:
    """What to say where there is nothing to compare."""
    if "refused" in mine:
        return "refused"
    if "failed" in mine:
        return "timeout" if "limit" in mine else "failed"
    return "unknown"


def _estimates(found: dict[str, Any]) -> Estimates:
    return Estimates(**{name: np.array(values) for name, values in found["estimates"].items()})


def _rate(found: dict[str, Any]) -> float:
    """Effective draws a second of the whole call, of the worst coordinate."""
    return float(_estimates(found).ess.min()) / found["seconds"] if "estimates" in found else float("nan")


def _in_cell(text: str) -> str:
    """Short, and without what would end a cell."""
    flat = " ".join(text.replace("|", "/").split())
    return flat if len(flat) <= 160 else f"{flat[:157]}..."
