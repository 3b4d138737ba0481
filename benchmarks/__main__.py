"""`make bench`: prints one table a topic, as Markdown."""

import importlib
import sys

import jax


def main(names: list[str]) -> None:
    """Runs the topics named, or those that this machine is for."""
    for name in names or (["gpu"] if jax.default_backend() == "gpu" else ["speed", "accuracy", "optimise"]):
        topic = importlib.import_module(f"benchmarks.{name}")
        print(f"\n## {name}\n\n| figure | measured | wanted |\n| --- | --- | --- |")
        for row in topic.run():
            print("| " + " | ".join(row) + " |", flush=True)


main(sys.argv[1:])
