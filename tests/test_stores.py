"""Draws on disk survive: whatever stops a run, it goes on and ends as if nothing had happened."""

import os
import signal
import subprocess
import sys
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.run import chunks, files, store
from tallmc.run.stored import Stored
from tests import stopped
from tests.stopped import Dead, FullDisk, StoppingOS, draw, often


@pytest.fixture(autouse=True)
def checkpoints_come_often(monkeypatch):
    often(monkeypatch.setattr)


@pytest.fixture(scope="module")
def uninterrupted():
    return draw()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A store whose run has come to its end."""
    path = tmp_path_factory.mktemp("finished") / "run.zarr"
    with pytest.MonkeyPatch.context() as patch:
        often(patch.setattr)
        draw(store=path)
    return path


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of it, to be damaged."""
    import shutil

    return shutil.copytree(finished, tmp_path / "copy.zarr")


def same(one, other):
    assert jax.tree.structure(one.samples) == jax.tree.structure(other.samples)
    jax.tree.map(np.testing.assert_array_equal, one.samples, other.samples)
    assert set(one.stats) == set(other.stats)
    for name in one.stats:
        np.testing.assert_array_equal(one.stats[name], other.stats[name])
    jax.tree.map(np.testing.assert_array_equal, one.step_size, other.step_size)
    assert (one.setup_rows, one.choices, one.doubts) == (other.setup_rows, other.choices, other.doubts)


def operations(monkeypatch, tmp_path):
    """How many operations on the disk an uninterrupted run takes."""
    counting = StoppingOS()
    monkeypatch.setattr(files, "os", counting)
    draw(store=tmp_path / "counted.zarr")
    monkeypatch.setattr(files, "os", os)
    return counting.count


def stop_at(monkeypatch, path, last, mode):
    """Stops a run at an operation, and says how many draws its last complete checkpoint had."""
    done, real_one = [0], store.Store.checkpoint

    def noted(self, *arguments, **options):
        real_one(self, *arguments, **options)
        done.append(self.drawn)

    monkeypatch.setattr(store.Store, "checkpoint", noted)
    monkeypatch.setattr(files, "os", StoppingOS(last, mode))
    with pytest.raises(Dead):
        draw(store=path, resume=True)
    monkeypatch.setattr(files, "os", os)
    monkeypatch.setattr(store.Store, "checkpoint", real_one)
    return done[-1]


def stop_and_go_on(monkeypatch, tmp_path, uninterrupted, instants):
    total, generator = operations(monkeypatch, tmp_path), np.random.default_rng(18)
    for number in range(instants):
        path, mode = tmp_path / f"{number}.zarr", stopped.MODES[number % 3]
        had = stop_at(monkeypatch, path, int(generator.integers(total)), mode)
        if files.is_link(path) or not (path / "tallmc").is_dir():
            continue
        try:
            kept = Stored.open(path).num_draws
        except FileNotFoundError:
            kept = 0
        assert kept >= had, "a block more than the last was lost"
        same(uninterrupted, draw(store=path, resume=True))
        same(uninterrupted, tm.load(path))


def test_a_file_is_there_as_a_whole_or_as_it_was(tmp_path):
    path = tmp_path / "checkpoint"
    path.write_bytes(b"before")

    def torn(file):
        file.write(b"after")
        file.flush()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        files.write(path, torn)
    assert path.read_bytes() == b"before"


def test_stopped_at_any_operation_it_goes_on(monkeypatch, tmp_path, uninterrupted):
    stop_and_go_on(monkeypatch, tmp_path, uninterrupted, 20)


@pytest.mark.slow
def test_stopped_at_many_operations_it_goes_on(monkeypatch, tmp_path, uninterrupted):
    stop_and_go_on(monkeypatch, tmp_path, uninterrupted, 300)


