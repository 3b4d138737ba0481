"""Acceptance rules, one a file."""

from tallmc.acceptance.always_accept import AlwaysAccept
from tallmc.acceptance.austere_mh import AustereMH
from tallmc.acceptance.austere_mh_per_step import AustereMHPerStep
from tallmc.acceptance.contract import (
    AcceptanceRule,
    Guarantee,
    Promise,
    Question,
    SelectiveRule,
    Verdict,
)
from tallmc.acceptance.correction import CorrectionLaw, RidgeCorrection, correction_law, ridge_correction
from tallmc.acceptance.exact import Exact
from tallmc.acceptance.exact_barker import ExactBarker
from tallmc.acceptance.formulas import BARKER, METROPOLIS, Formula
from tallmc.acceptance.mh_minibatch import MHMinibatch
from tallmc.acceptance.mh_sub_lhd import MHSubLhd
from tallmc.acceptance.mhss import MHSS
from tallmc.acceptance.mint import Mint
from tallmc.acceptance.tuna_mh import TunaMH
from tallmc.numerics import schedule

__all__ = [
    "BARKER",
    "METROPOLIS",
    "MHSS",
    "AcceptanceRule",
    "AlwaysAccept",
    "AustereMH",
    "AustereMHPerStep",
    "CorrectionLaw",
    "Exact",
    "ExactBarker",
    "Formula",
    "Guarantee",
    "MHMinibatch",
    "MHSubLhd",
    "Mint",
    "Promise",
    "Question",
    "RidgeCorrection",
    "SelectiveRule",
    "TunaMH",
    "Verdict",
    "correction_law",
    "ridge_correction",
    "schedule",
]
