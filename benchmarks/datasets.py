"""Public data that the optimiser is shown on, if it lies beside the repository."""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"


def available(name: str) -> bool:
    """Whether a file of this name is there."""
    return (FOLDER / name).is_file()


def flights() -> tuple[np.ndarray, np.ndarray]:
    """Arrival delay by departure delay, distance, air time, hour, month, day and airport (327,346 flights of 2013)."""
    with np.load(FOLDER / "nycflights13.npz") as file:
        table = dict(zip(file["columns"].tolist(), file["X"].astype(np.float64).T, strict=True))
        origin = np.eye(3)[file["origin"]][:, 1:]
    hour = table["sched_dep_time"] // 100 + table["sched_dep_time"] % 100 / 60
    numbers = [table["dep_delay"], table["distance"], table["air_time"], hour, table["month"], table["day"]]
    columns = np.stack(numbers, axis=1)
    columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    return np.column_stack([np.ones(len(columns)), columns, origin]), table["arr_delay"]


def threes(num_components: int = 50) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """MNIST, 3 against the rest, prepared as in Korattikara et al.: X and y to train on, X and y to test on.

    Pixels that never change are dropped, the others standardised and reduced to their principal components; an
    intercept comes first.
    """
    with np.load(FOLDER / "mnist.npz") as file:
        train, test = file["X_train"].astype(np.float32), file["X_test"].astype(np.float32)
        labels = [(file[name] == 3).astype(np.float32) for name in ("y_train", "y_test")]
    changing = train.std(axis=0) > 0
    mean, scale = train[:, changing].mean(axis=0), train[:, changing].std(axis=0)
    train, test = ((part[:, changing] - mean) / scale for part in (train, test))
    directions = np.linalg.eigh((train.T @ train).astype(np.float64))[1][:, -num_components:].astype(np.float32)
    one, other = (np.column_stack([np.ones(len(part), np.float32), part @ directions]) for part in (train, test))
    return one, labels[0], other, labels[1]
