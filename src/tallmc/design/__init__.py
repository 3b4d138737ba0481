"""Choose a sequential test before running it."""

from tallmc.sequential_test import SequentialTest, sequential_test

__all__ = ["SequentialTest", "sequential_test"]
