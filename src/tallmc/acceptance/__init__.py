"""Acceptance rules, one a file."""

from tallmc.acceptance.austere_mh import AustereMH
from tallmc.acceptance.austere_mh_per_step import AustereMHPerStep
from tallmc.acceptance.correction import CorrectionLaw, RidgeCorrection, correction_law, ridge_correction
from tallmc.acceptance.exact import Exact
from tallmc.acceptance.exact_barker import ExactBarker
from tallmc.acceptance.mh_minibatch import MHMinibatch
from tallmc.acceptance.mh_sub_lhd import MHSubLhd
from tallmc.acceptance.mint import Mint

__all__ = [
    "AustereMH",
    "AustereMHPerStep",
    "CorrectionLaw",
    "Exact",
    "ExactBarker",
    "MHMinibatch",
    "MHSubLhd",
    "Mint",
    "RidgeCorrection",
    "correction_law",
    "ridge_correction",
]
