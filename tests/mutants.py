"""Do the tests see a mistake? Replays single edits of the source, each of which some test must notice.

    python -m tests.mutants              all of them, in two processes
    python -m tests.mutants NAME ...     some
    python -m tests.mutants --list       what there is

Every edit is made on a copy of `src` and `tests` in a temporary folder; the checkout is never touched. First the named
tests must pass without any edit. An edit that no test sees, or whose text is no longer in the source, is a failure.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.edits import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 2
LONGEST = 300  # seconds; an edit whose tests take longer counts as not seen
KILLED, SURVIVED, NOT_FOUND, BROKEN = "killed", "SURVIVED", "text not found", "tests did not run"


class Outcome(NamedTuple):
    verdict: str
    seconds: float
    output: str = ""


def copy_tree(folder: Path) -> None:
    """What the tests need: source, tests, and settings."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)


def run_tests(folder: Path, tests: tuple[str, ...], *options: str) -> subprocess.CompletedProcess:
    """Runs tests on a copy. No bytecode is kept: an edit of the same length and second would not be seen."""
    places = os.pathsep.join([str(folder / "src"), str(folder)])
    environment = os.environ | {"PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", "--durations=0", *options, *tests]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
    )


def is_the_copy(folder: Path) -> bool:
    """Whether `import tallmc` finds the copy, and not what is installed."""
    script = "import importlib.util as u; print(u.find_spec('tallmc').origin)"
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    found = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    return Path(found.stdout.strip()).is_relative_to(folder)


def replay(mutant: Mutant) -> Outcome:
    """Makes the edit on a copy of its own, and runs its tests."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_tree(folder)
        path = folder / "src" / "tallmc" / mutant.file
        text = path.read_text() if path.exists() else ""
        if text.count(mutant.old) != 1:
            return Outcome(NOT_FOUND, time.perf_counter() - started, f"{text.count(mutant.old)} times in {mutant.file}")
        path.write_text(text.replace(mutant.old, mutant.new))
        for test in mutant.tests:
            try:
                done = run_tests(folder, (test,), "-x")
            except subprocess.TimeoutExpired:
                return Outcome(SURVIVED, time.perf_counter() - started, f"{test} ran for more than {LONGEST} seconds")
            if done.returncode != 1:
                verdict = SURVIVED if done.returncode == 0 else BROKEN
                return Outcome(verdict, time.perf_counter() - started, f"{test}\n{done.stdout[-2000:]}")
    return Outcome(KILLED, time.perf_counter() - started)


def without_edits(tests: list[str]) -> str:
    """Runs all named tests on an unedited copy; what went wrong, or nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_tree(folder)
        if not is_the_copy(folder):
            return "`import tallmc` does not find the copy"
        shares = [tuple(tests[i::WORKERS]) for i in range(WORKERS)]
        with ThreadPoolExecutor(WORKERS) as pool:
            runs = list(pool.map(lambda share: run_tests(folder, share), [share for share in shares if share]))
        return "".join(done.stdout[-4000:] + done.stderr[-2000:] for done in runs if done.returncode)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutants to replay; all if left out")
    parser.add_argument("--list", action="store_true", help="only list them")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(MUTANTS):
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}; --list lists them")
    chosen = {name: MUTANTS[name] for name in options.names or MUTANTS}
    if options.list:
        for name, mutant in chosen.items():
            print(f"{name:44} {mutant.file:34} {' '.join(mutant.tests)}")
        return 0
    started = time.perf_counter()
    if wrong := without_edits(sorted({test for mutant in chosen.values() for test in mutant.tests})):
        print(wrong, "\nThe named tests must pass before any edit.")
        return 1
    print(f"the named tests pass without edits ({time.perf_counter() - started:.0f} s)", flush=True)
    verdicts = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for name, outcome in zip(chosen, pool.map(replay, chosen.values()), strict=True):
            verdicts.append(outcome.verdict)
            print(f"{outcome.verdict:10} {outcome.seconds:5.1f} s  {name}  {outcome.output}".rstrip(), flush=True)
    killed = verdicts.count(KILLED)
    print(f"{killed} of {len(verdicts)} killed in {time.perf_counter() - started:.0f} s")
    return 0 if killed == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
