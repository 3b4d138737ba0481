"""Proposals, one a file."""

from tallmc.proposals.random_walk import RandomWalk

__all__ = ["RandomWalk"]
