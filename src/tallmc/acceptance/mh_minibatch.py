"""Barker's test from a minibatch, with the noise of the minibatch as part of the test."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Real

from tallmc.acceptance.contract import AcceptanceRule, Guarantee, Promise, Question, Verdict, check_batch_size
from tallmc.acceptance.correction import correction_law
from tallmc.acceptance.formulas import BARKER
from tallmc.feed import Drawn, Needs, Window
from tallmc.numerics.arithmetic import rounded
from tallmc.numerics.flat import as_device_array
from tallmc.numerics.moments import Moments
from tallmc.posterior import Model

# Where a figure below is called a judgement, no measurement of other values is on record.
_PILOT_SIZE = 32  # the variance of normal rows is then known to 25 %, which the next figures allow for. A judgement
_FEWEST_DECISIVE_ROWS = 50  # below this a mean of skewed rows is not normal enough. A judgement
_INFLATION = 1.5  # rows to read for each that the pilot asks for, because it may be wrong: two of its standard errors
# A noise variance this many times too large shows that the pilot was wrong. A judgement; nearer to 1, tests would be
# stopped by the rows that decide, and that bias is what the pilot is there to avoid (docs/mh-minibatch.md).
_GROSSLY_WRONG = 2.0
# Of the decisive rows in the variance, so that the skewness of rows cancels. Measured, at 100 decisive rows: the chance
# to accept is off by -0.0005; with a share of 1 it is off by +0.0017, with 0 by -0.0023 (docs/benchmarks.md).
_OWN_SHARE = 1 / 3
_NEGLIGIBLE = 0.01  # share of the test's own noise below which the shape of the rows' cannot matter. A judgement
# A log ratio that is beyond doubt, since logistic noise exceeds 20 with chance 2e-9; and the standard errors by which
# it must be so, many because the error is estimated. A judgement, for proposals so far off that tests on rows drawn by
# weight went on without end.
_OBVIOUS, _SURE = 20.0, 8.0


class MinibatchEvidence(eqx.Module):
    """Moments of the rows that plan the test and of the rows that decide it, and the test's own noise."""

    pilot: Moments
    test: Moments
    seen: Int[Array, ""]
    offset: Real[Array, ""]
    correction: Real[Array, ""]
    normal: Real[Array, ""]
    num_rows: int = eqx.field(static=True)
    with_replacement: bool = eqx.field(static=True)


