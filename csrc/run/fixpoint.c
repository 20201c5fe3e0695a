/* fixpoint.c - semi-naive evaluation: components in order, rounds until no row is new, budgets,
 * fuel.
 * Owns: the marks and views, and the decision what is evaluated next. Never: evaluates a rule; that
 * is run.c.
 *
 * A row of a recursive relation goes through three stages, by its id against the marks of its slot:
 * 1. new: emitted in the current round. No view shows it before the next round.
 * 2. delta: emitted in the previous round. The views DELTA and FULL show it, so that each rule
 *    reads it once as new.
 * 3. stable: emitted before that. The views OLD and FULL show it.
 *
 * The end of a round makes new rows delta and delta rows stable. All state is in kb_run and none on
 * the C stack, so that evaluation can pause at any step. */
#include "run/machine.h"

#define CHUNK 4096u                   /* steps between two checks of fuel, budgets and the cancel
                                       * flag */

/* The cursors of a paused run point into base relations, which must not change. */
static void pin(kb_run *run)
{
    for (uint32_t i = 0; i < run->source_count; i++)
        run->slots[run->sources[i].slot]->pins++;
}

void kb_run_unpin(kb_run *run)
{
    if (run->status != KB_PAUSED)
        return;
    for (uint32_t i = 0; i < run->source_count; i++)
        run->slots[run->sources[i].slot]->pins--;
}

static kb_relation *source_relation(const kb_run *run, const kb_source *source)
{
    kb_relation *relation = kb_engine_relation(run->engine, source->rel);

    return relation != NULL && relation->serial == source->serial ? relation : NULL;
}

/* Between two passes: return 1 if the run cannot continue from what it has derived. */
static int is_stale(kb_run *run)
{
    for (uint32_t i = 0; i < run->source_count; i++) {
        kb_source *source = run->sources + i;
        const kb_relation *relation = source_relation(run, source);

        if (relation == NULL)
            return 1;
        if (run->started
            && (relation->epoch != source->epoch
                || (relation->rows != source->tested && run->plan->slots[source->slot].sensitive))
            && !kb_run_is_unaffected(run, source, relation))
            return 1;
    }
    return 0;
}

/* If the base relations are unchanged, or have only new rows that do not affect the run, earlier
 * passes have derived everything that follows from their demand. Whatever rows this pass makes,
 * rules then need to read only the demand that is new. */
static void begin_pass(kb_run *run)
{
    uint32_t grown = !run->started;

    for (uint32_t i = 0; i < run->source_count; i++) {
        kb_source *source = run->sources + i;
        kb_relation *relation = source_relation(run, source);

        run->slots[source->slot] = relation;
        grown |= source->rows != relation->rows && (grown || !kb_rows_are_unaffected(run, source, relation));
        source->rows = source->tested = relation->rows;
        source->epoch = relation->epoch;
        source->changed = relation->changed;
        source->moved = relation->moved;
    }
    for (uint32_t mark = 0; mark < run->plan->mark_count; mark++)
        run->from[mark] = !grown && run->plan->slots[run->plan->marks[mark]].demand ? run->low[mark] : 0;
    run->first_pass = !run->started;
    run->started = 1;
    run->in_pass = 1;
    run->fresh = 1;
    run->component = 0;
}

/* Set the views of a round. Return 0 if there is nothing to do in it. */
static int begin_round(kb_run *run, const kb_component *component)
{
    int any = run->first_pass && run->fresh;

    for (uint32_t mark = component->first_mark; mark < component->first_mark + component->marks; mark++) {
        run->high[mark] = run->slots[run->plan->marks[mark]]->rows;
        any |= run->low[mark] < run->high[mark];
    }
    return any;
}

int kb_rule_has_views(const kb_run *run, const kb_rule *rule)
{
    const kb_step *steps = run->plan->steps + rule->first;

    if (!rule->viewed)
        return run->first_pass && run->fresh;
    for (uint32_t i = 0; i < rule->count; i++) {
        uint32_t low, high, from;

        if (!kb_step_reads_view(steps + i))
            continue;
        low = run->low[steps[i].mark];
        high = run->high[steps[i].mark];
        from = run->from[steps[i].mark];
        if (steps[i].view == KB_VIEW_DELTA ? low == high : (steps[i].view == KB_VIEW_OLD ? low : high) == from)
            return 0;
    }
    return 1;
}

kb_status kb_rule_evaluate(kb_run *run, const kb_rule *rule)
{
    kb_status status;

    if (!run->in_rule) {
        if (!kb_rule_has_views(run, rule))
            return KB_DONE;
        if (kb_relation_ready(run->slots[run->plan->steps[rule->first + rule->count - 1].slot]) < 0)
            return KB_NOMEM;
        if ((status = kb_rule_start(run, rule)) < 0)
            return status;
        run->in_rule = 1;
    }
    if ((status = kb_rule_work(run, rule)) != KB_DONE)
        return status;
    if ((status = kb_heads_flush(run)) < 0)
        return status;
    run->in_rule = 0;
    kb_heads_end(run);
    kb_charge(run);
    return KB_DONE;
}

