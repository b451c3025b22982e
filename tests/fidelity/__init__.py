"""Exactness: the sampler's law is the target's, and a sampler whose law is not is found out.

toy.py holds targets and drafts with memory whose law is written down, behind the sampler's own protocols. truth.py turns a
sample into numbers that are independent and uniform exactly if it came from that law (Rosenblatt 1952), and tests them in
eleven ways. test_truth.py shows that this check has the right size and sees small departures; test_modes.py and
test_property.py hold the engine against it, and against samples drawn without it.

Mutation check. Every wrong variant below is planted by replacing one function, and must bring the p-value of the same check
below 1e-8, where the sound engine stays above 1e-3 (test_the_sound_engine_passes_where_the_variants_are_planted). All tests
are in test_mutants.py; `events` is the sample size, `p` the largest p-value over the modes in which a variant is planted.

    variant                                                   test                                                 events       p
    gap and type both from residuals, whichever was rejected  test_gap_and_type_both_from_residuals_...            21,000  1e-134
      (TPP-SD's Algorithm 1, read literally)
    rejection index along the batch axis: any rejection       test_any_rejection_discards_the_accepted_prefix      21,000   1e-36
      discards the prefix, or one row decides for all         test_one_row_decides_how_many_events_stand_...       21,000  1e-190
    types never verified                                      test_types_are_never_verified                        21,000  1e-129
    newest event ignored                                      test_the_newest_event_is_ignored                     21,000       0
    drafted future events leak into the target's law          test_drafted_future_events_leak_into_the_law         21,000       0
    type 0 masked as padding                                  test_events_of_type_0_are_masked_as_padding          21,000       0
    residual given up after 50 tries, then a draw from p      test_the_residual_is_given_up_after_50_tries         60,000   1e-12
    logits > uniform                                          test_log_ratios_are_compared_with_numbers_...        21,000  1e-301
    cumprod().argmin(): 0 when all were accepted              test_argmin_finds_nothing_accepted_where_...         21,000       0
    target not truncated at the quiet time                    test_the_target_is_not_truncated_at_the_quiet_time   21,000       0
    draft truncated, but not the density it states            test_the_drafts_density_is_not_truncated_at_...      21,000  1e-219
    neither truncated                                         test_neither_is_truncated_at_the_quiet_time          21,000       0
    bonus from q                                              test_the_bonus_is_drawn_from_the_draft               21,000  1e-136
    rejected event from p instead of the residual             test_a_rejected_event_is_drawn_from_the_target_...   21,000   1e-34
    cache never rolled back                                   test_the_cache_keeps_rejected_events                 21,000   1e-23
    one number judges gap and type                            test_gap_and_type_are_judged_by_one_number           21,000   1e-66
    block: residual (p - q)+ instead of (c p - q)+            test_block_draws_the_residual_of_token_by_token_...  21,000   1e-43
    block: open places settled by the ratio alone             test_block_settles_open_places_by_token_by_token_... 21,000       0

A draft that is not truncated but says so in its density, and one that never takes in what was accepted, are no mutants: they
cost acceptance and leave the law alone (test_a_draft_that_is_wrong_but_honest_costs_acceptance_alone). The comparison that
needs no formula, `stream_tpp.evaluation.fidelity.compare`, finds four of the variants in speculative against autoregressive
samples (test_the_two_sample_comparison_finds_wrong_verification); those of the target itself, ignored newest event and masked
type 0, it cannot find, since both samplers then share the wrong law.
"""
