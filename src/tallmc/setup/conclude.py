"""The end of a call: the audit, what is written down of it, and what the caller is warned of."""

import warnings

from tallmc.acceptance.normality import NormalityWarning
from tallmc.console.progress import working
from tallmc.diagnostics.audit import Audit, audit
from tallmc.diagnostics.audit_programs import steps_worth_auditing
from tallmc.fields import SiteUpdates
from tallmc.metropolis import MetropolisHastings
from tallmc.run.convergence import ConvergenceWarning
from tallmc.run.result import Run
from tallmc.run.saving import result_of
from tallmc.run.shared_store import SharedStore
from tallmc.run.store import Store
from tallmc.run.timing import Timing

_TOLERATED_ERROR = 0.01


def concluded(run: Run, timing: Timing, store: Store | SharedStore | None, *, automatic: bool, progress: bool) -> Run:
    """The run with its audit, if nobody chose its kernel, and its timing.

    Args:
        run: With all its draws.
        timing: Of the call.
        store: Where it is kept, or None.
        automatic: Whether set-up chose the kernel, and the rows can be asked again.
        progress: Whether to say what takes a while.
    """
    num_steps = steps_worth_auditing(run.session.kernel, run.session.model) if automatic else 0
    if num_steps and run.num_draws > 1 and not run.interrupted:
        try:
            with timing.phase("audit"), working("auditing steps on all rows (Ctrl-C skips it)", show=progress):
                found = audit(run, num_steps, seconds=timing.worth_an_audit())
            run = run.changed(audit=found, known_doubts=run.known_doubts + _objections(found))
        except KeyboardInterrupt:  # the draws are there; whoever is in a hurry may have them
            stopped = "the audit was stopped before it had an answer"
            run = run.changed(known_doubts=(*run.known_doubts, stopped))
    finished = run.changed(timing={})
    warn(finished)
    finished.timing.update(timing.total())  # last: R-hat of thousands of chains takes its time as well
    if store is not None:
        store.checkpoint(finished.session, {}, seconds=finished.seconds - store.seconds, result=result_of(finished))
    return finished


def warn(run: Run) -> None:
    """Raises as warnings what speaks against a run."""
    seen = run.thinned
    for number, part in enumerate(run.kernel.parts()):
        for warning in part.warnings(seen.part_stats(number)):
            trusting = isinstance(part, MetropolisHastings | SiteUpdates) and part.rule.promise.trusts_normality
            warnings.warn(warning, NormalityWarning if trusting else UserWarning, stacklevel=5)
    for warning in () if seen.exchanges is None else seen.exchanges.warnings:
        warnings.warn(warning, UserWarning, stacklevel=5)
    for doubt in seen.doubts:
        kind = ConvergenceWarning if doubt in seen.convergence_doubts else UserWarning
        warnings.warn(doubt, kind, stacklevel=5)


def _objections(found: Audit) -> tuple[str, ...]:
    """What an audit has against a run; nothing, if what it found may be chance."""
    if found.interval[0] <= _TOLERATED_ERROR:
        return ()
    return (f"the decisions of this run do not stand up to all rows; {found}",)
