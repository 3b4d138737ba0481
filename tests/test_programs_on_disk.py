"""Programs that are kept on disk: the same ones for the next process, and no harm if something is wrong there."""

import os
import subprocess
import sys
import textwrap
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from tallmc.numerics import program_store
from tallmc.numerics.programs import forget_programs, program, programs_ledger
from tests.programs_to_compile import KEYS, LINE, X, assert_same, cost, everything, value


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setenv("TALLMC_CACHE", "0")
    forget_programs()


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TALLMC_CACHE", str(tmp_path))
    monkeypatch.setattr(program_store, "_SHORTEST", 0.0)  # however fast this machine is
    return tmp_path / "programs"


def test_a_program_comes_back_from_disk(folder):
    ours = program(everything)
    expected = ours(LINE, X, KEYS["ours"])
    assert [file.suffix for file in folder.iterdir()] == [".program"]
    assert folder.stat().st_mode & 0o777 == 0o700
    forget_programs()
    again = cost(lambda: assert_same(ours(LINE, X, KEYS["ours"]), expected))
    assert (again.compiled, again.loaded) == (0, 1)


def test_donation_survives_the_disk(folder):
    step = program(lambda x, y: (x + y, y * 2), donate=(0,))
    step(X + 0, X)
    forget_programs()
    x = X + 1
    assert cost(lambda: step(x, X)).loaded == 1
    assert x.is_deleted()


def test_keys_of_two_kinds_with_equal_code_are_not_mixed_up(folder):
    same = program(lambda key: key)
    other = jax.random.wrap_key_data(jax.random.key_data(KEYS["default"]), impl="threefry2x32")
    for key in (KEYS["ours"], other):
        forget_programs()
        assert same(key).dtype == key.dtype


SCRIPT = """
    import hashlib, os, sys
    import jax, jax.numpy as jnp, numpy as np
    jax.config.update("jax_enable_x64", os.environ.get("TALLMC_X64", "0") == "1")
    from tallmc.numerics import program_store
    from tallmc.numerics.keys import as_key
    from tallmc.numerics.programs import program, programs_ledger
    from tallmc.run.native import native

    def walk(state, steps, weights):
        def step(_, state):
            key, x = state
            key, now = jax.random.split(key)
            return key, jnp.tanh(x + weights["w"] * jax.random.normal(now, x.shape, x.dtype))
        return jax.lax.fori_loop(0, steps, step, state)

    program_store._SHORTEST = 0.0
    before = dict(jax.config.values)
    key, x = as_key(5), jnp.zeros(7, jnp.float32)
    results = []
    for compiled in (program(walk), native(walk)):
        results += compiled((key, x), jnp.int32(50), {"w": np.float32(0.1)})
    assert results[0].dtype == results[2].dtype == key.dtype
    digest = hashlib.sha256()
    for one in (jax.random.key_data(results[0]), *results[1::2], jax.random.key_data(results[2])):
        digest.update(np.asarray(one).tobytes())
    jax.jit(lambda x: jnp.cosh(x).sum())(x)  # the user's own
    assert {name: jax.config.values[name] for name in before} == before
    print(digest.hexdigest(), programs_ledger().compiled, programs_ledger().loaded)
"""


def start(environment):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(SCRIPT)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=os.environ | environment, stdout=pipe, stderr=pipe, text=True)


def finish(process):
    printed, complaints = process.communicate()
    assert process.returncode == 0, complaints
    assert complaints == ""
    return printed.split()


def test_a_second_process_compiles_nothing_and_computes_the_same(tmp_path):
    digest, compiled, loaded = finish(start({"TALLMC_CACHE": str(tmp_path)}))
    assert (compiled, loaded) == ("2", "0")
    assert len(list((tmp_path / "programs").iterdir())) == 2  # not the user's own
    assert finish(start({"TALLMC_CACHE": str(tmp_path)})) == [digest, "0", "2"]


def test_processes_that_write_at_once_do_no_harm(tmp_path):
    running = [start({"TALLMC_CACHE": str(tmp_path)}) for _ in range(3)]
    results = [finish(process) for process in running]
    assert len({digest for digest, _, _ in results}) == 1
    assert all(int(compiled) + int(loaded) == 2 for _, compiled, loaded in results)
    assert sorted(file.suffix for file in (tmp_path / "programs").iterdir()) == [".program", ".program"]


@pytest.mark.parametrize("wish", ["0", "off", "False", ""])
def test_the_folder_can_be_turned_off(monkeypatch, tmp_path, wish):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TALLMC_CACHE", wish)
    program(value)(LINE, X)
    assert program_store.folder() is None
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="where Linux keeps it")
def test_the_folder_is_where_the_system_keeps_such_things(monkeypatch, tmp_path):
    monkeypatch.delenv("TALLMC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert program_store.folder() == tmp_path / "tallmc" / "programs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert program_store.folder() == tmp_path / ".cache" / "tallmc" / "programs"


def works_without_a_folder():
    ours = program(lambda x: jnp.cosh(x).sum() + x)
    before = programs_ledger()
    assert_same(ours(X), eqx.filter_jit(ours.function)(X))
    forget_programs()
    ours(X)
    return (programs_ledger() - before).compiled == 2


def test_a_folder_that_cannot_be_made_does_no_harm(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("TALLMC_CACHE", str(tmp_path / "file"))
    assert works_without_a_folder()


def test_a_full_disk_does_no_harm(monkeypatch, folder):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert works_without_a_folder()
    assert list(folder.iterdir()) == []


def test_a_folder_that_others_may_write_to_is_not_used(folder):
    folder.mkdir()
    folder.chmod(0o777)
    assert works_without_a_folder()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("damage", ["garbage", "truncated", "flipped", "empty", "no program"])
def test_a_damaged_file_is_replaced(folder, damage):
    ours = program(everything)
    expected = ours(LINE, X, KEYS["ours"])
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(
        {
            "garbage": b"garbage",
            "truncated": whole[:-100],
            "flipped": whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],
            "empty": b"",
            "no program": program_store._sealed(b"no program"),
        }[damage]
    )
    forget_programs()
    again = cost(lambda: assert_same(ours(LINE, X, KEYS["ours"]), expected))
    assert (again.compiled, again.loaded) == (1, 0)
    forget_programs()
    assert cost(lambda: ours(LINE, X, KEYS["ours"])).loaded == 1


def test_the_folder_keeps_its_size_and_what_was_used_last(monkeypatch, folder):
    shifted = program(lambda x, by: jnp.cosh(x) + by)
    paths = []
    for by in range(3):
        shifted(X, by)
        (new,) = set(folder.iterdir()) - set(paths)
        os.utime(new, (time.time() - 100 + by,) * 2)
        paths.append(new)
    forget_programs()
    assert cost(lambda: shifted(X, 0)).loaded == 1  # the oldest, but just used
    (folder / "left.tmp").write_bytes(b"")
    os.utime(folder / "left.tmp", (0, 0))
    monkeypatch.setattr(program_store, "_LARGEST", paths[0].stat().st_size + paths[2].stat().st_size)
    program_store._make_room(folder)
    assert set(folder.iterdir()) == {paths[0], paths[2]}


def test_what_calls_back_into_this_process_is_not_stored(folder):
    seen = []
    ours = program(lambda x: (jax.debug.callback(seen.append, x), x + 1)[1])
    ours(X)
    jax.effects_barrier()
    assert len(seen) == 1
    assert not folder.exists()
