"""The experiments of the papers, each run by one command and put beside what the paper printed.

What an experiment is made of is data, in `experiments/<name>/experiment.toml`: its settings, and every figure of the
paper with the sentence or table that it comes from. How it is measured is code, one kind of experiment a file.
"""

from tallmc.reproduce.expected import Expected, Line, compare
from tallmc.reproduce.experiment import Experiment, experiment_named, experiments
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.result import Result, read_result
from tallmc.reproduce.runner import reproduce

__all__ = [
    "Bench",
    "Expected",
    "Experiment",
    "Figure",
    "Kind",
    "Line",
    "Measured",
    "Result",
    "compare",
    "experiment_named",
    "experiments",
    "read_result",
    "reproduce",
]
