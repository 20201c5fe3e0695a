/* profile.c - counts by rule, for runs that are profiled.
 * Owns: the counts. Never: costs another run more than the test of a pointer; reads a clock.
 * When another rule takes over, the differences of the run's counters are added to the rule that
 * worked. */
#include "run/machine.h"

void kb_profile_charge(kb_run *run)
{
    kb_profile *profile = &run->profile;
    uint64_t used = run->stats.steps + (uint64_t)(run->chunk - run->left);

    if (run->rule < run->plan->rule_count) {
        kb_rule_counts *counts = profile->rules + run->rule;
        uint64_t probes = run->stats.probes - profile->probes;

        counts->rows_made += run->stats.rows_made - profile->rows_made;
        counts->probes += probes;
        counts->rows_read += used - profile->used - probes;   /* a step is one or the other */
    }
    profile->rows_made = run->stats.rows_made;
    profile->probes = run->stats.probes;
    profile->used = used;
}

kb_status kb_run_profile(kb_run *run)
{
    kb_profile *profile;

    if (run == NULL || run->started || run->status < 0)
        return KB_MISUSE;
    profile = &run->profile;
    if (profile->rules != NULL)
        return KB_OK;
    profile->rules = kb_alloc(&run->engine->heap, (size_t)run->plan->rule_count + 1, sizeof *profile->rules);
    profile->steps = kb_alloc(&run->engine->heap, (size_t)run->plan->step_count + 1, sizeof *profile->steps);
    if (profile->rules == NULL || profile->steps == NULL) {
        kb_profile_end(run);
        return KB_NOMEM;
    }
    for (uint32_t i = 0; i < run->plan->rule_count; i++) {
        profile->rules[i].rule = run->plan->rules[i].id;
        profile->rules[i].steps = run->plan->rules[i].count;
    }
    return KB_OK;
}

void kb_profile_end(kb_run *run)
{
    kb_release(&run->engine->heap, run->profile.rules);
    kb_release(&run->engine->heap, run->profile.steps);
    memset(&run->profile, 0, sizeof run->profile);
}

kb_status kb_run_counts(const kb_run *run, kb_rule_counts *rules, size_t rule_room, uint64_t *steps, size_t step_room,
                        size_t *rule_count, size_t *step_count)
{
    const kb_plan *plan;
    size_t place = 0;

    if (run == NULL || rule_count == NULL || step_count == NULL || run->profile.rules == NULL || (rules == NULL && rule_room != 0)
        || (steps == NULL && step_room != 0))
        return KB_MISUSE;
    plan = run->plan;
    for (size_t i = 0; i < plan->rule_count; i++) {
        const kb_rule *rule = plan->rules + i;

        if (i < rule_room)
            rules[i] = run->profile.rules[i];
        for (uint32_t s = 0; s < rule->count; s++, place++)
            if (place < step_room)
                steps[place] = s + 1 < rule->count ? run->profile.steps[rule->first + s] : run->profile.rules[i].rows_made;
    }
    *rule_count = plan->rule_count;
    *step_count = place;
    return KB_OK;
}