def test_stopped_again_and_again_it_comes_to_its_end(monkeypatch, tmp_path, uninterrupted):
    path, generator = tmp_path / "run.zarr", np.random.default_rng(19)
    total = operations(monkeypatch, tmp_path)
    for number in range(4):
        stop_at(monkeypatch, path, int(generator.integers(total // 4, total // 3)), stopped.MODES[number % 3])
    same(uninterrupted, draw(store=path, resume=True))


def kill(path, operation, mode):
    """A process of its own that ends by SIGKILL at this operation, or by itself before."""
    environment = {**os.environ, "JAX_ENABLE_X64": str(int(jax.config.jax_enable_x64))}
    command = [sys.executable, "-W", "ignore", "-m", "tests.stopped", str(path), str(operation), mode]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == -signal.SIGKILL


def test_killed_processes_lose_nothing(tmp_path, uninterrupted):
    path = tmp_path / "run.zarr"
    assert all(kill(path, operation, mode) for operation, mode in ((110, "torn"), (50, "before"), (70, "after")))
    assert 0 < tm.load(path).num_draws < 90
    same(uninterrupted, draw(store=path, resume=True))


@pytest.mark.slow
def test_a_hundred_killed_processes_lose_nothing(tmp_path, uninterrupted):
    generator, kills, number = np.random.default_rng(20), 0, 0
    while kills < 100:
        path, last = tmp_path / f"{number}.zarr", False
        number += 1
        while not last and kills < 100:
            last = not kill(path, int(generator.integers(300)), stopped.MODES[kills % 3])
            kills += not last
        same(uninterrupted, draw(store=path, resume=True))


def newest(path):
    return max((path / "tallmc").glob("checkpoint-*.zip"))


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def change_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [cut, change_a_bit, lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("of", ["chunk", "checkpoint", "description"])
def test_what_a_power_cut_damages_is_made_again(monkeypatch, tmp_path, uninterrupted, harm, of):
    path = tmp_path / "run.zarr"
    stop_at(monkeypatch, path, 150, "before")
    stored = Stored.open(path)
    full = stored.checkpoint.full
    assert full > 0
    last = path / "posterior" / "mean" / "c" / "0" / str(full - 1)
    harm({"chunk": last, "checkpoint": newest(path), "description": path / "zarr.json"}[of])
    same(uninterrupted, draw(store=path, resume=True))


def test_damage_in_the_newest_chunk_is_named_where_nothing_else_is_left(copied):
    full = Stored.open(copied).checkpoint.full
    change_a_bit(copied / "sample_stats" / "rows" / "c" / "0" / str(full - 1))
    with pytest.raises(ValueError, match=r"sample_stats/rows does not fit its checksum.*tallmc doctor --store"):
        tm.load(copied)


def test_a_full_disk_ends_a_run_in_one_line_and_no_draw_of_a_checkpoint_is_lost(monkeypatch, tmp_path, uninterrupted):
    path = tmp_path / "run.zarr"
    monkeypatch.setattr(files, "os", FullDisk(100_000))
    with pytest.raises(OSError, match="No space left") as found:
        draw(store=path)
    assert "resume=True" in str(found.value)
    assert "\n" not in str(found.value)
    monkeypatch.setattr(files, "os", os)
    assert Stored.open(path).num_draws > 0
    same(uninterrupted, draw(store=path, resume=True))


def test_a_second_writer_is_refused_and_readers_are_not(monkeypatch, tmp_path):
    path, seen, real_one = tmp_path / "run.zarr", [], store.Store.checkpoint

    def meanwhile(self, *arguments, **options):
        real_one(self, *arguments, **options)
        if self.drawn and not seen:
            seen.append(tm.load(path).num_draws)
            with pytest.raises(ValueError, match=f"written by another process \\(process {os.getpid()}\\)"):
                draw(store=path, resume=True)

    monkeypatch.setattr(store.Store, "checkpoint", meanwhile)
    run = draw(store=path)
    assert 0 < seen[0] < run.num_draws


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"given": stopped.posterior(1e-3)}, "another data"),
        ({"given": stopped.posterior().at_temperature(50.0)}, "another posterior"),
        ({"given": tm.Posterior(lambda p, row: -0.4 * (row - p["mean"]) ** 2, stopped.posterior().rows)}, "likelihood"),
        ({"kernel": tm.MetropolisHastings(tm.RandomWalk(0.2), tm.MHMinibatch(50))}, "another kernel"),
        ({"num_chains": 3}, r"num_chains 2 \(here 3\)"),
        ({"num_warmup": 33}, r"num_warmup 32 \(here 33\)"),
        ({"rng_key": 1}, "another rng_key"),
    ],
)
def test_a_resume_with_something_else_is_refused_in_one_line(finished, change, named):
    with pytest.raises(ValueError, match=f"was made with .*{named}") as found:
        draw(store=finished, resume=True, **change)
    assert "\n" not in str(found.value)


