"""`make bench`: prints one table a topic, as Markdown. A topic that takes arguments comes alone, before them."""

import importlib
import sys

import jax


def main(names: list[str]) -> None:
    """Runs the topics named, or those that this machine is for."""
    topics = ["speed", "accuracy", "rules", "schedule", "optimise", "flat", "posteriors"]
    topics += ["gradients", "pitfall", "beginning", "ica", "gibbs", "variable_selection", "whole", "stores"]
    first, arguments = names[:1], ()
    if first and getattr(importlib.import_module(f"benchmarks.{first[0]}"), "TAKES_ARGUMENTS", False):
        names, arguments = first, (names[1:],)
    for name in names or (["gpu"] if jax.default_backend() == "gpu" else topics):
        topic = importlib.import_module(f"benchmarks.{name}")
        columns = getattr(topic, "COLUMNS", ("figure", "measured", "wanted"))
        print(f"\n## {name}\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
        for row in topic.run(*arguments):
            print("| " + " | ".join(row) + " |", flush=True)


main(sys.argv[1:])
