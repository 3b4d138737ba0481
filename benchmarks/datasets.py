"""Public data that the optimiser is shown on, if it lies beside the repository."""

from pathlib import Path

import numpy as np

from tallmc.reproduce import prepared

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"


def available(name: str) -> bool:
    """Whether a file of this name is there."""
    return (FOLDER / name).is_file()


def arrays(name: str) -> dict[str, np.ndarray]:
    """All arrays of a file."""
    with np.load(FOLDER / name) as file:
        return {key: file[key] for key in file.files}


def flights() -> tuple[np.ndarray, np.ndarray]:
    """Arrival delay by departure delay, distance, air time, hour, month, day and airport (327,346 flights of 2013)."""
    return prepared.flights(arrays("nycflights13.npz"))


def threes(num_components: int = 50) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """MNIST, 3 against the rest, prepared as in Korattikara et al.: X and y to train on, X and y to test on.

    Pixels that never change are dropped, the others standardised and reduced to their principal components; an
    intercept comes first.
    """
    X, y, other, truth = prepared.pairs(arrays("mnist.npz"), 3)
    X, other = prepared.principal(X, other, num_components)
    return X, y, other, truth


def standardised(columns: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1."""
    return prepared.standardised(columns)


def covertype() -> tuple[np.ndarray, np.ndarray]:
    """Forest cover of class 2 against the rest: ten standardised measurements and 44 indicators (581,012 rows)."""
    with np.load(FOLDER / "covertype.npz") as file:
        X, y = file["X"].astype(np.float32), file["y"] == 2
    X[:, :10] = standardised(X[:, :10].astype(np.float64))
    return X, y.astype(np.float32)


def adult() -> tuple[np.ndarray, np.ndarray]:
    """Income above 50,000 by an intercept and 123 indicators (a9a, 32,561 rows)."""
    with np.load(FOLDER / "a9a.npz") as file:
        X, y = file["X_train"].astype(np.float32), file["y_train"].astype(np.float32)
    return np.column_stack([np.ones(len(X), np.float32), X]), y


def delays() -> tuple[np.ndarray, np.ndarray]:
    """A flight more than 15 minutes late, by distance, time of day, weekday and month (3,000,000 rows, 18 columns)."""
    with np.load(FOLDER / "flights3m.npz") as file:
        minute, delay, distance = file["minute"].astype(np.int64), file["delay"], file["distance"].astype(np.float64)
    day, angle = minute // 1440, 2 * np.pi * (minute % 1440) / 1440
    month = (np.datetime64("2001-01-01") + day).astype("datetime64[M]").astype(int) % 12
    miles = standardised(distance)
    waves = [wave(harmonic * angle) for harmonic in (1, 2) for wave in (np.sin, np.cos)]
    weekdays = [day % 7 == which for which in range(1, 7)]
    months = [month == which for which in range(1, 6)]
    columns = [np.ones(len(minute)), miles, standardised(miles**2), *waves, *weekdays, *months]
    return np.stack(columns, axis=1, dtype=np.float32, casting="unsafe"), (delay > 15).astype(np.float32)


def recordings(num_rows: int = 1_950_000) -> tuple[np.ndarray, np.ndarray]:
    """Four mixtures of two recordings and two normal sources, and the matrix that mixed them."""
    return prepared.recordings(arrays("audio_ica.npz"), num_rows)


def relevance(share: float = 0.8) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A document relevant to a query or not (LETOR 4.0): to train on, to test."""
    return prepared.relevance(arrays("letor4.npz"), share)
