"""Settings for all tests: jaxtyping checked by beartype, nothing promoted silently, and x64 on request."""

import os

import jax
import jaxtyping

jaxtyping.install_import_hook("tallmc", "beartype.beartype")

jax.config.update("jax_enable_x64", os.environ.get("TALLMC_X64", "0") == "1")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
