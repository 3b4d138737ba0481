"""How many rounds a second hosts make together: a small simulation, run as `python -m benchmarks.network`.

In a round each host works out what its rows say, and all add up a few numbers. The sum is made by recursive doubling,
as libraries do for small messages: in each of log2(hosts) steps every host sends to a partner, and goes on when it has
that partner's message. Latencies vary, and the slowest decides; so this is simulated, not worked out.
"""

from typing import NamedTuple

import numpy as np


class Network(NamedTuple):
    """A kind of network.

    Args:
        latency: Seconds that a small message takes, half of the time.
        spread: Standard deviation of the log of what it takes: the tail that the slowest of many hosts meets.
        bandwidth: Bytes a second of a host.
    """

    latency: float
    spread: float
    bandwidth: float


# Stated, not measured here: usual figures of one-way latencies between processes on two hosts.
NETWORKS = {
    "InfiniBand, 2 us": Network(2e-6, 0.2, 25e9),
    "RoCE or EFA, 15 us": Network(15e-6, 0.3, 12.5e9),
    "TCP in a data centre, 40 us": Network(40e-6, 0.5, 1.25e9),
}
_OVERHEAD = 11e-6  # seconds of a round besides the rows: 88,000 rounds/s of 64 chains on one H200
HOSTS = (1, 8, 64, 512)
_ROUNDS = 400


class Case(NamedTuple):
    """What a round is.

    Args:
        payload: Bytes that are added up.
        work: Seconds that one host alone would take for the likelihood of the window.
        shared: Whether hosts share that; each looks at as many rows as one alone where these are drawn by weight.
        by_host: Further bytes for each host.
    """

    payload: int
    work: float
    shared: bool = True
    by_host: int = 0


def seconds_of_a_round(network: Network, hosts: int, case: Case, seed: int = 0) -> float:
    """The mean time of a round.

    Args:
        network: Between the hosts.
        hosts: A power of two.
        case: What is worked out and added up.
        seed: Of the latencies.
    """
    generator = np.random.default_rng(seed)
    clock = np.zeros(hosts)
    for _ in range(_ROUNDS):
        clock += _OVERHEAD + case.work / (hosts if case.shared else 1)
        for step in range(hosts.bit_length() - 1):
            sent = clock[np.arange(hosts) ^ (1 << step)]
            latency = network.latency * np.exp(network.spread * generator.standard_normal(hosts))
            clock = np.maximum(clock, sent + latency) + (case.payload + case.by_host * hosts) / network.bandwidth
    return float(clock.max() / _ROUNDS)


def main() -> None:
    """Prints a table of rounds a second."""
    cases = {
        "few rows by weight (64 chains x 16 rows, 10 us)": Case(64 * 16 * 4, 10e-6, shared=False),
        "windows of 4,096 rows (64 chains, 2 ms)": Case(64 * 4096 * 4, 2e-3),
        "the same, of which only sums are sent": Case(0, 2e-3, by_host=64 * 4),
        "dear rows (4 chains x 4,096 rows, 50 ms)": Case(4 * 4096 * 4, 50e-3),
    }
    print("| network | what a round is | " + " | ".join(f"{hosts} hosts" for hosts in HOSTS) + " |")
    print("| --- | --- |" + " --- |" * len(HOSTS))
    for name, network in NETWORKS.items():
        for what, case in cases.items():
            rates = [1 / seconds_of_a_round(network, hosts, case) for hosts in HOSTS]
            print(f"| {name} | {what} | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")


if __name__ == "__main__":
    main()
