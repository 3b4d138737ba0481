"""Data on disk: `python -m benchmarks disk`, or `python -m benchmarks disk 100000000` for so many rows of 20 columns.

Rows are those of a logistic regression, in Parquet. What is read is first put out of the system's cache. Memory is that
of a process alone (anonymous pages), and that of the system's limit where one is set. See docs/data-on-disk.md.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

import tallmc as tm
from tallmc.feed.stream import Stream

COLUMNS = ("figure", "measured", "wanted")
TAKES_ARGUMENTS = True
NUM_COLUMNS = 20
Line = tuple[str, str, str]


def run(arguments: list[str] | tuple[str, ...] = ()) -> Iterator[Line]:
    num_rows = int(arguments[0]) if arguments else 10_000_000
    folder = Path(tempfile.mkdtemp(prefix="tallmc-disk-", dir=arguments[1] if len(arguments) > 1 else None))
    try:
        yield from _lines(num_rows, folder)
    finally:
        shutil.rmtree(folder)


def _lines(num_rows: int, folder: Path) -> Iterator[Line]:
    source, path = folder / "rows.parquet", folder / "rows"
    write_parquet(source, num_rows)
    size = num_rows * (NUM_COLUMNS + 1) * 4
    forget(folder)
    seconds, memory = in_a_process("ingest", source, path)
    yield (
        f"ingest of {num_rows:,} rows ({size / 1e9:.2g} GB), Parquet",
        f"{seconds:.0f} s, {size / seconds / 1e6:.0f} MB/s",
        "",
    )
    yield "memory of that process", f"{memory:.0f} MB", "1000 MB at most"
    source.unlink()
    forget(path)
    seconds_call, memory = in_a_process("sample", path)
    yield "open_dataset and tm.sample, nothing in the cache, programs compiled anew", f"{seconds_call:.0f} s", ""
    yield "memory of that process", f"{memory:.0f} MB", "2000 MB at most"
    yield "both", f"{(seconds + seconds_call) / 60:.1f} min", "20 min for 10^8 rows"
    yield from _rates(path)


def _rates(path: Path) -> Iterator[Line]:
    rows = tm.open_dataset(path)
    rate = max(sequential_rate(path / "x.rows") for _ in range(3))
    yield "sequential reading, 4 MB at a time", f"{rate / 1e6:.0f} MB/s", ""
    alone = max(stream_rate(rows, path) for _ in range(3))
    yield "the stream by itself, no chain", f"{alone / rate:.0%} of that", "70 % at least"
    cheap = max(sampling_rate(rows, path) for _ in range(3))
    yield "tests on all rows, one chain, cheap likelihood", f"{cheap / rate:.0%} of that", "70 % at least"
    ratio = min(overhead(rows) for _ in range(3))
    yield (
        "minibatch tests, logistic regression: stream over rows in memory",
        f"{ratio:.2f} times as long",
        "1.15 at most",
    )


def write_parquet(path: Path, num_rows: int) -> None:
    """Rows of a logistic regression, in blocks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer, done = None, 0
    while done < num_rows:
        count = min(500_000, num_rows - done)
        X, y, _ = tm.models.generate_logistic(count, NUM_COLUMNS, seed=done)
        table = pa.table({f"c{j}": X[:, j] for j in range(NUM_COLUMNS)} | {"y": y})
        writer = writer or pq.ParquetWriter(path, table.schema, compression="none")
        writer.write_table(table, row_group_size=100_000)
        done += count
    assert writer is not None
    writer.close()


def forget(folder: Path) -> None:
    """Puts files out of the system's cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def in_a_process(what: str, *paths: Path) -> tuple[float, float]:
    """Seconds, and the largest memory that is the process's own, in MB."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.disk_child", what, *map(str, paths)],
            env={**os.environ, "TALLMC_CACHE": cache, "XDG_CACHE_HOME": cache},
        )
        most = 0.0
        while child.poll() is None:
            most = max(most, _own_memory(child.pid))
            time.sleep(0.05)
    if child.returncode:
        raise RuntimeError(f"the child that was to {what} ended with {child.returncode}")
    return time.perf_counter() - started, most


def _own_memory(process: int) -> float:
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1000
    except OSError:
        pass
    return 0.0


def sequential_rate(path: Path) -> float:
    """Bytes a second of plain reading from the drive."""
    forget(path.parent)
    descriptor, buffer, done = os.open(path, os.O_RDONLY), bytearray(2**22), 0
    started = time.perf_counter()
    while count := os.preadv(descriptor, [buffer], done):
        done += count
    os.close(descriptor)
    return done / (time.perf_counter() - started)


def stream_rate(rows: tm.Rows, path: Path) -> float:
    """Of an epoch of stages that nobody looks at."""
    forget(path)
    stream = Stream(rows, int(time.time()), 256, 1024)
    stages = max(2, stream.num_windows // stream.windows)
    started = time.perf_counter()
    for number in range(stages):
        stream.stage(number)
    return stages * stream.windows * 256 * rows.row_bytes / (time.perf_counter() - started)


def sampling_rate(rows: tm.Rows, path: Path) -> float:
    """Of tests on all rows by one chain: the likelihood adds up columns."""
    posterior = tm.Posterior(lambda mean, row: (row["x"][1] + row["y"]) * mean, rows, lambda mean: -(mean**2), 1e6)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact(batch_size=4096))
    options = {"init": 0.0, "num_warmup": 0, "num_chains": 1, "feed": tm.StreamedFeed, "progress": False}
    tm.sample(posterior, kernel, num_samples=1, **options)  # compiles
    forget(path)
    run = tm.sample(posterior, kernel, num_samples=3, **options)
    return 3 * rows.num_rows * rows.row_bytes / (run.timing["sampling"] + run.timing["warmup"])


def overhead(rows: tm.Rows) -> float:
    """Seconds a row that minibatch tests take from a stream, over those from rows in memory."""
    count = min(2_000_000, rows.num_rows)
    held = jax.tree.map(lambda leaf: np.array(leaf[:count]), rows.all())
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.3 / np.sqrt(500)), tm.MHMinibatch(batch_size=256))
    seconds = []
    for data, feed in ((held, tm.InMemoryFeed), (rows, tm.StreamedFeed)):
        num_rows = count if feed is tm.InMemoryFeed else rows.num_rows
        if isinstance(data, dict):
            posterior = tm.models.logistic_regression(data["x"], data["y"], temperature=num_rows / 500)
        else:
            posterior = tm.models.logistic_regression(data, temperature=num_rows / 500)
        start = np.zeros(NUM_COLUMNS, np.float32)
        options = {"init": start, "num_warmup": 0, "num_chains": 2, "feed": feed, "progress": False}
        tm.sample(posterior, kernel, num_samples=10, **options)
        run = tm.sample(posterior, kernel, num_samples=10_000, **options)
        seconds.append(run.timing["sampling"] / run.stats["rows"].sum(dtype=float))
    return seconds[1] / seconds[0]
