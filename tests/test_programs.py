"""Programs: the same results as `equinox.filter_jit`, compiled once, and kept on disk for the next process."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallmc.numerics import program_store, programs
from tallmc.numerics.keys import as_key
from tallmc.numerics.programs import forget_programs, program, programs_ledger
from tallmc.run.native import native


class Line(eqx.Module):
    slope: jax.Array
    link: object
    power: int = eqx.field(static=True)


def value(line, x):
    return line.link(line.slope * x**line.power).sum()


def everything(line, x, key):
    key, other = jax.random.split(key)
    noise = jax.random.normal(other, x.shape, x.dtype)
    return {"line": line, "key": key, "sum": value(line, x) + noise, "name": "line", "none": None, "two": 2.5}


LINE, X = Line(jnp.float32(0.3), jnp.tanh, 2), jnp.linspace(0, 1, 5, dtype=jnp.float32)
KEYS = {"ours": as_key(3), "default": jax.random.key(3), "rbg": jax.random.key(3, impl="rbg")}


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setenv("TALLMC_CACHE", "0")
    forget_programs()


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TALLMC_CACHE", str(tmp_path))
    monkeypatch.setattr(program_store, "_SHORTEST", 0.0)  # however fast this machine is
    return tmp_path / "programs"


def cost(action):
    before = programs_ledger()
    action()
    return programs_ledger() - before


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert type(a) is type(b)
        if isinstance(a, jax.Array):
            assert (a.dtype, a.weak_type if hasattr(a, "weak_type") else None, a.committed) == (
                b.dtype,
                b.weak_type if hasattr(b, "weak_type") else None,
                b.committed,
            )
            if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                a, b = jax.random.key_data(a), jax.random.key_data(b)
            np.testing.assert_array_equal(a, b)
        else:
            assert a == b


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("x", [X, np.asarray(X), np.linspace(0, 1, 5)], ids=["jax", "numpy", "float64"])
def test_results_are_those_of_filter_jit_bit_for_bit(key, x):
    if x.dtype == np.float64 and jax.config.jax_enable_x64:
        pytest.skip("the line is float32")
    ours, theirs = program(everything), eqx.filter_jit(everything)
    for _ in range(2):  # the second call takes the short way
        assert_same(ours(LINE, x, KEYS[key]), theirs(LINE, x, KEYS[key]))


def test_static_parts_are_told_apart():
    double = program(lambda x, how: (x * 2, type(how).__name__, str(how)))
    for how in (1, True, 1.0, 0.0, -0.0, float("nan"), "1", None, (1, 2)):
        assert double(X, how)[1:] == (type(how).__name__, str(how))


def test_kinds_of_arrays_are_told_apart():
    name = program(lambda x: (str(x.dtype), x.shape, x.weak_type))
    for x in (X, X[:2], jnp.arange(5), jnp.asarray(2.0), jnp.float32(2)):
        assert name(x) == (str(x.dtype), x.shape, x.weak_type)


def test_names_of_arguments_make_no_second_program():
    add = program(lambda x, y=1: x + y)
    assert cost(lambda: (add(X, 2), add(X, y=2), add(y=2, x=X))).count == 1
    assert_same(add(X), X + 1)


def test_a_traced_argument_makes_it_a_part_of_what_is_traced():
    ours = program(value)
    assert cost(lambda: jax.grad(ours, 1)(LINE, X)).count == 0
    assert_same(jax.grad(ours, 1)(LINE, X), jax.grad(eqx.filter_jit(value), 1)(LINE, X))
    assert_same(jax.vmap(ours, (None, 0))(LINE, X), jax.vmap(eqx.filter_jit(value), (None, 0))(LINE, X))


def test_known_arguments_are_computed_even_while_something_else_is_traced():
    ours = program(value)
    traced = jax.jit(lambda y: y + ours(LINE, X))
    assert_same(traced(jnp.float32(1)), value(LINE, X) + jnp.float32(1))


def test_settings_and_contexts_are_part_of_what_a_program_is_for():
    product = program(lambda x: x @ x)

    def call_in_contexts():
        product(X)
        with jax.default_matmul_precision("highest"):
            product(X)
        with jax.numpy_dtype_promotion("standard"):
            product(X)

    assert cost(call_in_contexts).count == 3
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        program(lambda x: jnp.log(x - 2))(X)
    with jax.disable_jit():
        assert program(lambda x: float(x[0]))(X) == 0


def test_given_arrays_are_used_up_and_others_are_not():
    step = program(lambda kept, used, flag: (kept["x"] + used["x"], flag), donate=(1,))
    kept, used = {"x": X + 1}, {"x": X + 2}
    result, _ = step(kept, used, "flag")
    np.testing.assert_array_equal(result, 2 * X + 3)
    assert used["x"].is_deleted()
    assert not kept["x"].is_deleted()


def test_what_is_not_hashable_is_named():
    with pytest.raises(ValueError, match=r"argument \[1\]\['b'\] of value is a set"):
        program(value)(LINE, {"a": X, "b": {1}})
    with pytest.raises(ValueError, match="holds arrays"):
        program(jax.tree_util.Partial(value, LINE))


def test_errors_are_those_of_the_compiler_and_of_the_function():
    def fail(x):
        raise ZeroDivisionError("mine")

    for _ in range(2):  # a failure is not remembered
        with pytest.raises(ZeroDivisionError, match="mine"):
            program(fail)(X)
    with pytest.raises(jax.errors.JaxRuntimeError):
        program(lambda x: x, compiler_options={"xla_no_such_option": "1"})(X)


def test_large_constants_of_a_closure_are_right():
    constants = [np.random.default_rng(seed).normal(size=70_000).astype(np.float32) for seed in (0, 1)]
    for constant in constants:
        assert_same(program(lambda x, c=constant: x + c)(jnp.float32(1)), jnp.float32(1) + constant)
        assert_same(program(lambda x: x + constant)(jnp.float32(1)), jnp.float32(1) + constant)  # noqa: B023


def test_a_prepared_program_is_compiled_and_not_compiled_again():
    ours = program(everything)
    shapes = eqx.filter_eval_shape(lambda *args: args, LINE, X, KEYS["ours"])
    prepared = cost(lambda: ours.prepare(*shapes))
    assert (prepared.count, prepared.compiled) == (1, 1)
    assert prepared.seconds > 0
    assert cost(lambda: ours(LINE, X, KEYS["ours"])).count == 0
    assert cost(lambda: ours(LINE, np.asarray(X), KEYS["ours"])).count == 0
    assert cost(lambda: ours(LINE, X, KEYS["default"])).count == 1


def test_an_equal_function_made_anew_shares_the_executable():
    make = lambda: program(lambda x: jnp.tanh(x).sum())  # noqa: E731
    first = make()
    first(X)
    again = cost(lambda: make()(X))
    assert (again.compiled, again.shared) == (0, 1)


def test_programs_that_ignore_different_arguments_are_different():
    first, second = program(lambda x, y: x * 2), program(lambda x, y: y * 2)
    assert_same((first(X, X + 1), second(X, X + 1)), (X * 2, (X + 1) * 2))


def test_threads_compile_one_program_once_and_different_ones_all():
    same, different = program(everything), [program(lambda x, n=n: jnp.sin(x) * n) for n in range(4)]
    barrier = threading.Barrier(4)

    def call(i):
        barrier.wait()
        same(LINE, X, KEYS["ours"])
        return different[i](X)

    before = programs_ledger()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(call, range(4)))
    assert (programs_ledger() - before).count == 5
    assert_same(results, [jnp.sin(X) * n for n in range(4)])


def test_the_table_is_bounded_and_keeps_what_was_used_last(monkeypatch):
    monkeypatch.setattr(programs, "_MOST_ENTRIES", 2)
    shifted = program(lambda x, by: x + by)
    for by in (1, 2, 1, 3):
        shifted(X, by)
    assert len(programs._table) == 2
    assert cost(lambda: shifted(X, 1)).count == 0
    assert cost(lambda: shifted(X, 2)).count == 1


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


def test_a_native_loop_is_the_loop_and_can_be_prepared():
    def loop(x, steps):
        return jax.lax.fori_loop(0, steps, lambda _, x: jnp.sin(x) * 1.5 + x.sum(), x)

    ours = native(loop)
    ours.prepare(jax.ShapeDtypeStruct(X.shape, X.dtype), jax.ShapeDtypeStruct((), jnp.int32))
    assert cost(lambda: ours(X, jnp.int32(9))).count == 0
    np.testing.assert_allclose(ours(X, jnp.int32(9)), eqx.filter_jit(loop)(X, jnp.int32(9)), rtol=1e-5)
