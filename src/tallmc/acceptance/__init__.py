"""Acceptance rules, one a file."""

from tallmc.acceptance.correction import CorrectionLaw, RidgeCorrection, correction_law, ridge_correction
from tallmc.acceptance.exact import Exact
from tallmc.acceptance.exact_barker import ExactBarker
from tallmc.acceptance.mh_minibatch import MHMinibatch

__all__ = [
    "CorrectionLaw",
    "Exact",
    "ExactBarker",
    "MHMinibatch",
    "RidgeCorrection",
    "correction_law",
    "ridge_correction",
]