class MHMinibatch(AcceptanceRule[MinibatchEvidence]):
    r"""Barker's test on a few hundred rows (Seita et al., 2018, Algorithm 1), without its stopping bias.

    The estimated log ratio of a minibatch is the true one plus nearly normal noise. Topped up with normal noise to
    variance sigma^2, and with a draw of `correction_law(sigma)`, that noise is logistic, and the sign of the sum is
    Barker's test, whatever the number of rows.

    The paper adds rows while their estimated variance is too large, so that the rows which say *stop* are the rows
    which decide; with skewed log ratios that moves the acceptance probability by up to 0.03. Here the first rows, the
    pilot, only say how many others will decide. Those others' noise is topped up by a variance estimated to one third
    from themselves and to two thirds from the pilot: a known variance would leave a skewness error of -1/6 of the
    noise's third cumulant, the decisive rows' own estimate adds 1/2, and -1/6 + 1/2 * 1/3 = 0.

    Args:
        batch_size: Rows read at a time.
        sigma: Standard deviation at which the estimate's noise is good enough. 1.4 halves the rows and costs an
            error of 5e-4 (`tm.correction_law(1.4).max_error`).
        max_error: Reads on until the estimated error of the acceptance probability is below this; None: no limit.

    Example:
        >>> MHMinibatch(batch_size=50).promise.guarantee.value
        'asymptotic'
    """

    batch_size: int = eqx.field(static=True)
    max_error: float | None = eqx.field(static=True)
    sigma: float = eqx.field(static=True)
    law_error: float = eqx.field(static=True)
    atoms: Real[Array, " k"]
    cumulative: Real[Array, " k"]

    def __init__(self, batch_size: int = 100, sigma: float = 1.0, max_error: float | None = None):
        check_batch_size(batch_size)
        law = correction_law(sigma)
        if max_error is not None and not max_error > law.max_error:
            raise ValueError(
                f"max_error = {max_error} is out of reach: the correction law at sigma = {sigma} is itself accurate to "
                f"{law.max_error:.1e}; allow a larger error or use a smaller sigma"
            )
        self.batch_size = int(batch_size)
        self.max_error = max_error
        self.sigma = float(sigma)
        self.law_error = law.max_error
        self.atoms = as_device_array(law.atoms, jnp.result_type(float))
        self.cumulative = as_device_array(np.cumsum(law.masses)[:-1], jnp.result_type(float))

    @property
    def promise(self) -> Promise:
        """Barker's formula, as the means of its rows become normal."""
        return Promise(Guarantee.ASYMPTOTIC, BARKER, "seita2018efficient", draws_level=False, trusts_normality=True)

    @property
    def needs(self) -> Needs:
        """Batches, until they are enough."""
        return Needs(self.batch_size, drawn=(Drawn.EACH_ONCE, Drawn.BY_WEIGHT))

    def init(self, key: Array, question: Question, model: Model) -> MinibatchEvidence:
        """Draws the correction and the normal noise."""
        offset = question.offset
        key_correction, key_normal = jax.random.split(key)
        uniform = jax.random.uniform(key_correction, (), self.cumulative.dtype)
        correction = self.atoms[jnp.sum(uniform > self.cumulative)]
        empty = Moments.empty(offset.dtype)
        normal = jax.random.normal(key_normal, (), offset.dtype)
        correction = correction.astype(offset.dtype)
        drawn = question.drawn is Drawn.BY_WEIGHT
        return MinibatchEvidence(empty, empty, jnp.int32(0), offset, correction, normal, model.num_rows, drawn)

    def observe(
        self, evidence: MinibatchEvidence, log_ratios: Real[Array, " rows"], window: Window
    ) -> MinibatchEvidence:
        """The first rows of a test plan it, all others decide it."""
        split = min(_PILOT_SIZE, window.size)
        head_count = jnp.minimum(window.count, split)
        head = Moments.of(log_ratios[:split], window.valid[:split], head_count)
        tail = Moments.of(log_ratios[split:], window.valid[split:], window.count - head_count)
        planning = evidence.seen < _PILOT_SIZE
        pilot = evidence.pilot.merge(head.only_if(planning))
        test = evidence.test.merge(tail).merge(head.only_if(~planning))
        seen = evidence.seen + window.count
        return eqx.tree_at(lambda e: (e.pilot, e.test, e.seen), evidence, (pilot, test, seen))

    def verdict(self, evidence: MinibatchEvidence) -> Verdict:
        """Decides once the decisive rows are as many as planned, or no row is left."""
        num_rows = float(evidence.num_rows)
        pilot, test = evidence.pilot, evidence.test
        all_seen = evidence.seen >= evidence.num_rows
        planned = pilot.variance * num_rows**2
        if evidence.with_replacement:
            needed = planned / (self.sigma**2 / _INFLATION)
        else:
            needed = planned / (self.sigma**2 / _INFLATION + rounded(planned / num_rows))
        noise = self._noise_variance(evidence)
        # To read on whenever the noise looks a little too large would bring the stopping bias back.
        enough = (test.count >= jnp.maximum(needed, _FEWEST_DECISIVE_ROWS)) & (noise < _GROSSLY_WRONG * self.sigma**2)
        if self.max_error is not None:
            enough &= self._error(evidence) <= self.max_error

        if evidence.with_replacement:
            # Rows never run out, and far proposals may need more of them than there are; but these are easy.
            estimate = jnp.abs(evidence.offset + rounded(num_rows * test.mean))
            obvious = estimate > _OBVIOUS + rounded(_SURE * jnp.sqrt(noise))
            enough |= obvious & (test.count >= _FEWEST_DECISIVE_ROWS)
        known = all_seen & (not evidence.with_replacement)  # as many draws as there are rows are not all rows
        mean = jnp.where(known, pilot.merge(test).mean, test.mean)
        missing = self.sigma**2 - jnp.where(known, 0, noise)
        top_up = rounded(evidence.normal * jnp.sqrt(jnp.maximum(missing, 0)))
        total = evidence.offset + rounded(num_rows * mean) + top_up + evidence.correction
        return Verdict(enough | known, total > 0)

    def stats(self, evidence: MinibatchEvidence) -> dict[str, Array]:
        """The estimated error of the acceptance probability, and the skewness of the rows that decided."""
        # Noise that is next to nothing, as after a control variate, may have any shape.
        matters = self._noise_variance(evidence) > _NEGLIGIBLE * self.sigma**2
        return {"error": self._error(evidence), "skewness": jnp.where(matters, evidence.test.skewness, 0)}

    def _noise_variance(self, evidence: MinibatchEvidence) -> Real[Array, ""]:
        """Variance of the estimated log ratio, rows being drawn without replacement unless they come by weight."""
        num_rows = float(evidence.num_rows)
        own, planned = rounded(_OWN_SHARE * evidence.test.variance), rounded((1 - _OWN_SHARE) * evidence.pilot.variance)
        count = jnp.maximum(evidence.test.count, 1)
        variance = (own + planned) * num_rows**2 / count
        return variance if evidence.with_replacement else variance * (1 - rounded(count / num_rows))

    def _error(self, evidence: MinibatchEvidence) -> Real[Array, ""]:
        """First Edgeworth term of the estimate's noise, plus the law's own error.

        A third cumulant k shifts the CDF of the sum by at most k / 6 times the largest third derivative of the
        logistic function, 1/8.
        """
        noise = self._noise_variance(evidence)
        cumulant = evidence.test.skewness * noise * jnp.sqrt(noise / jnp.maximum(evidence.test.count, 1))
        return rounded(jnp.abs(cumulant) / 48) + self.law_error
