"""The command line: arguments in, one clear line out where they are wrong."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from typer.core import TyperGroup

import tallmc
from tallmc.commands.model_names import ModelName

# Typer carries its own copy of Click or not, by version; what it raises for bad arguments is this in both cases.
_UsageError: Any = typer.BadParameter.__base__


class _OneLineErrors(TyperGroup):
    """Says what is wrong with the input in one line on stderr and exits with code 2."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **extra: Any) -> Any:  # pyright: ignore
        """Runs a command; `ValueError` is how the library says that an argument is wrong."""
        args = list(sys.argv[1:] if args is None else args) or ["--help"]
        extra.update(standalone_mode=False, prog_name="tallmc")
        try:
            code = super().main(args, *others, **extra)
        except _UsageError as error:
            command = error.ctx.command_path if error.ctx else "tallmc"
            _fail(f"{error.format_message()} (see {command} --help)", error.exit_code)
        except (ValueError, OSError) as error:
            _fail(str(error), 2)
        except (KeyboardInterrupt, typer.Abort):
            _fail("interrupted", 130)
        else:
            sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    print(f"tallmc: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


app = typer.Typer(cls=_OneLineErrors, add_completion=False, rich_markup_mode="markdown")


def _show_version(wanted: bool) -> bool:
    if wanted:
        print(f"tallmc {tallmc.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Bayesian posteriors over millions of rows, at a few rows a step."""
    del version


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=1, help="Rows to generate.")] = 1_000_000,
    columns: Annotated[int, typer.Option(min=1, help="Columns, the intercept included.")] = 10,
    temperature: Annotated[float, typer.Option(help="Divides the log likelihood.")] = 1.0,
    draws: Annotated[int, typer.Option(min=20, help="Draws of each chain; fewer if all rows are read.")] = 20_000,
    warmup: Annotated[int, typer.Option(min=0, help="Draws before those, to tune the step size.")] = 1_000,
    chains: Annotated[int, typer.Option(min=1, help="Chains of either run.")] = 4,
    exact_seconds: Annotated[float, typer.Option(min=0.1, help="Time for the run that reads all rows.")] = 25.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the rows and the chains.")] = 0,
    report: Annotated[Path, typer.Option(help="Where to write the report.")] = Path("tallmc-demo.html"),
) -> None:
    """Logistic regression on generated rows: what tm.sample chooses against tests on all rows.

    Both run on the same rows with the same proposals, one after the other. Prints both posteriors side by side, how
    far they agree, what either cost and the ratio of their speeds; writes an HTML report. Takes about a minute on two
    cores.
    """
    from tallmc.commands.demo import DemoSettings, run_demo

    settings = DemoSettings(
        rows=rows,
        columns=columns,
        temperature=temperature,
        draws=draws,
        warmup=warmup,
        chains=chains,
        exact_seconds=exact_seconds,
        seed=seed,
        report=report,
    )
    run_demo(settings, _console())


@app.command()
def sample(
    source: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows: a .parquet, .csv or .npz file.")],
    model: Annotated[ModelName, typer.Option(help="Which regression.")],
    target: Annotated[str, typer.Option(help="Column of outcomes.")],
    out: Annotated[Path, typer.Option(help="Folder to write the run to, for tm.load; such as run.zarr.")],
    columns: Annotated[
        str, typer.Option(help="Columns to use, with commas between.", show_default="all but the target")
    ] = "",
    intercept: Annotated[bool, typer.Option(help="Whether to add an intercept.")] = True,
    prior_precision: Annotated[
        float, typer.Option(min=0.0, help="Of the coefficients' normal prior; 0 is flat.")
    ] = 1.0,
    draws: Annotated[int, typer.Option(min=1, help="Draws of each chain.")] = 1_000,
    warmup: Annotated[int, typer.Option(min=0, help="Draws before those, to tune the step size.")] = 1_000,
    chains: Annotated[int, typer.Option(min=1, help="Independent chains.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Of the chains.")] = 0,
    report: Annotated[
        Path | None, typer.Option(help="Where to write the report.", show_default="beside the run")
    ] = None,
) -> None:
    """Sample a regression from a file of rows.

    Reads the columns, draws by tm.sample, writes the run, prints a summary and writes an HTML report.

    Example: `tallmc sample flights.parquet --model logistic --target late --out run.zarr`
    """
    from tallmc.commands.sample import SampleSettings, run_sample

    settings = SampleSettings(
        source=source,
        model=model,
        target=target,
        out=out,
        columns=tuple(name.strip() for name in columns.split(",") if name.strip()),
        intercept=intercept,
        prior_precision=prior_precision,
        draws=draws,
        warmup=warmup,
        chains=chains,
        seed=seed,
        report=report,
    )
    run_sample(settings, _console())


