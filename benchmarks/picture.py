"""Draws docs/cost-of-a-draw.svg, the picture of the README: `python -m benchmarks.picture`.

It measures nothing. The figures are those of docs/benchmarks.md, section "Flat in N", measured by `python -m benchmarks
flat` on two shared CPU cores; tests/test_docs.py checks that they are still the ones printed there. After a new
measurement change both, and draw again.
"""

from functools import partial
from pathlib import Path

# Effective draws a second by number of rows. Only sizes that were measured.
TALLMC = {  # the table "tallmc alone", column "effective draws/s"
    10_000: 763_154,
    100_000: 997_530,
    1_000_000: 934_623,
    10_000_000: 893_520,
}
NUTS = {  # the tables "10^5 rows" and "10^6 rows", the lines of NumPyro's NUTS; other sizes were not measured
    100_000: 386,
    1_000_000: 25.3,
}

TARGET = Path(__file__).parents[1] / "docs" / "cost-of-a-draw.svg"
BLUE, ORANGE, GREY = "#0072b2", "#c44e00", "#555555"
CAPTION = (
    "Logistic regression with 20 columns, two shared CPU cores. Time of sampling alone, in the coordinate with fewest\n"
    "effective draws; set-up, warm-up and compilation not counted. NUTS was measured at two sizes only.\n"
    'Source: docs/benchmarks.md, tables of "Flat in N".'
)


def main() -> None:
    """Draws both curves and writes the file, the same bytes for the same figures."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FixedLocator, NullLocator

    mpl.use("svg")
    mpl.rcParams.update({"font.size": 12, "font.family": "DejaVu Sans", "svg.hashsalt": "tallmc"})
    figure, axes = plt.subplots(figsize=(8.4, 4.9), facecolor="white")
    axes.set_facecolor("white")
    for rates, colour, name, lift in ((TALLMC, BLUE, "tallmc", 9), (NUTS, ORANGE, "NUTS (NumPyro)", -19)):
        seconds = {rows: 1 / rate for rows, rate in rates.items()}
        axes.plot(list(seconds), list(seconds.values()), "o-", color=colour, linewidth=2.2, markersize=7)
        write = partial(axes.annotate, textcoords="offset points", color=colour)
        for rows, value in seconds.items():
            write(_in_words(value), (rows, value), (0, lift), ha="center", bbox={"fc": "white", "ec": "none", "pad": 1})
        last = list(seconds.items())[-1]
        write(name, last, (16, 0), va="center", weight="bold")
    axes.set(xscale="log", yscale="log", xlim=(6_000, 36_000_000), ylim=(4e-7, 0.2), xlabel="rows of data")
    axes.set_title("Time for one effective draw", loc="left", fontsize=13)
    axes.xaxis.set_major_locator(FixedLocator(list(TALLMC)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(["10,000", "100,000", "1 million", "10 million"])
    ticks = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticklabels(["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms"])
    axes.grid(axis="y", color="#e5e5e5")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.text(0.015, 0.015, CAPTION, fontsize=9, color=GREY, va="bottom", linespacing=1.4)
    figure.subplots_adjust(left=0.1, right=0.985, top=0.92, bottom=0.28)
    figure.savefig(TARGET, metadata={"Date": None})
    print(f"wrote {TARGET.relative_to(TARGET.parents[1])}")


def _in_words(seconds: float) -> str:
    """With two digits, in the unit that suits.

    Example:
        >>> _in_words(0.0026), _in_words(1.31e-6)
        ('2.6 ms', '1.3 µs')
    """
    scale, unit = (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    number = scale * seconds
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"


if __name__ == "__main__":
    main()
