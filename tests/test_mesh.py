"""Rows on several devices and in several processes: the draws are those of one."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest


def on_eight_devices(*checks):
    """What `tests.eight_devices` found, in a process that has eight."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.eight_devices", *checks]
    done = subprocess.run(command, env=environment | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found():
    return on_eight_devices("windows", "passes", "refusals", "samples")


def test_draws_are_those_of_one_device_digit_for_digit_and_every_time(found):
    assert found["samples"]["same"] == [True, True]
    assert found["samples"]["rows"]
    assert 0.1 < found["samples"]["moved"] < 0.9


def test_a_run_on_devices_goes_on_where_it_stopped(found):
    assert found["samples"]["extended"]


def test_a_round_is_one_message_for_all_chains(found):
    # A number for each of the 100 rows of the window of each of 3 chains, and nothing else.
    assert found["samples"]["messages"] == ["f32[3,100]"]


def test_windows_are_those_of_one_device_by_every_feed(found):
    assert len(found["windows"]) == 6
    assert all(found["windows"].values()), found["windows"]


def test_passes_agree_with_those_of_one_device_to_the_rounding_of_their_blocks(found):
    # Sums of 10,000 float32 numbers in blocks of 2,048, which devices cut elsewhere.
    assert all(error < 2e-5 for error in found["passes"].values()), found["passes"]


@pytest.mark.parametrize(
    ("case", "fix"),
    [
        ("few rows", "pass a mesh of fewer devices"),
        ("driver", r"pass driver=tm.Together\(\)"),
        ("too many", "--xla_force_host_platform_device_count=9"),
        ("no mesh", "a jax.sharding.Mesh or a number of devices"),
        ("all rows", "leave mesh out"),
        ("gradients of rows", "leave mesh out"),
    ],
)
def test_what_cannot_be_is_refused_with_a_fix(found, case, fix):
    assert re.search(fix, found["refusals"][case] or "")


@pytest.mark.slow
def test_rules_that_read_otherwise_give_the_draws_of_one_device():
    found = on_eight_devices("kernels")["kernels"]
    assert found["exact"] == found["sequential"] == 0  # sums of devices are rounded otherwise: no decision hangs on it
    # A sum of each device's rows; a number for each row of a window; a number for each row drawn by weight.
    assert found["exact: messages"] == ["f32[3,8]"]
    assert found["sequential: messages"] == ["f32[3,400]"]
    assert found["subsampled: messages"] == ["f32[3,8]"]
    # Here set-up adds up rows by device: expansions differ in their last digits, and draws with them.
    assert found["subsampled"] < 1e-3
    assert found["chosen"] < 1e-3


def started(path, size, num_samples, *store):
    """So many processes that sample together."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [sys.executable, "-W", "ignore", "-m", "tests.on_processes"]
    arguments = [[rank, size, port, path, num_samples, *store] for rank in range(size)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [subprocess.Popen([*command, *map(str, given)], env=environment, **pipes) for given in arguments]


def draws(path, size, num_samples, *store):
    """The draws of each of so many processes, and what each said of its rows."""
    processes = started(path, size, num_samples, *store)
    said = [process.communicate(timeout=400) for process in processes]
    assert [process.returncode for process in processes] == [0] * size, said
    return [np.load(f"{path}-{rank}.npy") for rank in range(size)], [out.splitlines()[-1] for out, _ in said]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_processes_that_each_have_a_part_of_the_rows_draw_what_one_draws_with_all(tmp_path, size):
    ((alone,), _) = draws(tmp_path / "one", 1, 40)
    together, said = draws(tmp_path / "several", size, 40)
    for one in together:
        np.testing.assert_array_equal(one, alone)
    assert all(int(line.split()[0]) == 20_003 and int(line.split()[1]) < 20_003 / size + 20 for line in said), said


@pytest.mark.slow
def test_after_a_process_is_killed_the_other_says_so_and_one_goes_on_alone(tmp_path):
    path, store = tmp_path / "killed", tmp_path / "run.zarr"
    first, second = started(path, 2, 1_000_000, store)
    until = time.monotonic() + 300
    while not list(store.glob("tallmc/checkpoint-0000001*.zip")):  # some draws are there
        assert time.monotonic() < until
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    second.send_signal(signal.SIGKILL)
    _, said = first.communicate(timeout=100)
    second.communicate()
    assert first.returncode != 0
    assert "a process of this run is gone" in said
    assert "resume=True" in said
    from tallmc.run.stored import Stored

    there = Stored.open(store).num_draws
    assert there > 0
    for size, more in ((2, 30), (1, 60)):
        resumed, _ = draws(tmp_path / f"resumed{size}", size, there + more, store)
    ((alone,), _) = draws(tmp_path / "alone", 1, there + 60)
    np.testing.assert_array_equal(resumed[0], alone)