@app.command()
def design(
    max_error: Annotated[
        float,
        typer.Option(
            help="Largest error, between 0 and 0.5: of a decision in the hardest case; with --moves, of the acceptance "
            "probability, averaged over the moves."
        ),
    ],
    rows: Annotated[int, typer.Option(min=1, help="Rows of the data.")],
    moves: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="File with moves of a trial run (.npz or .csv): `log_ratio` and `spread`, one entry a move, as "
            "`tm.design.trial_moments` gives them.",
            show_default="none: design for the hardest case",
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Where to write the curves as PNG; needs matplotlib.", show_default="nowhere")
    ] = None,
) -> None:
    """Find the sequential test (AustereMH) that reads the fewest rows within an error.

    Tries batch sizes and boundaries, each with the largest epsilon that keeps the error. Prints them in a table, draws
    error and share of rows read against mu_std (how clear a case is) for the cheapest, and ends with the line of
    Python that builds it. Takes seconds; no data is read.
    """
    from tallmc.commands.design import DesignSettings, run_design

    run_design(DesignSettings(max_error=max_error, rows=rows, moves=moves, picture=picture), _console())


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Experiments.", show_default="list them")
    ] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Run every experiment.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small size: minutes for all of them on two cores.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure again what an earlier run kept.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Where to write one HTML page of all results.", show_default="nowhere")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of public data.", show_default="TALLMC_DATA, else fetched")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for numbers, draws and pictures.")] = Path("tallmc-reproduced"),
) -> None:
    """Run experiments of the papers again, and put what comes out beside what was printed.

    Without a name, lists them. Each line has the paper's figure, ours, the tolerance, and whether it holds; a line that
    differs comes with the reason. Numbers (JSON), draws and pictures (SVG) are written to a folder. An interrupted run
    goes on where it stopped. Exits with code 1 if a line differs for a reason that is not known.
    """
    from tallmc.commands.reproduce import ReproduceSettings, run_reproduce

    settings = ReproduceSettings(
        names=tuple(names or ()),
        all_of_them=all_of_them,
        quick=quick,
        again=again,
        data=data_dir,
        out=out,
        report=report,
    )
    if not run_reproduce(settings, _console()):
        raise typer.Exit(1)


@app.command()
def ingest(
    source: Annotated[str, typer.Argument(help="File, folder, pattern or URL: Parquet, CSV, Arrow, .npy or .npz.")],
    path: Annotated[Path, typer.Argument(help="The folder to make.")],
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column of the matrix x; say it again for each.", show_default="all but the outcome"),
    ] = None,
    outcome: Annotated[str | None, typer.Option(help="The column that becomes y.", show_default="none")] = None,
    one_hot: Annotated[
        list[str] | None, typer.Option(help="A column of categories; say it again for each.", show_default="none")
    ] = None,
    standardise: Annotated[bool, typer.Option(help="Give columns of x mean 0 and standard deviation 1.")] = False,
    intercept: Annotated[bool, typer.Option(help="Begin x with a column of ones.")] = False,
    dtype: Annotated[
        str | None, typer.Option(help="Of all numbers.", show_default="float32 for tables, arrays as they are")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the shuffle.")] = 0,
    memory: Annotated[int, typer.Option(min=1, help="MiB that may be taken, roughly.")] = 256,
    resume: Annotated[bool, typer.Option(help="Go on where an ingest was interrupted.")] = False,
) -> None:
    """Write rows in random order to a folder, from which they are sampled without fitting into memory.

    In Python, tm.open_dataset(path) then takes the place of arrays. Rows are read once. Memory does not depend on how
    many there are; the folder takes twice the space of its dataset while it is made.
    """
    try:
        kind = None if dtype is None else np.dtype(dtype)
    except TypeError as error:
        raise ValueError(f"{dtype!r} is no kind of number; try float32 or float64") from error
    tallmc.ingest(
        source,
        path,
        columns=column or None,
        outcome=outcome,
        one_hot=one_hot or (),
        standardise=standardise,
        intercept=intercept,
        dtype=kind,
        seed=seed,
        memory=memory * 2**20,
        resume=resume,
    )


@app.command()
def report(
    path: Annotated[Path, typer.Argument(help="Folder of a store, or of a run that was saved.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option(help="Where to write the report.", show_default="beside the store, as .html")
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(help="Python module to import first, if the kernel has a class of yours.", show_default="none"),
    ] = None,
) -> None:
    """Summary and HTML report of a run on disk, also while it goes on.

    Prints estimates and costs of the draws up to the last checkpoint, and writes a report with plots.
    """
    from tallmc.commands.report import run_report

    run_report(path, output or path.with_name(f"{path.name.removesuffix('.zarr')}.html"), module, _console())


@app.command()
def doctor(
    store: Annotated[
        Path | None, typer.Option(help="Folder of a store to look through instead.", show_default="none")
    ] = None,
    rescue: Annotated[
        Path | None,
        typer.Option(
            help="With --store: where to copy the draws before the first that is lost.", show_default="nowhere"
        ),
    ] = None,
) -> None:
    """Show what is installed and test that it gives right answers; or say what is wrong with a store.

    Prints versions, devices and precision, then tests acceptance rules against their formulas, drivers against each
    other and posteriors against their closed form. Takes some ten seconds. Exits with code 1 if a test fails.

    With --store it reads every file of a store instead, and says what is damaged and what can be saved; exits with code
    1 if anything is.
    """
    if store is not None:
        from tallmc.commands.store_doctor import run_store_doctor

        if not run_store_doctor(store, rescue, _console()):
            raise typer.Exit(1)
        return
    if rescue is not None:
        raise ValueError("--rescue copies draws out of a store; say which, with --store")
    from tallmc.commands.doctor import run_doctor

    if not run_doctor(_console()):
        raise typer.Exit(1)


def _console() -> Console:
    # Piped output has no width of its own; 80 columns would break the tables.
    console = Console()
    return console if console.is_terminal else Console(width=120)


def main() -> None:
    """Entry point of the `tallmc` command."""
    app()