def test_a_resume_with_other_versions_is_refused(monkeypatch, finished):
    monkeypatch.setattr("tallmc.run.fingerprints.version", lambda package: "9.9")
    with pytest.raises(ValueError, match=r"jax \S+ \(here 9\.9\)"):
        draw(store=finished, resume=True)


def test_a_likelihood_without_a_name_goes_on_if_it_computes_the_same(monkeypatch, tmp_path, uninterrupted):
    """It is known by what it computes, not by what it is called."""

    def nameless():
        return tm.Posterior(lambda p, row: -0.5 * (row - p["mean"]) ** 2, stopped.posterior().rows, temperature=60.0)

    path = tmp_path / "run.zarr"
    draw(given=nameless(), store=path, num_samples=60)
    same(uninterrupted, draw(given=nameless(), store=path, resume=True))
    same(uninterrupted, tm.load(path))


def test_what_is_there_is_not_overwritten(finished, tmp_path):
    with pytest.raises(ValueError, match="pass resume=True"):
        draw(store=finished)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not a store"):
        draw(store=tmp_path / "notes", resume=True)
    with pytest.raises(ValueError, match="say which"):
        draw(resume=True)


def test_a_finished_run_may_go_on(finished, copied, uninterrupted):
    same(uninterrupted, draw(store=copied, resume=True))
    longer = draw(num_samples=130)
    same(longer, tm.load(copied, stopped.posterior()).extend(40, progress=False))
    same(longer, tm.load(copied))
    assert tm.load(finished).num_draws == 90


def test_before_its_first_draw_a_store_says_so(monkeypatch, tmp_path):
    path = tmp_path / "run.zarr"
    stop_at(monkeypatch, path, 5, "before")
    with pytest.raises(ValueError, match="set-up has not come to its end"):
        tm.load(path)
    real_one = store.Store.checkpoint

    def only(self, *arguments, **options):
        real_one(self, *arguments, **options)
        raise Dead

    monkeypatch.setattr(store.Store, "checkpoint", only)
    with pytest.raises(Dead):
        draw(store=path, resume=True)
    with pytest.raises(ValueError, match="in warm-up"):
        tm.load(path)


def test_other_programs_read_a_store_lazily(finished, uninterrupted):
    """By the Zarr format alone, and without loading draws that are not asked for."""
    import xarray

    tree = xarray.open_datatree(finished, engine="zarr")
    assert not tree["posterior"]["mean"].variable._in_memory
    np.testing.assert_array_equal(tree["posterior"]["mean"].values, uninterrupted.samples["mean"])
    np.testing.assert_array_equal(tree["sample_stats"]["rows"].values, uninterrupted.stats["rows"])
    ours = tm.load(finished).to_datatree()
    assert not ours["posterior"]["mean"].variable._in_memory
    for some in ((slice(None), slice(7, 80, 5)), (1, slice(None, None, -3)), (slice(None), [3, 89, 60]), (0, 77)):
        expected = np.asarray(uninterrupted.samples["mean"])[some]
        np.testing.assert_array_equal(ours["posterior"]["mean"][some].values, expected)


def test_only_the_chunks_that_are_asked_for_are_read(finished, monkeypatch):
    read, real_one = [], chunks.read_chunk
    tree = tm.load(finished).to_datatree()
    monkeypatch.setattr(chunks, "read_chunk", lambda *given: read.append(given[2]) or real_one(*given))
    length = tm.load(finished).stored.setup.length
    read.clear()
    tree["posterior"]["mean"].isel(draw=slice(length, length + 2)).load()
    assert read == [1]


def wide_run(count, path):
    """Draws of 400 numbers."""
    given = tm.Posterior(lambda position, row: -0.5 * jnp.sum(row * position**2), np.ones(50, np.float32))
    kernel, init = tm.MetropolisHastings(tm.RandomWalk(0.05), tm.Exact()), np.zeros(400, np.float32)
    return draw(given=given, kernel=kernel, init=init, num_samples=count, store=path)


