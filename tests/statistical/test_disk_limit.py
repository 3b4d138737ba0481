"""A file of 2 GB is ingested and sampled where the system allows 512 MB, cache included."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

NUM_ROWS, LIMIT = 25_000_000, 512 * 2**20
CHILD = """
import json, os, sys
from pathlib import Path
group = Path(sys.argv[1])
(group / "cgroup.procs").write_text(str(os.getpid()))
import numpy as np, tallmc as tm
count = int(sys.argv[3])
def batches():
    generator = np.random.default_rng(0)
    for _ in range(count // 500_000):
        X = generator.standard_normal((500_000, 20), np.float32)
        y = X @ np.linspace(-1, 1, 20, dtype=np.float32) + generator.standard_normal(500_000, np.float32)
        yield {"x": X, "y": y}
path = tm.ingest(batches(), sys.argv[2], progress=False)
posterior = tm.models.linear_regression(tm.open_dataset(path), noise_sd=1.0)
run = tm.sample(posterior, num_samples=1000, progress=False)
draws = run.samples.reshape(-1, 20).astype(float)
print(json.dumps([draws.mean(axis=0).tolist(), draws.std(axis=0).tolist()]))
"""


@pytest.fixture
def group():
    """A control group with a limit that counts the cache of what it reads; only root can make one."""
    root = Path("/sys/fs/cgroup/memory") if Path("/sys/fs/cgroup/memory").is_dir() else Path("/sys/fs/cgroup")
    made = root / f"tallmc-{uuid.uuid4().hex[:8]}"
    limit = made / ("memory.limit_in_bytes" if root.name == "memory" else "memory.max")
    try:
        made.mkdir()
        limit.write_text(str(LIMIT))
    except OSError as error:
        if made.exists():
            made.rmdir()
        pytest.skip(f"this system allows no control group with a memory limit: {error}")
    yield made
    made.rmdir()


@pytest.mark.slow
def test_two_gigabytes_within_half_a_gigabyte(group, tmp_path):
    """The closed form: means within 6 posterior deviations over sqrt(1000), deviations within 15 %."""
    command = [sys.executable, "-c", CHILD, str(group), str(tmp_path / "rows"), str(NUM_ROWS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "rows" / "x.rows").stat().st_size > 2e9
    means, deviations = (np.asarray(part) for part in json.loads(done.stdout.splitlines()[-1]))
    precision, weighed = np.eye(20), np.zeros(20)
    generator = np.random.default_rng(0)
    for _ in range(NUM_ROWS // 500_000):
        X = generator.standard_normal((500_000, 20), np.float32)
        y = X @ np.linspace(-1, 1, 20, dtype=np.float32) + generator.standard_normal(500_000, np.float32)
        precision += (X.T @ X).astype(float)
        weighed += (X.T @ y).astype(float)
    expected = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.all(np.abs(means - np.linalg.solve(precision, weighed)) < 6 * expected / np.sqrt(1000) + 1e-6)
    np.testing.assert_allclose(deviations, expected, rtol=0.15)
