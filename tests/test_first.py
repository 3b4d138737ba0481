import numpy as np

import tallmc as tm


def test_drivers_agree():
    rows = np.random.default_rng(0).normal(size=5000).astype(jnp.result_type(float))
    posterior = tm.Posterior(lambda m, row: -0.5 * (row - m) ** 2, rows, temperature=100.0)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.3), tm.MHMinibatch(50))
    a = tm.sample(posterior, kernel, init=0.0, num_samples=50, num_warmup=20, num_chains=3)
    b = tm.sample(posterior, kernel, init=0.0, num_samples=50, num_warmup=20, num_chains=3, driver=tm.Together())
    np.testing.assert_array_equal(a.samples, b.samples)
    print(a.summary())