def test_a_store_holds_less_than_two_chunks(monkeypatch, tmp_path):
    """However many draws there are; and no more than a bound is looked at when they are all there."""
    held, real_one = [], store.Store.take
    monkeypatch.setattr(chunks, "_BYTES", 2**18)
    monkeypatch.setattr("tallmc.run.drivers.ring_size", lambda one, most: 256)
    monkeypatch.setattr("tallmc.run.stored._LOOKED_AT", 2**19)

    def noted(self, kept):
        held.append(sum(part.nbytes for parts in self._tail.values() for part in parts))
        real_one(self, kept)
        held.append(sum(part.nbytes for parts in self._tail.values() for part in parts))

    monkeypatch.setattr(store.Store, "take", noted)
    run = wide_run(1200, tmp_path / "run.zarr")
    assert 0 < max(held) <= 2 * 2**18
    assert run.stored.num_bytes > 6 * 2**19
    assert run.thinned.samples.nbytes <= 2**19
    np.testing.assert_array_equal(run.thinned.samples, run.samples[:, :: run.stored.stride])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_draws(monkeypatch, tmp_path):
    """What is allocated at most while draws are made is the same for four times as many: 4 MB in memory."""
    monkeypatch.setattr(store, "_SECONDS_BETWEEN", 0.1)
    monkeypatch.setattr(chunks, "_BYTES", 2**18)
    monkeypatch.setattr("tallmc.run.drivers.ring_size", lambda one, most: 256)
    # The package has functions of the names of these modules.
    module, peaks = sys.modules["tallmc.setup.sample"], []
    monkeypatch.setattr(module, "concluded", lambda run, *_, **__: peaks.append(tracemalloc.get_traced_memory()[1]))
    for count in (50, 300, 1200):
        tracemalloc.start()
        wide_run(count, tmp_path / f"{count}.zarr")
        tracemalloc.stop()
    assert peaks[2] < 1.3 * peaks[1], peaks


def normal_mean(rate, row):
    return row * jnp.log(rate["rate"]) - rate["rate"]


KINDS = {
    "together": lambda **of: draw(driver=tm.Together(rounds=16), **of, num_chains=6),
    "cycle": lambda **of: draw(
        tm.Cycle([tm.MetropolisHastings(tm.RandomWalk(0.3), rule) for rule in (tm.Exact(), tm.AustereMH(0.05, 100))]),
        **of,
    ),
    "nuts": lambda **of: draw(tm.NUTS(), **of),
    "redesigned": lambda **of: draw(
        tm.MetropolisHastings(tm.RandomWalk(0.3), tm.AustereMH(tm.schedule.redesigned(0.05), 100)),
        **of,
        num_warmup=2000,
    ),
    "automatic": lambda **of: tm.sample(tm.models.logistic_regression(*COLUMNS), **of, **stopped.CALL),
    "transforms": lambda **of: draw(
        tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact()),
        tm.Posterior(normal_mean, np.ones(500, np.float32), transforms={"rate": tm.transforms.positive}),
        init={"rate": 1.0},
        **of,
    ),
    "ladder": lambda **of: tm.parallel_tempering(two_modes(), init=1.0, **of, **stopped.CALL),
    "rungs": lambda **of: tm.parallel_tempering(two_modes(), [1, 4, 16], init=1.0, **of, **stopped.CALL),
    "gibbs": lambda **of: tm.gibbs(tm.models.random_field(*FIELD), tm.ExactBarker(), **of, **stopped.CALL),
}
COLUMNS = tm.models.generate_logistic(3000, 3)[:2]
FIELD = tm.models.generate_dense_field(12, scale=0.1)


def two_modes():
    rows = (1 + np.linspace(-2.0, 2.0, 400)).astype(np.float32)
    return tm.Posterior(lambda root, row: -0.5 * (row - root**2) ** 2, rows, lambda root: -0.5 * root**2)


QUICK = {"together"}


@pytest.mark.parametrize("kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
@pytest.mark.filterwarnings("ignore")
def test_every_kind_of_run_goes_on(kind, monkeypatch, tmp_path):
    """Stopped after its fifth checkpoint, by what is no exception that anybody catches."""
    real_one, count = store.Store.checkpoint, []

    def dying(self, *arguments, **options):
        real_one(self, *arguments, **options)
        count.append(1)
        if len(count) == 5:
            raise Dead

    monkeypatch.setattr(store.Store, "checkpoint", dying)
    path = tmp_path / "run.zarr"
    with pytest.raises(Dead):
        KINDS[kind](store=path)
    whole = KINDS[kind]()
    resumed = KINDS[kind](store=path, resume=True)
    same(whole, resumed)
    same(whole, tm.load(path))
    assert str(whole.audit) == str(resumed.audit)
    assert (whole.setup_rows, whole.choices) == (tm.load(path).setup_rows, tm.load(path).choices)
