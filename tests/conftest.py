"""Settings for all tests: jaxtyping checked by beartype, nothing promoted silently, and x64 on request."""

import getpass
import os
import tempfile
from pathlib import Path

import jax
import jaxtyping
import pytest

jaxtyping.install_import_hook("tallmc", "beartype.beartype")

# What tests compile is kept for their next run, apart from what the user has compiled.
os.environ.setdefault("TALLMC_CACHE", str(Path(tempfile.gettempdir()) / f"tallmc-tests-{getpass.getuser()}"))

jax.config.update("jax_enable_x64", os.environ.get("TALLMC_X64", "0") == "1")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

SLOW_CASES = Path(__file__).with_name("slow_cases.txt")


@pytest.hookimpl(tryfirst=True)  # before a choice by `-m` or `-k`
def pytest_collection_modifyitems(config, items):
    """Marks what `slow_cases.txt` names, and refuses names that no test has."""
    listed = {line for line in SLOW_CASES.read_text().splitlines() if not line.startswith("#")}
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.slow)
    if any("::" in argument for argument in config.args):
        return  # of a file that is not collected as a whole
    files = {item.nodeid.split("::")[0] for item in items}
    unknown = {name for name in listed if name.split("::")[0] in files} - {item.nodeid for item in items}
    if unknown:
        raise pytest.UsageError(f"slow_cases.txt names what is no test: {', '.join(sorted(unknown))}")
