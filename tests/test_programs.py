"""Programs: the same results as `equinox.filter_jit`, compiled once, several at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallmc.numerics import programs
from tallmc.numerics.programs import forget_programs, program, programs_ledger
from tallmc.run import native as native_module
from tallmc.run.native import native
from tests.programs_to_compile import KEYS, LINE, X, assert_same, cost, everything, value


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setenv("TALLMC_CACHE", "0")
    forget_programs()


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


def test_a_native_loop_is_the_loop_and_can_be_prepared():
    def loop(x, steps):
        return jax.lax.fori_loop(0, steps, lambda _, x: jnp.sin(x) * 1.5 + x.sum(), x)

    ours = native(loop)
    ours.prepare(jax.ShapeDtypeStruct(X.shape, X.dtype), jax.ShapeDtypeStruct((), jnp.int32))
    assert cost(lambda: ours(X, jnp.int32(9))).count == 0
    np.testing.assert_allclose(ours(X, jnp.int32(9)), eqx.filter_jit(loop)(X, jnp.int32(9)), rtol=1e-5)


def test_a_compiler_that_cannot_be_quick_compiles_all_the_same(monkeypatch):
    monkeypatch.setattr(programs, "COMPILED_SOON", {"xla_no_such_option": "1"})
    assert_same(program(lambda x: jnp.sinh(x) + 1)(X), eqx.filter_jit(lambda x: jnp.sinh(x) + 1)(X))


def test_a_native_loop_runs_where_its_option_is_unknown(monkeypatch):
    monkeypatch.setattr(native_module, "_EMIT_EVERYTHING", {"xla_no_such_option": ""})
    native_module._emit_everything.cache_clear()
    try:
        assert native_module._emit_everything() == {}
        ours = native(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: x * 1.5, x))
        np.testing.assert_allclose(ours(X), X * 1.5**3, rtol=1e-6)
    finally:
        native_module._emit_everything.cache_clear()


def test_an_option_that_somebody_asked_for_is_not_dropped():
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="xla_no_such_option"):
        program(lambda x: jnp.cosh(x) + 1, compiler_options={"xla_no_such_option": "1"})(X)