static kb_status work_round(kb_run *run, const kb_component *component)
{
    for (; run->rule < component->first_rule + component->rules; run->rule++) {
        kb_status status = kb_rule_evaluate(run, run->plan->rules + run->rule);

        if (status != KB_DONE)
            return status;
    }
    return KB_DONE;
}

static kb_status work_pass(kb_run *run)
{
    while (run->component < run->plan->component_count) {
        const kb_component *component = run->plan->components + run->component;

        do {
            kb_status status;

            if (!run->in_round) {
                if (!begin_round(run, component))
                    break;
                run->rule = component->first_rule;
                run->in_round = 1;
                run->stats.rounds++;
                kb_dense_begin(run, component);
                if (run->dense == NULL)
                    kb_group_begin(run, component);
                if (kb_queue_begin(run, component) < 0)
                    return KB_NOMEM;
            }
            status = run->queue.active ? kb_queue_run(run, component) : run->dense != NULL ? kb_dense_run(run, component)
                     : run->group.seen != NULL ? kb_group_run(run, component) : work_round(run, component);
            if (status != KB_DONE)
                return status;
            for (uint32_t mark = component->first_mark; mark < component->first_mark + component->marks; mark++)
                run->low[mark] = run->high[mark];
            for (uint32_t mark = component->first_mark; mark < component->first_mark + component->marks; mark++)
                if (run->slots[run->plan->marks[mark]]->best)
                    kb_best_end_round(run->slots[run->plan->marks[mark]]);
            run->in_round = 0;
            run->fresh = 0;
        } while (component->recursive);
        run->component++;
        run->fresh = 1;
        run->group.retry = 0;
        run->dense_retry = 0;
        if (KB_UNLIKELY(run->profile.rules != NULL) && run->component < run->plan->component_count) {
            run->profile.at_end = 1;
            return KB_PAUSED;
        }
    }
    run->in_pass = 0;
    return KB_DONE;
}

static kb_status work_chunks(kb_run *run, uint64_t fuel)
{
    for (;;) {
        uint64_t used = run->stats.steps - run->steps_from, max = run->limits.max_steps;
        int64_t chunk = fuel < CHUNK ? (int64_t)fuel : (int64_t)CHUNK;
        uint64_t spent;
        kb_status status;

        if (atomic_load_explicit(&run->cancelled, memory_order_relaxed))
            return KB_CANCELLED;
        if (max != 0 && max - used < (uint64_t)chunk)
            chunk = (int64_t)(used < max ? max - used : 0);
        run->left = run->chunk = chunk;
        status = work_pass(run);
        spent = (uint64_t)(chunk - run->left);
        run->stats.steps += spent;
        run->chunk = run->left;
        if (status != KB_PAUSED)
            return status;
        if (run->profile.at_end) {
            run->profile.at_end = 0;
            return KB_PAUSED;
        }
        if (max != 0 && run->stats.steps - run->steps_from >= max) {
            run->stats.budget = KB_BUDGET_STEPS;
            return KB_LIMIT;
        }
        if (spent >= fuel)
            return (status = kb_heads_flush(run)) < 0 ? status : KB_PAUSED;
        fuel -= spent;
    }
}

kb_status kb_run_no_memory(kb_run *run)
{
    run->stats.budget = run->heap.refused ? KB_BUDGET_BYTES : KB_BUDGET_NONE;
    return run->heap.refused ? KB_LIMIT : KB_NOMEM;
}

kb_status kb_run_step(kb_run *run, uint64_t fuel)
{
    kb_status status;

    if (run == NULL)
        return KB_MISUSE;
    if (run->status < 0)
        return run->status;
    kb_run_unpin(run);
    run->status = KB_OK;
    run->heap.refused = 0;
    run->stats.budget = KB_BUDGET_NONE;
    if (!run->in_pass) {
        if (is_stale(run))
            return KB_STALE;
        begin_pass(run);
    }
    status = work_chunks(run, fuel == 0 ? 1 : fuel);
    if (status == KB_NOMEM)
        status = kb_run_no_memory(run);
    kb_charge(run);
    run->stats.rule = run->in_round && run->rule < run->plan->rule_count ? run->plan->rules[run->rule].id : 0;
    run->status = status;
    if (status < 0)
        kb_symbols_end_run(run->engine, run, 1);
    if (status == KB_PAUSED)
        pin(run);
    return status;
}

kb_status kb_run_check(kb_run *run)
{
    if (run == NULL)
        return KB_MISUSE;
    if (run->status < 0)
        return run->status;
    if (run->in_pass)
        return KB_OK;
    if (is_stale(run))
        return KB_STALE;
    if (!run->started)
        return KB_OK;
    for (uint32_t mark = 0; mark < run->plan->mark_count; mark++) {
        const kb_relation *relation = run->slots[run->plan->marks[mark]];

        if (run->low[mark] < relation->rows)
            return KB_OK;
    }
    return KB_DONE;
}
