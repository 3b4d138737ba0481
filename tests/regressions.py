"""Regressions with known makings, for the tests of the optimiser."""

import numpy as np
import scipy.optimize

import tallmc as tm

NUM_ROWS, NUM_COLUMNS = 20_000, 6


def features(num_rows=NUM_ROWS, num_columns=NUM_COLUMNS, seed=0):
    X = np.random.default_rng(seed).normal(size=(num_rows, num_columns))
    X[:, 0] = 1
    return X


def targets(name, X, seed=1):
    generator = np.random.default_rng(seed)
    predictor = X @ np.linspace(0.5, -0.4, X.shape[1])
    if name == "poisson":
        return generator.poisson(np.exp(predictor)).astype(float)
    if name == "softplus_poisson":
        return generator.poisson(np.logaddexp(0, predictor)).astype(float)
    if name == "least_absolute_deviation":
        return predictor + generator.laplace(size=len(X))
    noise = generator.logistic(size=len(X)) if name == "logistic" else generator.normal(size=len(X))
    return (predictor + noise > 0).astype(float)


PROBLEMS = {
    "logistic": tm.optimise.Logistic,
    "probit": tm.optimise.Probit,
    "poisson": tm.optimise.Poisson,
    "softplus_poisson": tm.optimise.SoftplusPoisson,
    "least_absolute_deviation": tm.optimise.LeastAbsoluteDeviation,
}


def problem(name, dtype=np.float64, **options):
    X = features()
    return PROBLEMS[name](X.astype(dtype), targets(name, X).astype(dtype), **options)


def scipy_optimum(ours):
    def loss(position):
        sums = ours.sums(position, ours.data, curvature=False) + ours.prior(position)
        return sums.loss, -sums.score

    return scipy.optimize.minimize(loss, np.zeros(ours.dimension), jac=True, method="BFGS", options={"gtol": 1e-6}).x
