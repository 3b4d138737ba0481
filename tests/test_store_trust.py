"""A store from somebody else: opening it runs nothing, reads nothing outside it, and takes no memory that it lacks."""

import io
import json
import os
import pickle
import sys
import tracemalloc
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import tallmc as tm
from tallmc.cli import app
from tallmc.run import archive, files
from tallmc.run.archive import Archive, DamagedError
from tallmc.run.encoding import Decoder, NotSaved
from tests import stopped
from tests.stopped import draw, often
from tests.test_stores import change_a_bit, copied, finished, same  # noqa: F401

_FLAG = "TALLMC_TEST_A_STORE_RAN_CODE"


@pytest.fixture(autouse=True)
def nothing_ran(monkeypatch):
    often(monkeypatch.setattr)
    os.environ.pop(_FLAG, None)
    yield
    assert _FLAG not in os.environ


def tampered(root, name, change):
    """Writes a file of a store anew, with something else in it."""
    found = Archive(root, "tallmc", name)
    about, arrays = json.loads(json.dumps(found.about)), found.arrays()
    change(about)
    archive.write(root / "tallmc" / name, about, arrays)


def newest(root):
    return max(path.name for path in (root / "tallmc").glob("checkpoint-*"))


SET = f"import os; os.environ[{_FLAG!r}] = '1'"
HOSTILE = {
    "a call as a tuple": {"tuple_of": "builtins:exec", "names": ["a"], "items": [SET]},
    "a class of another's": {"class": "subprocess:Popen", "fields": {"args": ["true"]}},
    "a member of anything": {"enum": "os:environ", "member": _FLAG},
    "a module": {"class": "os:path", "fields": {}},
}


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE.keys())
def test_names_in_a_store_call_nothing(copied, code):  # noqa: F811
    tampered(copied, "setup.zip", lambda about: about["values"].update(kernel=code))
    with pytest.raises(ValueError, match=r"not loaded|neither a class|to be a|damaged"):
        tm.load(copied)


@pytest.mark.parametrize("name", ["builtins:exec", "os:system", "tallmc.run.files:remove", "numpy:load", "this:s"])
def test_functions_that_do_more_than_compute_are_not_taken_from_a_store(name):
    decoder = Decoder(lambda number: np.zeros(1))
    code = {"partial": [{"function": name}, {"tuple": [SET]}, {"dict": {}}]}
    assert isinstance(decoder.decode(code).func, NotSaved)
    assert "this" not in sys.modules, "a store had a module loaded"


def test_functions_that_compute_are():
    decoder = Decoder(lambda number: np.zeros(1))
    assert decoder.decode({"function": "tests.stopped:log_likelihood"}) is stopped.log_likelihood
    assert decoder.decode({"function": "jax.numpy:sum"}) is jnp.sum


class Evil:
    def __reduce__(self):
        return exec, (SET,)


def test_pickles_are_refused(copied):  # noqa: F811
    """An array of objects is a pickle inside an .npy file."""
    content = io.BytesIO()
    np.lib.format.write_array(content, np.array([Evil()], object), allow_pickle=True)
    path = copied / "tallmc" / newest(copied)
    with zipfile.ZipFile(path) as found:
        members = {name: found.read(name) for name in found.namelist()}
    members["0.npy"] = content.getvalue()
    with zipfile.ZipFile(path, "w") as file:
        for name, member in members.items():
            file.writestr(name, member)
    with pytest.raises(DamagedError, match="object"):
        Archive(copied, "tallmc", path.name).array(0)
    assert tm.load(copied).num_draws == 90  # of the checkpoint before
    # The test would notice code that runs: this is what is refused.
    pickle.loads(pickle.dumps(Evil()))
    assert os.environ.pop(_FLAG)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "a/b", "..", ".", "c:\\x", "a\0b", "zarr.json"])
def test_names_stay_inside(tmp_path, name):
    assert files.inside(tmp_path, files.safe_name(name)).parent == tmp_path
    assert files.safe_name(name) not in (name, files.safe_name(name + "x"))
    if name != "zarr.json":
        with pytest.raises(ValueError, match="do not trust"):
            files.inside(tmp_path, name)


def test_a_position_with_strange_names_is_kept(tmp_path):
    names = ["../up", ".hidden", "zarr.json"]
    given = tm.Posterior(lambda p, row: -0.5 * sum((row - p[name]) ** 2 for name in names), np.ones(50, np.float32))
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
    run = draw(given=given, kernel=kernel, init=dict.fromkeys(names, 0.0), store=tmp_path / "run.zarr", num_samples=20)
    assert [path.name for path in tmp_path.iterdir()] == ["run.zarr"]
    same(draw(given=given, kernel=kernel, init=dict.fromkeys(names, 0.0), num_samples=20), run)


@pytest.mark.parametrize("what", ["posterior/mean/c/0/0", "posterior/mean", "tallmc/setup.zip", "tallmc"])
def test_links_are_not_followed(copied, tmp_path, what):  # noqa: F811
    path = copied / what
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"is a link|links"):
        _ = tm.load(copied).samples
    found = CliRunner().invoke(app, ["doctor", "--store", str(copied)])
    assert found.exit_code
    assert "link" in found.output + found.stderr


