"""Settings for all tests: jaxtyping checked by beartype, nothing promoted silently, and x64 on request."""

import getpass
import os
import tempfile
from pathlib import Path

import jax
import jaxtyping

jaxtyping.install_import_hook("tallmc", "beartype.beartype")

# What tests compile is kept for their next run, apart from what the user has compiled.
os.environ.setdefault("TALLMC_CACHE", str(Path(tempfile.gettempdir()) / f"tallmc-tests-{getpass.getuser()}"))

jax.config.update("jax_enable_x64", os.environ.get("TALLMC_X64", "0") == "1")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
