"""Edits of single places of the source, each with the tests that must notice it; `tests/mutants.py` replays them."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """An edit of one place, and the tests of which each alone must fail with it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


FEEDS, DRIVERS, SAMPLE = "tests/test_feeds.py::", "tests/test_drivers.py::", "tests/test_sample.py::"
TWINS, BALANCE = "tests/laws/test_slow_twins.py::", "tests/laws/test_detailed_balance.py::"
FREQUENCY = "tests/laws/test_acceptance_frequency.py::test_acceptance_frequency_is_the_formula"
WRONG, SUBSAMPLING = "tests/laws/test_wrong_decisions.py::", "tests/laws/test_subsampling.py::"
TAYLOR, COMPOSE, MOMENTS = "tests/test_taylor.py::", "tests/test_compose.py::", "tests/test_moments.py::"
GIBBS = "tests/test_gibbs.py::"
DISK = "tests/test_disk.py::"
STREAM = "tests/test_streamed.py::"
WHOLE, TEMPERING = "tests/test_whole_call.py::", "tests/test_tempering.py::"
JUMPING = "tests/test_equi_energy.py::"
STORES = "tests/test_stores.py::"
STIEFEL, ICA = "tests/test_stiefel_walk.py::", "tests/test_ica.py::"
JUMPS, SELECTION = "tests/laws/test_reversible_jump.py::", "tests/test_variable_selection.py::"
LANGEVIN, SGLD = "tests/laws/test_langevin.py::", "tests/test_sgld.py::"
UNARY, BOUNDS_OF = "tests/test_bounds_unary.py::", "tests/test_bounds_of.py::"
ROW_BOUNDS = "tests/laws/test_row_bounds.py::"
BOUNDS_SAFETY = "tests/test_bounds_safety.py::"
MESH = "tests/test_mesh.py::"
BEST = SAMPLE + "test_warmup_finds_the_best_acceptance_rate_and_then_leaves_it"

FRAMES, AFTER, MISTAKES = "tests/test_frames.py::", "tests/test_after.py::", "tests/test_mistakes.py::"
FROM_NUMPYRO, BLACKJAX = "tests/test_from_numpyro.py::", "tests/test_as_blackjax.py::"

