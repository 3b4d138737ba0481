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


def standardised(columns: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1."""
    return (columns - columns.mean(axis=0)) / columns.std(axis=0)


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
    """Music, street noise and two normal sources, each with variance 1, and what four microphones make of them.

    As in Korattikara et al., with other recordings. Of the samples in time the first are taken, or evenly spaced ones.

    Returns:
        The mixtures, one line a row, and the matrix that mixed the sources.
    """
    generator = np.random.default_rng(0)
    with np.load(FOLDER / "audio_ica.npz") as file:
        heard = [file[name][:1_950_000][:: 1_950_000 // num_rows][:num_rows] for name in ("music", "street")]
    sources = np.stack([*heard, *generator.normal(size=(2, num_rows))], axis=1).astype(float)
    mixing = generator.normal(size=(4, 4))
    return (standardised(sources) @ mixing.T).astype(np.float32), mixing


def relevance(share: float = 0.8) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A document relevant to a query or not (LETOR 4.0), by a constant and standardised features: to train on, to test.

    Rows come in the order of queries, so they are shuffled first; features that never change are dropped.
    """
    with np.load(FOLDER / "letor4.npz") as file:
        X, y = file["X"].astype(np.float64), (file["y"] > 0).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order][:, X.std(axis=0) > 0], y[order]
    train = int(share * len(y))
    mean, scale = X[:train].mean(axis=0), X[:train].std(axis=0)
    X = np.column_stack([np.ones(len(y)), (X - mean) / scale]).astype(np.float32)
    return (X[:train], y[:train]), (X[train:], y[train:])
