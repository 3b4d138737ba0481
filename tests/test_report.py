import dataclasses
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.metadata import version
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.diagnostics import panels, plots, report
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


class Parsed(HTMLParser):
    """What a page is made of."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img", "br", "path", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def all(self, *tags):
        return [attributes for tag, attributes in self.tags if tag in tags]


@pytest.fixture(scope="module")
def parsed(page):
    return Parsed(page)


def test_a_report_needs_nothing_else(page, parsed):
    assert not parsed.open
    for _, attributes in parsed.tags:
        for name in ("src", "href", "srcset", "action", "data"):
            assert re.match(r"#|data:|$", attributes.get(name, ""))
    assert not parsed.all("script", "iframe", "object", "embed")
    assert "@import" not in page
    assert "url(" not in page
    assert "//" not in page.replace("</", "")


def test_a_report_is_read_by_people_and_machines(page, parsed):
    assert page.startswith("<!doctype html>")
    assert parsed.all("html")[0]["lang"] == "en"
    metas = parsed.all("meta")
    assert {"charset": "utf-8"} in metas
    assert any(meta.get("name") == "viewport" and "width=device-width" in meta["content"] for meta in metas)
    headings = [int(tag[1]) for tag, _ in parsed.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))
    pictures = parsed.all("svg", "img")
    assert len(pictures) == 3 + 2 * 3 + 1  # a density a coordinate, ranks for each run, and the rows
    assert all(one.get("aria-label") or one.get("alt") for one in pictures)


def test_a_report_has_two_themes_and_is_reached_by_the_keyboard(page, parsed):
    assert "prefers-color-scheme: dark" in page
    style = page[page.index("<style>") : page.index("</style>")]
    light, dark = (dict(re.findall(r"(--\w+): ([^;]+);", part)) for part in style.split("@media (prefers", 1))
    assert light.keys() == set(re.findall(r"--\w+", style))
    assert {"--paper", "--ink", "--soft", "--c0", "--doubt", "--tint"} <= dark.keys()
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {link["href"] for link in parsed.all("a")} == {f"#{name}" for name in ids}
    scrolled = [one for one in parsed.all("div") if one.get("class") == "wide"]
    assert all(one["tabindex"] == "0" and one["role"] == "region" and one["aria-label"] for one in scrolled)
    assert len(scrolled) == 2 + 1 + 2


PROBE = """<script>addEventListener('load', () => {
  const wanted = [...document.querySelectorAll('a[href], [tabindex]')];
  const reached = wanted.filter(one => { one.focus(); return document.activeElement === one; });
  console.log(`PROBE ${innerWidth} ${document.documentElement.scrollWidth} ${reached.length} ${wanted.length}`);
})</script></body>"""


@pytest.mark.slow
@pytest.mark.parametrize("theme", [[], ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]])
@pytest.mark.parametrize("width", [360, 1200])
def test_a_browser_shows_a_report_at_any_width_and_complains_of_nothing(page, tmp_path, width, theme):
    """In a frame, for a window has a least width; what is wider than the frame would have to be scrolled sideways."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no Chromium")
    (tmp_path / "page.html").write_text(page.replace("</body>", PROBE))
    (tmp_path / "frame.html").write_text(f"<iframe src='page.html' style='width: {width}px; height: 900px; border: 0'>")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", *theme]
    picture = tmp_path / "picture.png"
    shown = subprocess.run(
        [browser, *flags, "--window-size=1300,950", f"--screenshot={picture}", (tmp_path / "frame.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = [line for line in shown.stderr.splitlines() if ":CONSOLE:" in line]
    assert len(said) == 1, said
    inner, needed, reached, wanted = map(int, re.findall(r"PROBE (\d+) (\d+) (\d+) (\d+)", said[0])[0])
    assert inner == needed == width
    assert reached == wanted > 8
    assert picture.stat().st_size > 10_000


def luminance(colour):
    digits = colour.strip("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize(
    ("front", "back", "least"),
    [("ink", "paper", 7), ("soft", "paper", 4.5), ("soft", "tint", 4.5), ("link", "paper", 4.5), ("ink", "doubt", 7)]
    + [(f"c{k}", "tint", 2.8) for k in range(6)],
)
def test_colours_can_be_told_from_their_ground(page, theme, front, back, least):
    """Contrast as the guidelines for accessible pages define it: 4.5 for text, about 3 for lines."""
    light, dark = (dict(re.findall(r"--(\w+): ([^;]+);", part)) for part in page.split("@media (prefers", 1))
    colours = (light, light | dict(re.findall(r"--(\w+): ([^;]+);", page.split("@media (prefers")[1].split("} }")[0])))
    high, low = sorted((luminance(colours[theme][name]) for name in (front, back)), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= least
    assert dark


def test_report_names_every_run_and_coordinate(page):
    for text in ("mini &amp; batch", "exact", "mean[0]", "mean[1]", "offset", "MHMinibatch", "One &lt;title&gt;"):
        assert text in page
    assert "<title>One <title>" not in page


def test_report_explains_its_plots(page):
    for heading in (
        "Estimates",
        "Marginal distributions",
        "Do the chains agree",
        "Rows read by each test",
        "Cost",
        "How it was made",
    ):
        assert re.search(rf"<h2 id='[\w-]+'>{heading}</h2><p>[^<]", page)


def test_doubts_are_on_top(page, runs, tmp_path):
    notes = sum(len(run.summary().notes) for run in runs.values())
    assert page.count("<div class='note'>") + page.count("<div class='note said'>") == notes > 0
    doubted = dataclasses.replace(runs["exact"], known_doubts=("a <doubt>",))
    text = doubted.report(tmp_path / "report.html").read_text()
    assert "Nothing is known against" not in text
    assert text.index("</h1>") < text.index("a &lt;doubt&gt;") < text.index("class='tiles'") < text.index("<h2")


def test_what_is_no_doubt_is_told_apart(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(tm.Run, "convergence_doubts", ())
    monkeypatch.setattr(tm.MetropolisHastings, "notes", lambda self, stats, model: ["for your <information>"])
    text = dataclasses.replace(runs["exact"]).report(tmp_path / "report.html").read_text()
    assert "<div class='note said'>for your &lt;information&gt;</div>" in text
    assert "<div class='note good'>Nothing is known against these draws.</div>" in text
    assert "<div class='note'>" not in text


def test_report_says_how_it_was_made(runs, tmp_path):
    made = dataclasses.replace(runs["exact"], rng_key=4711, timing={"mode": 0.25, "audit": 0.0, "total": 0.5})
    text = made.report(tmp_path / "report.html").read_text()
    assert "<th scope='row'>seed or key</th><td>4711</td>" in text
    assert f"tallmc {version('tallmc')}, jax {version('jax')}" in text
    assert "mode 0.25 s" in text
    assert "audit 0 s" not in text


def test_rows_are_compared_with_those_of_nuts(page, runs):
    assert report.rows_of_nuts(runs["exact"]) == 7 * 3000
    assert report.rows_a_step(runs["exact"]) == 3000
    assert "the 21,000 of NUTS, if 7 gradients a draw" in page
    assert "an assumption, not a measurement" in page
    stats = {**runs["exact"].stats, "gradients": np.full((2, 10), 3)}
    followed = dataclasses.replace(runs["exact"], stats=stats)
    assert report.rows_a_step(followed) == 9000


def bars(panel):
    """Heights of the bars of each chain."""
    return [
        [float(h) for h in re.findall(r"v-([\d.]+)h", path)] for path in re.findall(r"<path d='(M[^']*v[^']*)'", panel)
    ]


def test_ranks_of_chains_that_agree_are_uniform_and_others_are_not():
    draws = np.random.default_rng(0).normal(size=(4, 2000))
    alike = np.asarray(bars(panels.rank_panel("x", draws, 8000.0, "")))
    assert alike.shape == (4, 20)
    assert np.abs(alike - 13).max() < 0.45 * 13  # 13 is where the line is; chance is a tenth of it
    draws[0] += 1
    apart = np.asarray(bars(panels.rank_panel("x", draws, 8000.0, "")))
    assert apart[0, :5].max() < 0.6 * 13 < 1.4 * 13 < apart[0, -3:].min()


def test_a_density_is_of_its_draws():
    low, high = (np.random.default_rng(0).normal(at, 0.1, size=(2, 500)) for at in (-3.0, 3.0))
    panel = panels.density_panel("x", [low, high, np.zeros((2, 5))])
    peaks = []
    for path in re.findall(r"<path d='M([^']*)' class='curve'", panel):
        points = np.asarray([[float(n) for n in pair.split()] for pair in path.split("L")])
        peaks.append(points[points[:, 1].argmin(), 0])
    assert len(peaks) == 2  # a constant has no density
    assert peaks[0] < 60 < 220 < peaks[1]


def test_no_plotting_library_is_needed(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "arviz_plots", None)
    assert "<svg" in write_report(runs, tmp_path / "report.html").read_text()


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


def test_missing_plotting_libraries_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_plots", None)
    with pytest.raises(ImportError, match=r"pip install 'tallmc\[plots\]'"):
        plots.import_plotting()


def test_steps_of_several_tests_are_counted_too(runs):
    """Those of a ladder read all rows several times."""
    stats = {**runs["exact"].stats, "rows": np.full((2, 10), 9000)}
    heights, edges, most = plots.row_counts({"ladder": dataclasses.replace(runs["exact"], stats=stats)})
    assert most == 3000
    assert np.sum(heights[0] * np.diff(edges)) == 20


@pytest.mark.parametrize("step", [1, 50])
def test_every_test_has_a_bar(step):
    """Also tests that read nothing, and those that read everything."""
    edges = plots._row_bins(step, 3000)
    assert edges[0] < 0 < edges[1] < step < edges[2]
    assert edges[-1] > 3000