SIZES = {
    "draws": lambda about: about.update(drawn=10**12 + about["drawn"] % 10, full=10**12 // 20),
    "chunks": lambda about: about.update(full=10**9),
    "fewer than none": lambda about: about.update(drawn=-5),
    "no number": lambda about: about.update(drawn="all"),
}


@pytest.mark.parametrize("change", SIZES.values(), ids=SIZES.keys())
def test_sizes_that_cannot_be_are_refused_before_memory_is_taken(copied, change):  # noqa: F811
    for path in (copied / "tallmc").glob("checkpoint-*"):
        tampered(copied, path.name, change)
    _refused(copied)


SHAPES = {
    "an enormous draw": lambda about: about["columns"][0].__setitem__(2, [10**12]),
    "a negative one": lambda about: about["columns"][0].__setitem__(2, [-3]),
    "objects": lambda about: about["columns"][0].__setitem__(3, "object"),
    "text": lambda about: about["columns"][0].__setitem__(3, "U1000000"),
    "chains": lambda about: about.update(num_chains=10**12),
    "a chunk": lambda about: about.update(length=10**12),
    "a group outside": lambda about: about["columns"][0].__setitem__(0, "../../etc"),
}


@pytest.mark.parametrize("change", SHAPES.values(), ids=SHAPES.keys())
def test_shapes_that_cannot_be_are_refused_before_memory_is_taken(copied, change):  # noqa: F811
    tampered(copied, "setup.zip", change)
    _refused(copied)


def _refused(path):
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"damaged|no variable|shape|draws|describes"):
        _ = tm.load(path).samples
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e7


def test_an_archive_is_no_bomb(tmp_path):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("about.json", json.dumps({"dtypes": [], "about": " " * 10**7}))
    with pytest.raises(DamagedError, match="another size"):
        Archive(tmp_path, "bomb.zip")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("about.json", json.dumps({"dtypes": ["float64"], "about": {}}))
        file.writestr("0.npy", header.getvalue() + bytes(80))
    with pytest.raises(DamagedError, match="shape"):
        Archive(tmp_path, "bomb.zip").array(0)


def test_the_doctor_finds_nothing_in_a_sound_store(finished):  # noqa: F811
    found = CliRunner().invoke(app, ["doctor", "--store", str(finished)])
    assert found.exit_code == 0, found.output
    assert "DAMAGED" not in found.output
    assert "90 draws of each chain are there (all)" in found.output


def test_the_doctor_says_what_can_be_saved_and_saves_it(copied, tmp_path):  # noqa: F811
    length = tm.load(copied).stored.setup.length
    change_a_bit(copied / "posterior" / "mean" / "c" / "0" / "1")
    found = CliRunner().invoke(app, ["doctor", "--store", str(copied)])
    assert found.exit_code == 1
    assert "DAMAGED damage in" in found.output
    assert "chunk 1 of posterior/mean does not fit its checksum" in found.output
    assert f"{length:,} draws of each chain, before the first that is lost, can be copied" in found.output
    with pytest.raises(DamagedError, match="checksum"):
        _ = tm.load(copied).samples
    other = tmp_path / "rescued.zarr"
    found = CliRunner().invoke(app, ["doctor", "--store", str(copied), "--rescue", str(other)])
    assert f"Copied {length:,} draws" in found.output
    rescued, whole = tm.load(other, stopped.posterior()), draw()
    np.testing.assert_array_equal(rescued.samples["mean"], whole.samples["mean"][:, :length])
    np.testing.assert_array_equal(rescued.stats["rows"], whole.stats["rows"][:, :length])
    with pytest.raises(ValueError, match="rescued"):
        rescued.extend(10)


def test_draws_that_are_lost_are_made_again(copied):  # noqa: F811
    (copied / "posterior" / "mean" / "c" / "0" / "1").unlink()
    same(draw(), draw(store=copied, resume=True))


def test_a_summary_of_a_store(finished, tmp_path, monkeypatch):  # noqa: F811
    def missing():
        raise ImportError("pip install 'tallmc[plots]'")

    monkeypatch.setattr("tallmc.diagnostics.plots.import_plotting", missing)
    found = CliRunner().invoke(app, ["report", str(finished), "--output", str(tmp_path / "report.html")])
    assert found.exit_code == 0, found.output
    assert "90 draws of each of 2 chains" in found.output
    assert "rows per step" in found.output
    bad = ([tmp_path / "none"], "not a saved run"), ([finished, "--output", "no/x.html"], "no folder")
    for arguments, hint in bad:
        found = CliRunner().invoke(app, ["report", *map(str, arguments)])
        assert found.exit_code == 2
        assert hint in found.stderr
        assert found.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_report_of_a_store(finished, tmp_path):  # noqa: F811
    output = tmp_path / "report.html"
    found = CliRunner().invoke(app, ["report", str(finished), "--output", str(output)])
    assert found.exit_code == 0, found.output
    assert "Posterior of run.zarr" in output.read_text()


def test_checksums_are_those_of_the_format(finished):  # noqa: F811
    """Zarr's own reader checks them: what it reads back is what this library wrote."""
    import zarr

    array = zarr.open_array(finished / "posterior" / "mean", mode="r")
    np.testing.assert_array_equal(array[:], tm.load(finished).samples["mean"])
