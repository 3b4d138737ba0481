import builtins
import re

import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.diagnostics import plots
from tallmc.diagnostics.report import write_report
from tallmc.run import Session


def made_up_run(rule, num_draws, num_rows, samples=None):
    """A run like those of `tm.sample`, without the sampling."""
    generator = np.random.default_rng(num_draws)
    shape = (2, num_draws)
    default = {"mean": generator.normal(size=(*shape, 2)), "offset": generator.normal(size=shape)}
    rows = np.full(shape, num_rows) if isinstance(rule, tm.Exact) else 100 * generator.integers(1, 9, shape)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.2), rule)
    posterior = tm.Posterior(lambda position, row: -0.5 * row**2, jnp.zeros(num_rows), temperature=100.0)
    session = Session(kernel, posterior.model, tm.InMemoryFeed(num_rows, 100), 0, 0, None)
    return tm.Run(
        samples=default if samples is None else samples,
        stats={
            "accepted": generator.random(shape) < 0.5,
            "rows": rows,
            "nonfinite": np.zeros(shape, bool),
            "used_all_rows": rows == num_rows,
        },
        setup_rows=1000,
        seconds=1.0,
        interrupted=False,
        kernel=kernel,
        posterior=posterior,
        session=session,
    )


@pytest.fixture(scope="module")
def runs():
    return {"mini & batch": made_up_run(tm.MHMinibatch(), 60, 3000), "exact": made_up_run(tm.Exact(500), 10, 3000)}


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert write_report(runs, path, title="One <title>") == path
    return path.read_text(encoding="utf-8")


def test_report_is_self_contained(page):
    assert not re.search(r"(?:src|href)\s*=\s*['\"]?\s*(?:https?:)?//", page)
    assert "@import" not in page
    assert not re.search(r"<(?:script|link|iframe)\b", page)
    assert re.findall(r"src='([^,]*),", page) == ["data:image/png;base64"] * 4


def test_report_names_every_run_and_coordinate(page):
    for text in ("mini &amp; batch", "exact", "mean[0]", "mean[1]", "offset", "MHMinibatch", "One &lt;title&gt;"):
        assert text in page
    assert "<title>One <title>" not in page


def test_report_explains_its_plots(page):
    for heading in ("Estimates", "Cost", "Marginal distributions", "Rows read by each test", "Traces"):
        assert re.search(rf"<h2>{heading}</h2><p>[^<]", page)


def test_report_shows_notes(page, runs):
    assert page.count("class='note'") == sum(len(run.summary().notes) for run in runs.values())


def test_plotting_leaves_nothing_behind(runs, tmp_path):
    from matplotlib import pyplot, rcParams

    before = dict(rcParams)
    write_report({"only": runs["exact"]}, tmp_path / "report.html")
    assert pyplot.get_fignums() == []
    assert dict(rcParams) == before


@pytest.mark.filterwarnings("ignore")  # ArviZ warns that a constant has neither R-hat nor density
def test_chains_that_never_moved_can_be_reported(tmp_path):
    stuck = made_up_run(tm.Exact(), 20, 100, samples=np.zeros((2, 20)))
    assert write_report({"stuck": stuck}, tmp_path / "report.html").exists()


def test_only_the_first_coordinates_are_drawn(tmp_path):
    wide = made_up_run(tm.Exact(), 20, 100, samples=np.random.default_rng(0).normal(size=(2, 20, 3, 5)))
    page = write_report({"wide": wide}, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The first 12 of 15 coordinates are shown." in page
    assert "position[2, 4]" in page


def test_nothing_to_report_is_refused(runs, tmp_path):
    with pytest.raises(ValueError, match="no run to report"):
        write_report({}, tmp_path / "report.html")


def test_different_posteriors_are_refused(runs, tmp_path):
    other = made_up_run(tm.Exact(), 20, 100, samples=np.zeros((2, 20)))
    with pytest.raises(ValueError, match="different coordinates"):
        write_report({**runs, "other": other}, tmp_path / "report.html")


def test_missing_plotting_libraries_are_named(runs, tmp_path, monkeypatch):
    real_import = builtins.__import__

    def without_plots(name, *arguments):
        if name.startswith("arviz_plots"):
            raise ImportError(name)
        return real_import(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_plots)
    with pytest.raises(ImportError, match=r"pip install 'tallmc\[plots\]'"):
        write_report(runs, tmp_path / "report.html")


@pytest.mark.parametrize("step", [1, 50])
def test_every_test_has_a_bar(step):
    """Also tests that read nothing, and those that read everything."""
    edges = plots._row_bins(step, 3000)
    assert edges[0] < 0 < edges[1] < step < edges[2]
    assert edges[-1] > 3000
