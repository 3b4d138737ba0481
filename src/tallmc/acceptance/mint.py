"""The Metropolis test on a fixed minibatch, at the temperature where its noise is harmless."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Real

from tallmc.acceptance.contract import AcceptanceRule, Guarantee, Promise, Question, Verdict, check_batch_size
from tallmc.acceptance.formulas import METROPOLIS
from tallmc.feed import Drawn, Needs, Window
from tallmc.numerics.arithmetic import rounded
from tallmc.numerics.moments import Moments
from tallmc.posterior import Model


class BatchEvidence(eqx.Module):
    """A batch's moments and the level that the estimate must exceed."""

    moments: Moments
    level: Real[Array, ""]
    num_rows: int = eqx.field(static=True)


class Mint(AcceptanceRule[BatchEvidence]):
    """A Metropolis test on `batch_size` rows that targets temperature rows^(1 - exponent) (MINT; Li and Wong, 2017).

    The mean log ratio of one batch, the same rows for both positions, times rows^exponent takes the place of the log
    ratio over all rows. So the chain samples at a high temperature, on top of the posterior's own, and for one batch
    a step. It finds and crosses between modes; it is not a way to the posterior at temperature 1.

    The paper's proof has every position keep the estimate of the batch it was accepted with. Such a chain misses the
    tempered posterior by exp(noise variance / 2) and freezes when the exponent nears log(batch_size) / log(rows). With
    one fresh batch for both positions the noise is that of a difference, and what is left of it makes the target a
    little hotter. The summary of a run says by how much.

    Args:
        batch_size: Rows of a test.
        exponent: The paper's lambda, below log(batch_size) / log(rows). At half of that the noise is harmless.

    Example:
        >>> rule = Mint(batch_size=1000, exponent=0.25)
        >>> round(1 / rule.promise.inverse_temperature(10**6))
        31623
    """

    batch_size: int = eqx.field(static=True)
    exponent: float = eqx.field(static=True)

    def __init__(self, batch_size: int, exponent: float):
        check_batch_size(batch_size)
        if not (math.isfinite(exponent) and exponent >= 0):
            raise ValueError(
                f"exponent must not be negative, got {exponent}; it lies below log(batch_size) / log(rows)"
            )
        self.batch_size, self.exponent = int(batch_size), float(exponent)

    def check(self, model: Model, drawn: Drawn) -> None:
        """The exponent must leave the noise bounded."""
        del drawn
        if model.expanded:
            raise ValueError(
                "Mint tempers what rows say, and a Taylor expansion says most of it; leave control_variate out"
            )
        num_rows = model.num_rows
        limit = math.log(min(self.batch_size, num_rows)) / math.log(num_rows) if num_rows > 1 else math.inf
        if limit == 0:
            raise ValueError(f"batches of {self.batch_size} row are too small for Mint; take some hundreds")
        if self.exponent >= limit:
            raise ValueError(
                f"exponent = {self.exponent} is too large for batches of {self.batch_size} of {num_rows} rows: it must "
                f"be below log(batch_size) / log(rows) = {limit:.4f}. Lower it, to {limit / 2:.4f} or so, where the "
                "noise of a batch is harmless; or take larger batches"
            )

    @property
    def promise(self) -> Promise:
        """Metropolis' formula for large batches, at a temperature that depends on the number of rows."""
        return Promise(
            Guarantee.ASYMPTOTIC,
            METROPOLIS,
            "li2017mini",
            trusts_normality=True,
            inverse_temperature=lambda num_rows: float(num_rows) ** (self.exponent - 1),
        )

    @property
    def needs(self) -> Needs:
        """One batch of rows that come each once; its size decides how hot the noise makes the chain."""
        return Needs(self.batch_size)

    def init(self, key: Array, question: Question, model: Model) -> BatchEvidence:
        """Draws the level to exceed."""
        level = METROPOLIS.level(key, question.offset)
        return BatchEvidence(Moments.empty(level.dtype), level, model.num_rows)

    def observe(self, evidence: BatchEvidence, log_ratios: Real[Array, " rows"], window: Window) -> BatchEvidence:
        """Adds the batch; a window may be partial, and then another one follows."""
        moments = evidence.moments.merge(Moments.of(log_ratios, window.valid, window.count))
        return BatchEvidence(moments, evidence.level, evidence.num_rows)

    def verdict(self, evidence: BatchEvidence) -> Verdict:
        """Decides from the first whole batch."""
        moments, num_rows = evidence.moments, evidence.num_rows
        estimate = float(num_rows) ** self.exponent * moments.mean
        return Verdict(moments.count >= min(self.batch_size, num_rows), estimate > evidence.level)

    def stats(self, evidence: BatchEvidence) -> dict[str, Array]:
        """The estimated variance of the log ratio that decided."""
        moments, num_rows = evidence.moments, float(evidence.num_rows)
        count = jnp.maximum(moments.count, 1)
        noise = num_rows ** (2 * self.exponent) * moments.variance / count * (1 - rounded(count / num_rows))
        return {"skewness": moments.skewness, "noise": noise}

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """The temperature that the chain sampled at, as asked for and with the noise of the batches."""
        own = float(model.temperature)
        nominal = own / self.promise.inverse_temperature(model.num_rows)
        noise = stats["noise"][stats["accepted"]]
        note = f"Mint samples at temperature {nominal:,.0f}, not at {own:g}"
        if noise.size:
            hotter = nominal / float(np.mean(noise_slope(noise)))
            note += f"; the noise of its batches (variance {noise.mean():.2g}) makes that up to about {hotter:,.0f}"
        return [note]


def noise_slope(variance: ArrayLike) -> np.ndarray | float:
    """What normal noise in a Metropolis test makes of a small log ratio x, as a factor.

    The noisy test accepts x with probability a(x) = E min(1, exp(x + noise)), and the chain behaves as if the log ratio
    were log a(x) / a(-x). The slope of that at zero is 1 without noise and falls with it: the target is hotter by up to
    its inverse. Larger log ratios suffer less.

    Example:
        >>> print(f"{noise_slope(0.0):.3f} {noise_slope(1.0):.3f}")
        1.000 0.687
    """
    from scipy.special import log_ndtr

    variance = np.asarray(variance, float)
    stays = np.exp(variance / 2 + log_ndtr(-np.sqrt(variance)))
    return 2 * stays / (0.5 + stays)
