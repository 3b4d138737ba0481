"""Public data as the papers prepared it, from the arrays of their files."""

from collections.abc import Mapping

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]


def pairs(arrays: Mapping[str, np.ndarray], positive: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images of digits, pixels over 255, and whether they are `positive`: X and y to train on, X and y to test on."""
    X, other = (arrays[name].astype(np.float32) / 255 for name in ("X_train", "X_test"))
    y, truth = ((arrays[name] == positive).astype(np.float32) for name in ("y_train", "y_test"))
    return X, y, other, truth


def principal(train: np.ndarray, test: np.ndarray, components: int) -> Pair:
    """Pixels that change, standardised and reduced to principal components, after an intercept."""
    changing = train.std(axis=0) > 0
    mean, scale = train[:, changing].mean(axis=0), train[:, changing].std(axis=0)
    train, test = ((part[:, changing] - mean) / scale for part in (train, test))
    directions = np.linalg.eigh((train.T @ train).astype(np.float64))[1][:, -components:].astype(np.float32)
    one, other = (np.column_stack([np.ones(len(part), np.float32), part @ directions]) for part in (train, test))
    return one, other


def flights(arrays: Mapping[str, np.ndarray]) -> Pair:
    """Arrival delay by departure delay, distance, air time, hour, month, day and airport (327,346 flights of 2013)."""
    table = dict(zip(arrays["columns"].tolist(), arrays["X"].astype(np.float64).T, strict=True))
    origin = np.eye(3)[arrays["origin"]][:, 1:]
    hour = table["sched_dep_time"] // 100 + table["sched_dep_time"] % 100 / 60
    numbers = [table["dep_delay"], table["distance"], table["air_time"], hour, table["month"], table["day"]]
    columns = standardised(np.stack(numbers, axis=1))
    return np.column_stack([np.ones(len(columns)), columns, origin]), table["arr_delay"]


def recordings(arrays: Mapping[str, np.ndarray], num_rows: int = 1_950_000) -> Pair:
    """Music, street noise and two normal sources, each with variance 1, and what four microphones make of them.

    As in Korattikara et al., with other recordings. Of the samples in time the first are taken, or evenly spaced ones.

    Returns:
        The mixtures, one line a row, and the matrix that mixed the sources.
    """
    generator = np.random.default_rng(0)
    heard = [arrays[name][:1_950_000][:: 1_950_000 // num_rows][:num_rows] for name in ("music", "street")]
    sources = np.stack([*heard, *generator.normal(size=(2, num_rows))], axis=1).astype(float)
    mixing = generator.normal(size=(4, 4))
    return (standardised(sources) @ mixing.T).astype(np.float32), mixing


def relevance(arrays: Mapping[str, np.ndarray], share: float = 0.8) -> tuple[Pair, Pair]:
    """A document relevant to a query or not (LETOR 4.0), by a constant and standardised features: to train on, to test.

    Rows come in the order of queries, so they are shuffled first; features that never change are dropped.
    """
    X, y = arrays["X"].astype(np.float64), (arrays["y"] > 0).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order][:, X.std(axis=0) > 0], y[order]
    train = int(share * len(y))
    mean, scale = X[:train].mean(axis=0), X[:train].std(axis=0)
    X = np.column_stack([np.ones(len(y)), (X - mean) / scale]).astype(np.float32)
    return (X[:train], y[:train]), (X[train:], y[train:])


def standardised(columns: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1."""
    return (columns - columns.mean(axis=0)) / columns.std(axis=0)
