"""Names of models on the command line."""

import enum


class ModelName(enum.StrEnum):
    """The regressions that a file can be sampled with."""

    LOGISTIC = "logistic"
    PROBIT = "probit"
    LINEAR = "linear"
    ROBUST = "robust"
    POISSON = "poisson"