MUTANTS = {
    # What people look at.
    "ranks are among a chain's own draws": Mutant(
        "diagnostics/panels.py",
        "ranks = rankdata(draws, axis=None).reshape(draws.shape)",
        "ranks = num_chains * rankdata(draws, axis=1)",
        ("tests/test_report.py::test_ranks_of_chains_that_agree_are_uniform_and_others_are_not",),
    ),
    "gradients read no rows": Mutant(
        "diagnostics/report.py",
        'return float(np.mean(rows * np.maximum(run.stats.get("gradients", 1), 1)))',
        "return float(np.mean(rows))",
        ("tests/test_report.py::test_rows_are_compared_with_those_of_nuts",),
    ),
    # Data frames, and what comes after the draws.
    "levels are those of the new rows": Mutant(
        "frames/read.py",
        "if unseen := found - set(levels):",
        "if unseen := found - set(levels) - found:",
        (MISTAKES + "test_a_mistake_is_named_with_its_fix_in_one_line[unseen level]",),
    ),
    "the intercept forgets the centring": Mutant(
        "frames/design.py",
        "return coefficients + moved * self._as(at_anchor, coefficients)",
        "return coefficients",
        (FRAMES + "test_the_way_back_is_the_inverse", FRAMES + "test_draws_are_of_the_columns_as_they_came"),
    ),
    "leaving out is taken for having seen": Mutant(
        "run/leave_out.py",
        "return self.centre + (self.bend - self.spread) / 2",
        "return self.centre + (self.bend + self.spread) / 2",
        (AFTER + "test_leave_one_out_is_within_its_standard_error_of_the_exact_value",),
    ),
    "draws are as good as endless": Mutant(
        "run/leave_out.py",
        "subsampling_se=float(np.hypot(found.sampling, noise))",
        "subsampling_se=float(np.hypot(found.sampling, 0 * noise))",
        (AFTER + "test_errors_of_leave_one_out_are_as_large_as_it_says",),
    ),
    # Bridges.
    "a plate of one row is scaled to all": Mutant(
        "bridges/numpyro_densities.py",
        'site["scale"] / extra',
        'site["scale"]',
        (FROM_NUMPYRO + "test_densities_are_numpyros_on_both_scales[minibatches]",),
    ),
    "rows that depend on each other pass": Mutant(
        "bridges/agreement.py",
        "elif not abs(value - mine[name]) <= _TOLERANCE * (1 + abs(value)):",
        "elif not abs(value - mine[name]) <= _TOLERANCE * (1 + abs(value)) and not of_rows:",
        (FROM_NUMPYRO + "test_bad_models_end_in_one_line",),
    ),
    "a step for BlackJAX stays where it was": Mutant(
        "bridges/blackjax_steps.py",
        "return ChainState(posterior.constrain(problem.kernel.position(rest)), rest, state.time + 1), info",
        "return ChainState(posterior.constrain(problem.kernel.position(rest)), state.rest, state.time + 1), info",
        (BLACKJAX + "test_steps_under_scan_have_the_posterior",),
    ),
    # Many devices.
    "rows of a device are put where another's are": Mutant(
        "posterior/spread.py",
        "[None]) * devices + device\n",
        "[None]) * devices + (devices - 1 - device)\n",
        (
            MESH + "test_windows_are_those_of_one_device_by_every_feed",
            MESH + "test_draws_are_those_of_one_device_digit_for_digit_and_every_time",
        ),
    ),
    "every device counts rows that it does not have": Mutant(
        "posterior/mesh_passes.py",
        "own & (places < bounds[1])",
        "places < bounds[1]",
        (MESH + "test_passes_agree_with_those_of_one_device_to_the_rounding_of_their_blocks",),
    ),
    # Bounds from programs.
    "what is convex is taken for concave": Mutant(
        "bounds/curvature.py",
        "return found in (*_FREE, Kind.AFFINE, Kind.CONCAVE)",
        "return found is not Kind.ELSE",
        (BOUNDS_SAFETY + "test_what_is_called_concave_is",),
    ),
    "rows that break their bounds are no doubt": Mutant(
        "run/result.py",
        "known = self.known_doubts + self.decision_doubts + self.heat_doubts",
        "known = self.known_doubts + self.heat_doubts",
        (BOUNDS_SAFETY + "test_a_false_bound_that_calls_itself_proven_ends_as_a_doubt",),
    ),
    "rounding is inward": Mutant(
        "bounds/interval.py",
        "return Interval(low - slack, high + slack)",
        "return Interval(low + slack, high - slack)",
        (UNARY + "test_arithmetic_rounds_outward",),
    ),
    "the second derivative of a logistic function turns elsewhere": Mutant(
        "bounds/unary.py",
        "_PEAK_OF_TWO = math.log(2 + math.sqrt(3))",
        "_PEAK_OF_TWO = math.log(2 + math.sqrt(5))",
        (UNARY + "test_ranges_hold_and_are_no_wider_than_need_be[logistic]",),
    ),
    "products forget how both factors change": Mutant(
        "bounds/jet.py",
        "for k in range(order + 1)) for order in range(4)",
        "for k in range(0, order + 1, max(order, 1))) for order in range(4)",
        (ROW_BOUNDS + "test_no_derivative_exceeds_its_bound[heteroscedastic]",),
    ),
    "bounds are taken to hold everywhere": Mutant(
        "control_variates/remainder_bounds.py",
        "jnp.where(jnp.maximum(triangle.near, triangle.far) <= self.radius, reach, jnp.inf)",
        "jnp.where(triangle.far <= self.radius, reach, jnp.inf)",
        (BOUNDS_OF + "test_the_reach_ends_where_the_region_does_whichever_way_a_step_goes",),
    ),
    # Feeds.
    "windows hop by one": Mutant(
        "feed/window_order.py",
        "return WindowCursor(offset, index, self.strides[which])",
        "return WindowCursor(offset, index, jnp.int32(1) + 0 * which)",
        (FEEDS + "test_windows_start_anywhere_and_hop_by_every_stride",),
    ),
    "ring of windows is cut at row 0": Mutant(
        "feed/window_order.py",
        "return WindowCursor(offset, index, self.strides[which])",
        "return WindowCursor(0 * offset, index, self.strides[which])",
        (FEEDS + "test_the_cut_of_the_ring_is_any_row",),
    ),
    "first window is window 0": Mutant(
        "feed/window_order.py",
        "return WindowCursor(offset, index, self.strides[which])",
        "return WindowCursor(offset, 0 * index, self.strides[which])",
        (FEEDS + "test_windows_start_anywhere_and_hop_by_every_stride",),
    ),
    "runs hop by one": Mutant(
        "feed/run_order.py",
        "return RunCursor(offset, first, stride, jnp.int32(0))",
        "return RunCursor(offset, first, jnp.uint32(1), jnp.int32(0))",
        (FEEDS + "test_runs_start_anywhere_and_hop_by_every_stride",),
    ),
    "ring of runs is cut at row 0": Mutant(
        "feed/run_order.py",
        "return RunCursor(offset, first, stride, jnp.int32(0))",
        "return RunCursor(0 * offset, first, stride, jnp.int32(0))",
        (FEEDS + "test_the_cut_of_the_ring_is_any_row",),
    ),
    "first run is run 0": Mutant(
        "feed/run_order.py",
        "return RunCursor(offset, first, stride, jnp.int32(0))",
        "return RunCursor(offset, 0 * first, stride, jnp.int32(0))",
        (FEEDS + "test_runs_start_anywhere_and_hop_by_every_stride",),
    ),
    "few windows come as one shuffle has them": Mutant(
        "feed/in_memory.py",
        "order = WindowOrder if many or every_row else RunOrder",
        "order = WindowOrder",
        (WRONG + "test_the_default_feed_errs_as_the_design_predicts_whatever_the_shuffle[12214-4000]",),
    ),
    "number of runs is not prime": Mutant(
        "feed/run_order.py",
        "self.num_runs = _largest_prime(min(num_rows // self.run_length, _MOST_RUNS))",
        "self.num_runs = min(num_rows // self.run_length, _MOST_RUNS)",
        (FEEDS + "test_any_two_places_hold_any_two_rows_equally_often",),
    ),
    "padding counts": Mutant(
        "feed/contract.py",
        "jnp.where(self.valid, said, 0)",
        "said",
        (FREQUENCY + "[exact]",),
    ),
    "rows by weight are not scaled back": Mutant(
        "feed/weighted.py",
        "np.divide(np.mean(weights, dtype=float), weights, out=scales",
        "np.divide(np.mean(weights, dtype=float), np.mean(weights), out=scales",
        (FEEDS + "test_rows_by_weight_come_in_proportion_and_are_scaled_back",),
    ),
    "alias table gives the wrong share": Mutant(
        "feed/alias.py",
        "share[heavy[1:]] -= np.clip(left_over[:-1], 0, 1)",
        "share[heavy[1:]] -= np.clip(left_over[1:], 0, 1)",
        (FEEDS + "test_rows_by_weight_come_in_proportion_and_are_scaled_back",),
    ),
    # Schedules.
    "a test is observed at the last temperature": Mutant(
        "run/chain.py",
        "problem.kernel.observe(chain.state, problem.model.at_time(chain.finished), window)",
        "problem.kernel.observe(chain.state, problem.model.at_time(2**30 + 0 * chain.finished), window)",
        ("tests/test_temperature.py::test_each_draw_is_of_the_posterior_at_its_temperature",),
    ),
    "an audit asks at the last temperature": Mutant(
        "diagnostics/audit.py",
        "    totals = totals * steps.colder\n",
        "",
        ("tests/test_temperature.py::test_an_audit_asks_at_the_temperature_of_the_step[rule0]",),
    ),
    "a design is never in force": Mutant(
        "numerics/schedule.py",
        "times[self.made], values[self.made + 1 :] = time, value",
        "times[self.made] = time",
        ("tests/test_redesign.py::test_nothing_changes_after_four_fifths_of_warm_up",),
    ),
    "a bias has half its size": Mutant(
        "design/risk.py",
        "bias = [(time + 1) / 2 *",
        "bias = [(time + 1) / 4 *",
        ("tests/test_risk.py::test_the_bias_of_the_squared_deviation_is_what_the_chain_has",),
    ),
    "per-step candidates all look at every window": Mutant(
        "acceptance/austere_mh_per_step.py",
        "jnp.mod(windows, jnp.asarray(batches // self.batch_size, jnp.int32)) == 0",
        "jnp.mod(windows, jnp.asarray(batches // batches, jnp.int32)) == 0",
        (TWINS + "test_per_step_takes_the_cheapest_candidate_within_the_error[batch_size0]",),
    ),
    # Rules.
    "MHSubLhd has 0.3 of its log term": Mutant(
        "acceptance/mh_sub_lhd.py",
        "allowed = jnp.sqrt(spread * log_term / count)",
        "log_term = 0.3 * log_term\n        allowed = jnp.sqrt(spread * log_term / count)",
        (TWINS + "test_mh_sub_lhd_is_bardenets_algorithm[bernstein]",),
    ),
    "MHSubLhd has no union bound": Mutant(
        "acceptance/mh_sub_lhd.py",
        "log_term = constant + rounded(",
        "log_term = constant + 0 * rounded(",
        (TWINS + "test_mh_sub_lhd_is_bardenets_algorithm[serfling]",),
    ),
    "AustereMH at half confidence": Mutant(
        "acceptance/austere_mh.py",
        "confidence = jnp.asarray(normal_quantile(self.epsilon), dtype)",
        "confidence = jnp.asarray(normal_quantile(self.epsilon), dtype) / 2",
        (
            FREQUENCY + "[austere_mh]",
            BALANCE + "test_a_t_test_does_to_the_posterior_what_its_design_says[austere_mh]",
            TWINS + "test_austere_mh_is_korattikaras_algorithm[0.05-0.5]",
        ),
    ),
    "AustereMH without finite-population correction": Mutant(
        "acceptance/austere_mh.py",
        "unseen = num_rows - (1 if self.with_replacement else count)",
        "unseen = num_rows - 1",
        (TWINS + "test_austere_mh_is_korattikaras_algorithm[0.05-0.5]",),
    ),
    "a partial window counts as a look": Mutant(
        "acceptance/austere_mh.py",
        "(evidence.exceeds(evidence.confidence, self.boundary) & whole)",
        "evidence.exceeds(evidence.confidence, self.boundary)",
        (WRONG + "test_a_partial_window_is_no_look[rule0]",),
    ),
    "MHMinibatch draws no correction": Mutant(
        "acceptance/mh_minibatch.py",
        " + top_up + evidence.correction",
        " + top_up",
        (FREQUENCY + "[mh_minibatch]",),
    ),
    "MHMinibatch is not topped up": Mutant(
        "acceptance/mh_minibatch.py",
        " + top_up + evidence.correction",
        " + 0 * top_up + evidence.correction",
        (FREQUENCY + "[mh_minibatch]",),
    ),
    "Metropolis explores best at 0.6": Mutant(
        "acceptance/formulas.py",
        "best_acceptance: ClassVar = 0.234",
        "best_acceptance: ClassVar = 0.6",
        (BEST + "[rule0-0.234]",),
    ),
    "Barker explores best at 0.4": Mutant(
        "acceptance/formulas.py",
        "best_acceptance: ClassVar = 0.159",
        "best_acceptance: ClassVar = 0.4",
        (BEST + "[rule1-0.159]",),
    ),
    "a full sum forgets what it lost": Mutant(
        "acceptance/full_sum.py",
        "addend = ordered_sum(log_ratios) - self.lost",
        "addend = ordered_sum(log_ratios)",
        (MOMENTS + "test_a_sum_over_thousands_of_windows_is_right_to_the_last_digit",),
    ),
    "MHSS has no second stage": Mutant(
        "acceptance/subsampling.py",
        "passed = evidence.worth_a_look & (evidence.total > evidence.level)",
        "passed = evidence.worth_a_look",
        (SAMPLE + "test_exact_subsampling_on_a_skewed_posterior[rule0]",),
    ),
    "arrivals have the wrong law": Mutant(
        "acceptance/subsampling.py",
        "jnp.cumsum(-jnp.log1p(-gaps))",
        "jnp.cumsum(jnp.log1p(gaps))",
        (SUBSAMPLING + "test_there_and_back_balance[0.4-0.0-2.0-mhss]",),
    ),
    "more rows are drawn than there are": Mutant(
        "acceptance/subsampling.py",
        "every_row=~(ceiling + extra < model.num_rows)",
        "every_row=~(ceiling + extra < 2 * model.num_rows)",
        (SUBSAMPLING + "test_all_rows_are_read_where_more_would_be_drawn[mhss]",),
    ),
    # Moves, and what is known of them.
    "the proposal's log ratio is left out": Mutant(
        "metropolis.py",
        "offset = known.offset.astype(finest) + move.log_ratio.astype(finest)",
        "offset = known.offset.astype(finest)",
        (FREQUENCY + "[exact]",),
    ),
    "the prior is left out": Mutant(
        "posterior/model.py",
        "return KnownChange(self.log_prior_change(position, proposed), reach)",
        "return KnownChange(0 * self.log_prior_change(position, proposed), reach)",
        (BALANCE + "test_detailed_balance_on_an_enumerable_target[exact]",),
    ),
    "curvature of the expansion is halved": Mutant(
        "control_variates/expansion.py",
        "step.difference * step.total / 2",
        "step.difference * step.total / 4",
        (TAYLOR + "test_what_is_known_and_what_rows_add_make_the_log_ratio[closed-2]",),
    ),
    "bounds on remainders are halved": Mutant(
        "control_variates/remainder_bounds.py",
        "reach = reach * (1 + _SLACK) + slack",
        "return reach / 2 + slack",
        (TAYLOR + "test_no_row_is_left_with_more_than_its_bound[2]",),
    ),
    "Crank-Nicolson's noise may be fused": Mutant(
        "proposals/crank_nicolson.py",
        "noise = rounded(jax.random.normal(key, flat.shape, flat.dtype))",
        "noise = jax.random.normal(key, flat.shape, flat.dtype)",
        (DRIVERS + "test_both_drivers_agree_on_rows_by_weight_and_on_parts[mhss]",),
    ),
    "skewness of tiny numbers overflows": Mutant(
        "numerics/moments.py",
        "varies = self.squares > jnp.finfo(self.packed.dtype).tiny",
        "varies = self.squares >= 0",
        (MOMENTS + "test_values_that_hardly_differ_have_a_variance_and_a_skewness",),
    ),
    "the way back is as the way here": Mutant(
        "proposals/sgld.py",
        "back = drift(proposed)",
        "back = -drift(flat)",
        (LANGEVIN + "test_a_move_is_that_of_the_equation[40-plain]",),
    ),
    "rows of the gradient are scaled by their window, padding included": Mutant(
        "proposals/sgld.py",
        "(model.num_rows / window.count.astype(flat.dtype))",
        "(model.num_rows / window.size)",
        (LANGEVIN + "test_a_move_is_that_of_the_equation[23-expanded]",),
    ),
    "rows of proposals are not counted": Mutant(
        "metropolis.py",
        "rows, stats = rows + state.read_before,",
        "rows, stats = rows,",
        (SGLD + "test_a_test_that_wants_all_rows_gets_them_and_the_others_are_counted[exact]",),
    ),
    "an audit lays rows out in another order": Mutant(
        "diagnostics/audit.py",
        "run.feed.arrange(run.posterior.rows, run.shuffle_seed)",
        "run.feed.arrange(run.posterior.rows, 1)",
        (SGLD + "test_an_audit_replays_the_very_windows[alone]",),
    ),
    "decided tests are shown another window": Mutant(
        "run/drivers.py",
        "goes_on = (chain.finished < limit) & ~decided",
        "goes_on = chain.finished < limit",
        (SGLD + "test_both_drivers_give_the_same_chains[alone]",),
    ),
    "a block ends with tests that are decided": Mutant(
        "run/drivers.py",
        " | (number == rounds - 1)",
        "",
        (SGLD + "test_both_drivers_give_the_same_chains[alone]",),
    ),
    "all chains begin in every round": Mutant(
        "run/drivers.py",
        "enough = (_SHARE_TO_BEGIN * jnp.sum(decided) >= running)",
        "enough = (0 * jnp.sum(decided) <= running)",
        (SGLD + "test_dear_proposals_are_made_for_chains_that_begin",),
    ),
    # Trajectories, and what set-up foresees.
    "a trajectory ends with a whole kick": Mutant(
        "proposals/trajectory.py",
        "share = jnp.where(count + 1 < num_steps, 1.0, 0.5).astype(velocity.dtype)",
        "share = jnp.ones((), velocity.dtype)",
        ("tests/test_hmc.py::test_a_trajectory_leads_back_and_keeps_volumes[each]",),
    ),
    "the velocity at the end is not weighed": Mutant(
        "proposals/hmc.py",
        "kinetic = jnp.sum((velocity - final) * (velocity + final)) / 2",
        "kinetic = jnp.zeros(())",
        ("tests/test_hmc.py::test_a_skewed_posterior_in_closed_form[True]",),
    ),
    "rejections for the rows' sake shorten steps": Mutant(
        "proposals/trajectory_tuning.py",
        "if self.by_energy else outcome.accepted.astype(dtype)",
        "if not self.by_energy else outcome.accepted.astype(dtype)",
        ("tests/test_hmc.py::test_rejections_for_the_rows_sake_do_not_shorten_steps[True]",),
    ),
    "the mean is twice as far from the mode": Mutant(
        "setup/centre.py",
        "mean = mode + covariance @ skew / 2",
        "mean = mode + covariance @ skew",
        ("tests/test_centre.py::test_the_mean_of_a_skewed_posterior_is_found_from_its_mode",),
    ),
    "a long tail passes for a normal": Mutant(
        "setup/lines.py",
        "return math.isfinite(variance) and variance < wide and beyond < most",
        "return math.isfinite(variance)",
        ("tests/test_lines.py::test_long_tails_are_told_from_normal_ones",),
    ),
    # Runs.
    "finished chains run on": Mutant(
        "run/drivers.py",
        "goes_on = (chain.finished < limit) & ~decided",
        "goes_on = ~decided",
        (DRIVERS + "test_an_extended_run_is_one_long_run[together-together]",),
    ),
    "tuning goes on after warm-up": Mutant(
        "numerics/gains.py",
        "return jnp.where(transition < num_warmup, gain, 0.0)",
        "return gain",
        (SAMPLE + "test_no_warmup_tunes_nothing",),
    ),
    "an extended run shuffles anew": Mutant(
        "run/result.py",
        "stage = self.feed.arrange(self.posterior.rows, self.shuffle_seed)",
        "stage = self.feed.arrange(self.posterior.rows, self.shuffle_seed + 1)",
        (DRIVERS + "test_an_extended_run_is_one_long_run[alone-alone]",),
    ),
    "an audit asks at the wrong level": Mutant(
        "diagnostics/audit_programs.py",
        "levels = jax.vmap(formula.level)(asked.key_rule, asked.question.offset)",
        "levels = jax.vmap(formula.level)(asked.key_rule, 0 * asked.question.offset)",
        ("tests/test_audit.py::test_decisions_on_all_rows_are_never_reversed_and_bold_ones_are",),
    ),
    "chains that differ are not doubted": Mutant(
        "run/convergence.py",
        "LARGEST_R_HAT = 1.05",
        "LARGEST_R_HAT = 10.0",
        (SAMPLE + "test_chains_that_have_not_mixed_are_doubted",),
    ),
    "few effective draws are not doubted": Mutant(
        "run/convergence.py",
        "FEWEST_DRAWS = 100",
        "FEWEST_DRAWS = 1",
        (SAMPLE + "test_chains_that_have_not_mixed_are_doubted",),
    ),
    # Kernels made of kernels.
    "a part starts where it was left": Mutant(
        "compose/members.py",
        "kernel.begin(key_member, kernel.moved(rest.members[i], rest.position), model, time, *rows)",
        "kernel.begin(key_member, rest.members[i], model, time, *rows)",
        (COMPOSE + "test_every_part_moves_the_one_chain",),
    ),
    "a cycle inside a cycle goes by the common clock": Mutant(
        "compose/members.py",
        "which = self.choose(key_choice, rest.turns)",
        "which = self.choose(key_choice, time)",
        (COMPOSE + "test_a_cycle_takes_turns",),
    ),
    "a mixture forgets its weights": Mutant(
        "compose/mixture.py",
        "jnp.cumsum(self.weights)[:-1]",
        "jnp.cumsum(0 * self.weights + 1 / len(self.kernels))[:-1]",
        (COMPOSE + "test_statistics_of_each_part",),
    ),
    "bounds are not tried inside composites": Mutant(
        "setup/start.py",
        "isinstance(source, WeightedFeed) and rule_needs(part).row_bounds",
        "isinstance(feed, WeightedFeed) and rule_needs(part).row_bounds",
        (COMPOSE + "test_a_wrong_bound_does_not_pass_unseen_in_a_part",),
    ),
    # The whole call.
    "the surplus of shares is not rescaled": Mutant(
        "feed/alias.py",
        "surplus *= lack / surplus[-1]",
        "pass",
        (WHOLE + "test_an_alias_table_draws_as_the_weights_say",),
    ),
    "rows that lie where XLA cannot begin are read from the next": Mutant(
        "posterior/resident.py",
        "first = indices * self.per_row - self.shift",
        "first = indices * self.per_row",
        (WHOLE + "test_rows_are_read_where_they_lie",),
    ),
    "predictors are looked for beyond what was picked": Mutant(
        "posterior/predictors.py",
        "if name in stops or name == program.position:",
        "if name == program.position:",
        ("tests/test_predictors.py::test_predictors_and_link_are_the_likelihood[_logistic]",),
    ),
    "a product of two that move is linear": Mutant(
        "posterior/predictors.py",
        "return _LINEAR if name in _MULTIPLYING and len(moving) == 1 else _ELSE",
        "return _LINEAR if name in _MULTIPLYING else _ELSE",
        ("tests/test_predictors.py::test_predictors_and_link_are_the_likelihood[_stretched]",),
    ),
    "what a row picks out is added to the first coordinate": Mutant(
        "posterior/block_sums.py",
        ".at[places].add(values)",
        ".at[0 * places].add(values)",
        ("tests/test_predictors.py::test_their_sums_of_derivatives_are_those_of_the_whole_likelihood[_groups]",),
    ),
    "one side of the Hessian only": Mutant(
        "posterior/block_sums.py",
        ".add(beside).at[everywhere].add(beside.T)",
        ".add(beside)",
        ("tests/test_predictors.py::test_their_sums_of_derivatives_are_those_of_the_whole_likelihood[_groups]",),
    ),
    "rays from the predictors of another place": Mutant(
        "control_variates/expansion.py",
        "begin = jax.vmap(predictors.at, (None, 0), -1)(centre, rows)",
        "begin = jax.vmap(predictors.at, (None, 0), -1)(0 * centre, rows)",
        ("tests/test_predictors.py::test_what_an_expansion_leaves_is_that_of_the_whole_likelihood[_linear-2]",),
    ),
    "the last block of a pass counts rows twice": Mutant(
        "posterior/passes.py",
        "(numbers >= first) & (numbers < bounds[1])",
        "numbers < bounds[1]",
        ("tests/test_mode.py", "tests/test_taylor.py::test_what_is_known_and_what_rows_add_make_the_log_ratio"),
    ),
    # Matrices with orthonormal columns.
    "rounding is left to add up": Mutant(
        "proposals/stiefel_walk.py",
        "return matrix - rounded(matrix_product(matrix, excess) / 2)",
        "return matrix - 0 * rounded(matrix_product(matrix, excess) / 2)",
        (STIEFEL + "test_a_hundred_thousand_steps_stay_on_the_manifold_to_rounding",),
    ),
    "rotations by angles of one sign": Mutant(
        "proposals/stiefel_walk.py",
        "numbers = jax.random.normal(key, (size * (size - 1) // 2,), dtype)",
        "numbers = jnp.abs(jax.random.normal(key, (size * (size - 1) // 2,), dtype))",
        (STIEFEL + "test_the_walk_is_symmetric",),
    ),
    "no matrix is reflected": Mutant(
        "proposals/stiefel_walk.py",
        "self.reflections.dtype) < self.reflections",
        "self.reflections.dtype) < 0 * self.reflections",
        (STIEFEL + "test_a_flat_likelihood_leaves_the_uniform_law[shape2]",),
    ),
    "only the first chain's start is looked at": Mutant(
        "setup/start.py",
        "for chain in range(1, count)",
        "for chain in range(1, 1)",
        (STIEFEL + "test_positions_that_are_not_orthonormal_are_refused",),
    ),
    "unmixing matrices of whitened rows pass for those of raw ones": Mutant(
        "models/whitening.py",
        "return np.asarray(W, float) @ self.matrix",
        "return np.asarray(W, float)",
        (ICA + "test_whitening_is_recorded_and_undone",),
    ),
    "third derivatives of a source are taken for a tenth": Mutant(
        "models/ica_bounds.py",
        "1 / (3 * np.sqrt(3)))",
        "0.1 / (3 * np.sqrt(3)))",
        (ICA + "test_no_row_says_more_than_its_bound[3]",),
    ),
    "an audit that is cut short goes on": Mutant(
        "diagnostics/audit.py",
        "if _clock() > until:",
        "if False:",
        (WHOLE + "test_an_audit_may_be_cut_short",),
    ),
    # Gibbs sampling.
    "Gibbs updates keep Metropolis' level": Mutant(
        "fields/barker.py",
        "return formula.level(key, zero) - BARKER.level(jax.random.fold_in(key, 1), zero)",
        "return 0 * formula.level(key, zero)",
        (GIBBS + "test_an_update_draws_from_the_conditional[exact]",),
    ),
    "every test of a site reads its factors in one order": Mutant(
        "fields/kernel.py",
        "self.row_order.start(key_rows)",
        "self.row_order.start(jax.random.key(0))",
        (GIBBS + "test_a_sequential_update_errs_as_the_design_predicts[0.2-0.5]",),
    ),
    "only the next of several values is proposed": Mutant(
        "fields/kernel.py",
        "shift = 1 + jax.random.randint(key, (), 0, count - 1, jnp.int32)",
        "shift = 1 + jax.random.randint(key, (), 0, 1, jnp.int32)",
        (GIBBS + "test_a_mixed_field_is_drawn_from[sweep0]",),
    ),
    "a flip changes factors the same way in both directions": Mutant(
        "fields/layout.py",
        "jnp.where(proposed > 0, 1, -1)",
        "jnp.where(proposed > 0, 1, 1)",
        (GIBBS + "test_factors_laid_out_by_site_say_what_the_field_says[dense]",),
    ),
    # Variable selection.
    "births forget the choice of the column": Mutant(
        "proposals/reversible_jump.py",
        "forth = density - jnp.log(jnp.maximum(most - smaller, 1))",
        "forth = density",
        (JUMPS + "test_the_ratio_is_the_papers", JUMPS + "test_models_are_visited_as_often_as_the_posterior_says[0.5]"),
    ),
    "births and deaths are tuned as well": Mutant(
        "proposals/reversible_jump.py",
        "return jnp.where(same, self.of_steps.update(tuned, outcome, gain), tuned)",
        "return self.of_steps.update(tuned, outcome, gain)",
        (SELECTION + "test_updates_alone_are_tuned",),
    ),
    "the prior does not shrink": Mutant(
        "models/variable_selection.py",
        "- rounded(size.astype(beta.dtype) * jnp.log(length))",
        "- 0 * rounded(size.astype(beta.dtype) * jnp.log(length))",
        (JUMPS + "test_the_ratio_is_the_papers",),
    ),
    "a column that is always in is a doubt": Mutant(
        "run/convergence.py",
        "    named = _that_can_move(named)\n",
        "",
        ("tests/test_kinds_of_numbers.py::test_what_never_changes_is_an_answer_where_it_may_be",),
    ),
    "truth values become real at the start": Mutant(
        "numerics/flat.py",
        "    return array if keeps else as_real(array)",
        "    return array.astype(jnp.result_type(float))",
        ("tests/test_kinds_of_numbers.py::test_large_whole_numbers_are_exact",),
    ),
    # Ladders.
    "a swap is weighed by the hotter rung alone": Mutant(
        "compose/exchange.py",
        "return inverse[:-1] - inverse[1:]",
        "return inverse[1:]",
        (TEMPERING + "test_swaps_are_accepted_as_often_as_independent_states_say",),
    ),
    "the same pairs swap in every scan": Mutant(
        "compose/exchange.py",
        "jnp.arange(count - 1, dtype=jnp.int32) % 2 == self.scan % 2",
        "jnp.arange(count - 1, dtype=jnp.int32) % 2 == 0 * self.scan",
        (TEMPERING + "test_pairs_take_turns",),
    ),
    "evidence is that of the colder rung's states": Mutant(
        "run/exchanges.py",
        "* energies[..., 1:]",
        "* energies[..., :-1]",
        (TEMPERING + "test_stepping_stones_on_independent_draws",),
    ),
    # Data on disk.
    "a test along a stream meets windows again in the next epoch": Mutant(
        "feed/streamed.py",
        "count = jnp.where(cursor >= stage.gaps[place], 0, stage.counts[place])",
        "count = stage.counts[place]",
        (STREAM + "test_a_test_sees_every_row_once_wherever_it_begins[101-10-4-False]",),
    ),
    "the row of a block follows from how the block was drawn": Mutant(
        "feed/alias.py",
        "left = jnp.where(own, fraction / share, (fraction - share) / (1 - share))",
        "left = fraction",
        (DISK + "test_rows_are_drawn_by_weights_on_disk_as_often_as_they_weigh",),
    ),
    "what is not finite is ingested": Mutant(
        "disk/layout.py",
        "if np.isfinite(placed.sum()):",
        "if placed.size:",
        (DISK + "test_bad_tables_are_refused[nan]",),
    ),
    # Jumps between states of equal energy.
    "a jump is weighed by where it goes alone": Mutant(
        "compose/equi_energy.py",
        "return cooling * (there - here)",
        "return cooling * there",
        (JUMPING + "test_jumps_leave_rungs_and_stores_in_equilibrium[EnergyRings]",),
    ),
    "states at rest swap the wrong way": Mutant(
        "compose/ring_stores.py",
        "(cooling * (b.energy - a.energy) > levels)",
        "(cooling * (a.energy - b.energy) > levels)",
        (JUMPING + "test_jumps_leave_rungs_and_stores_in_equilibrium[EnergyRings]",),
    ),
    "a reservoir prefers what came last": Mutant(
        "compose/ring_stores.py",
        "horizon = jnp.minimum(before + 1, _REMEMBERED * self.slots)",
        "horizon = jnp.minimum(before + 1, self.slots + 1)",
        (JUMPING + "test_a_reservoir_keeps_each_of_what_it_was_offered_alike",),
    ),
    # Stores.
    "chains that are ahead lose their draws": Mutant(
        "run/drive.py",
        "            work = driver.put(work, drained, ahead)\n",
        "            pass\n",
        (STORES + "test_every_kind_of_run_goes_on[together]",),
    ),
    "a checkpoint has its name before it is written": Mutant(
        "run/files.py",
        'temporary = path.with_name(f"{path.name}{_TEMPORARY}")',
        "temporary = path",
        (STORES + "test_a_file_is_there_as_a_whole_or_as_it_was",),
    ),
    "draws are counted before their chunk is there": Mutant(
        "run/stored.py",
        "                stored.check_newest()\n",
        "",
        (STORES + "test_what_a_power_cut_damages_is_made_again",),
    ),
    "a store may name any function": Mutant(
        "run/encoding.py",
        "    return found if callable(found) and _is_harmless(found.__module__) else",
        "    return found if callable(found) else",
        ("tests/test_store_trust.py::test_functions_that_do_more_than_compute_are_not_taken_from_a_store",),
    ),
    "nobody locks": Mutant(
        "run/files.py",
        "            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            del fcntl\n",
        (STORES + "test_a_second_writer_is_refused_and_readers_are_not",),
    ),
    # The papers' experiments.
    "any reason counts": Mutant(
        "reproduce/expected.py",
        "elif not holds and known is not None and known.tolerance.holds(ours, known.value):",
        "elif not holds and known is not None:",
        ("tests/test_reproduce.py::test_a_reason_counts_only_if_it_foretells_our_figure[3.0-False]",),
    ),
    "parts of other settings are kept": Mutant(
        "reproduce/runner.py",
        'return kept if kept["fingerprint"] == fingerprint else None',
        "return kept",
        ("tests/test_reproduce.py::test_a_run_writes_what_it_found_and_goes_on_where_it_stopped",),
    ),
    "a damaged file of data is read": Mutant(
        "reproduce/folder.py",
        "if found != wanted:",
        "if not found:",
        ("tests/test_reproduce.py::test_data_are_checked",),
    ),
}
