"""One step of `benchmarks.disk` in a process of its own, so that its memory can be measured."""

import sys
import warnings

import tallmc as tm

warnings.filterwarnings("ignore", message="only|R-hat")
if sys.argv[1] == "ingest":
    tm.ingest(sys.argv[2], sys.argv[3], outcome="y", progress=False)
else:
    found = tm.sample(tm.models.logistic_regression(tm.open_dataset(sys.argv[2])), num_samples=2000, progress=False)
    spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.timing.items() if seconds > 0.05)
    print(f"{spent}; {found.choices[0]}; {found.audit}", file=sys.stderr)
