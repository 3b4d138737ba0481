"""Benchmarks: ratios measured in one run, with rows read and accuracy beside every figure."""
