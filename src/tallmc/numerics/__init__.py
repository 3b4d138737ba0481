"""Arithmetic that everything else rests on: keys, sums in a fixed order, running moments."""
