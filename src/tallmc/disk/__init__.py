"""Tall data on disk: from files as they are to rows in random order, read where they lie."""

from tallmc.disk.dataset import Dataset, open_dataset
from tallmc.disk.ingest import ingest

__all__ = ["Dataset", "ingest", "open_dataset"]
