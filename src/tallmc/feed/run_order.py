"""The order of a test on few windows: short runs of neighbours, in an order that is fresh for every test."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, UInt32

from tallmc.feed.contract import Window
from tallmc.posterior.spread import Ring

_FEWEST_RUNS = 8192  # where there are rows enough: the variance of so many is that of all shuffles to 1.6 %
_MOST_RUNS = 2**20  # beyond that the products of `_times` would not fit 32 bits


class RunCursor(eqx.Module):
    """Where the ring was cut, the order of the runs, and how many the test has seen."""

    offset: Int[Array, ""]
    first: UInt32[Array, ""]
    stride: UInt32[Array, ""]
    seen: Int[Array, ""]


class RunOrder(eqx.Module):
    """Sees the rows as a ring, cut at a random row into runs of a few neighbours, and reads these in random order.

    Run number j of a test is run `first + j * stride` of the ring, modulo their number P, with `first` and `stride`
    drawn for each test. P is prime, so any two places of the order hold any two runs equally often: sums of windows
    vary from test to test exactly as those of runs that are drawn without replacement. Rows that are left over because
    P is prime, and less than a run, come last; which rows these are depends on where the ring was cut.

    Args:
        num_rows: Rows of data.
        batch_size: Rows in a window.
    """

    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    run_length: int = eqx.field(static=True)
    num_runs: int = eqx.field(static=True)

    def __init__(self, num_rows: int, batch_size: int):
        self.num_rows, self.batch_size = num_rows, batch_size
        self.run_length = _run_length(num_rows, batch_size)
        self.num_runs = _largest_prime(min(num_rows // self.run_length, _MOST_RUNS))

    def start(self, key: Array) -> RunCursor:
        """Cuts the ring and draws an order."""
        bits = jax.random.bits(key, (3,), jnp.uint32)
        offset = (bits[0] % jnp.uint32(self.num_rows)).astype(jnp.int32)
        first = bits[1] % jnp.uint32(self.num_runs)
        stride = jnp.uint32(1) + bits[2] % jnp.uint32(max(self.num_runs - 1, 1))
        return RunCursor(offset, first, stride, jnp.int32(0))

    def advance(self, cursor: RunCursor) -> RunCursor:
        """The next runs of the same order."""
        seen = cursor.seen + self.batch_size // self.run_length
        return RunCursor(cursor.offset, cursor.first, cursor.stride, seen)

    def read(self, ring: PyTree | Ring, cursor: RunCursor) -> Window:
        """Gathers runs; only the last window of a test can be partial."""
        starts = self._starts(cursor)
        if isinstance(ring, Ring):
            return Window(ring.runs(starts, self.run_length), self._count(cursor), self.batch_size)
        rows = jax.tree.map(lambda leaf: _gather(leaf, starts, self.run_length), ring)
        rows = jax.lax.optimization_barrier(rows)  # or they would be gathered again for every use
        return Window(rows, self._count(cursor), self.batch_size)

    def numbers(self, cursor: RunCursor) -> Window:
        """The numbers of the rows that `read` would gather, for rows that lie elsewhere."""
        numbers = self._starts(cursor)[:, None] + jnp.arange(self.run_length, dtype=jnp.int32)[None]
        numbers = numbers.reshape(self.batch_size)
        numbers = jnp.where(numbers >= self.num_rows, numbers - self.num_rows, numbers)
        return Window(numbers, self._count(cursor), self.batch_size)

    def _starts(self, cursor: RunCursor) -> Int[Array, " runs"]:
        """The first row of each run of a window."""
        numbers = cursor.seen + jnp.arange(self.batch_size // self.run_length, dtype=jnp.int32)
        shuffled = (_times(cursor.stride, numbers.astype(jnp.uint32), self.num_runs) + cursor.first) % self.num_runs
        runs = jnp.where(numbers < self.num_runs, shuffled.astype(jnp.int32), numbers)
        starts = cursor.offset + runs * self.run_length
        return jnp.where(starts >= self.num_rows, starts - self.num_rows, starts)

    def _count(self, cursor: RunCursor) -> Int[Array, ""]:
        return jnp.clip(self.num_rows - cursor.seen * self.run_length, 0, self.batch_size)


def _gather(leaf: Array, starts: Int[Array, " runs"], length: int) -> Array:
    """Copies runs next to each other: on a CPU one after another, each a move of memory, elsewhere all at once."""
    if length == 1:
        return leaf.at[starts].get(mode="promise_in_bounds")
    one_by_one = jax.default_backend() == "cpu"
    over = jax.lax.map if one_by_one else lambda function, values: jax.vmap(function)(values)
    runs = over(lambda start: jax.lax.dynamic_slice_in_dim(leaf, start, length), starts)
    return runs.reshape(-1, *leaf.shape[1:])


def _times(stride: Array, numbers: Array, modulus: int) -> Array:
    """A product modulo a number of at most 20 bits, in 32 bits."""
    if modulus <= 2**16:
        return stride * numbers % jnp.uint32(modulus)
    high, low = stride >> jnp.uint32(10), stride & jnp.uint32(1023)
    return ((high * numbers % jnp.uint32(modulus)) * jnp.uint32(1024) + low * numbers) % jnp.uint32(modulus)


def _run_length(num_rows: int, batch_size: int) -> int:
    """Rows of a run: a divisor of the window, the longest that leaves enough runs to draw from."""
    divisors = [length for length in range(1, batch_size + 1) if batch_size % length == 0]
    return max((length for length in divisors if num_rows // length >= _FEWEST_RUNS), default=1)


def _largest_prime(at_most: int) -> int:
    """The largest prime not above a number of at least 2; 1 for less."""
    for number in range(at_most, 1, -1):
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            return number
    return 1
