"""All detectors, those that cost least first. Each takes random numbers for its inputs and raises `Alarm`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import (
    detect_contributions,
    detect_ledger,
    detect_logs,
    detect_noise,
    detect_price,
    detect_release,
    detect_shards,
    detect_votes,
)

Detector = Callable[[np.random.Generator], None]

DETECTORS: tuple[Detector, ...] = (
    detect_price.budgets_pay_for_the_golden_numbers,
    detect_price.costs_are_those_of_the_proof,
    detect_price.plans_price_whole_units,
    detect_price.conversions_are_exact_and_on_the_safe_side,
    detect_price.figures_are_rounded_towards_privacy,
    detect_price.jobs_compose_exactly,
    detect_price.delta_stays_below_one_over_n,
    detect_votes.votes_are_short_integers,
    detect_votes.the_row_guard_is_exact,
    detect_votes.rows_do_not_depend_on_other_teachers,
    detect_contributions.what_is_not_finite_adds_nothing,
    detect_votes.sums_are_plain_sums,
    detect_votes.neighbors_stay_within_the_charge,
    detect_votes.replaced_units_stay_within_their_figure,
    detect_shards.units_are_dealt_once,
    detect_shards.emptied_units_change_one_shard,
    detect_shards.relabelled_units_move_alone,
    detect_shards.units_of_several_records_stay_together,
    detect_shards.removed_units_change_one_teachers_batches,
    detect_shards.teachers_do_not_see_each_other,
    detect_shards.teachers_without_records_say_nothing,
    detect_release.releases_charge_then_draw_then_store,
    detect_release.stored_steps_are_replayed,
    detect_price.charges_do_not_depend_on_data,
    detect_ledger.charges_are_on_disk_before_the_draw,
    detect_ledger.a_resumed_job_pays_for_what_it_draws,
    detect_ledger.nothing_drawn_is_refunded,
    detect_ledger.workers_that_were_replaced_cannot_draw,
    detect_ledger.budgets_are_never_overspent,
    detect_ledger.restored_backups_bring_no_budget_back,
    detect_ledger.databases_restored_under_a_running_job_are_noticed,
    detect_ledger.frozen_accounts_state_what_the_log_knows,
    detect_ledger.uploading_again_brings_no_fresh_budget,
    detect_ledger.altered_journals_are_noticed,
    detect_ledger.accounts_add_up_exactly,
    detect_noise.noise_comes_from_the_operating_system_alone,
    detect_noise.noise_is_exactly_the_discrete_gaussian,
    detect_noise.forked_processes_do_not_repeat_noise,
    detect_noise.noise_has_its_scale_on_every_coordinate,
    detect_noise.noise_is_fresh_everywhere,
    detect_logs.logs_say_nothing_of_records,
    detect_release.runs_release_what_they_charged_for,
    detect_contributions.answers_of_others_stay_as_they_are,
    detect_contributions.contributions_of_others_stay_as_they_are,
    detect_contributions.contributions_stay_beyond_a_chunk_of_noise,
    detect_noise.audits_find_no_more_than_was_charged,
)
