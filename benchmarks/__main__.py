"""`make bench`: prints one table a topic, as Markdown."""

import sys

import jax

from benchmarks import accuracy, gpu, speed

TOPICS = {"speed": speed.run, "accuracy": accuracy.run, "gpu": gpu.run}


def main(names: list[str]) -> None:
    """Runs the topics named, or those that this machine can run."""
    on_gpu = jax.default_backend() == "gpu"
    for name in names or (["gpu"] if on_gpu else ["speed", "accuracy"]):
        print(f"\n## {name}\n\n| figure | measured | wanted |\n| --- | --- | --- |")
        for row in TOPICS[name]():
            print("| " + " | ".join(row) + " |", flush=True)


main(sys.argv[1:])
