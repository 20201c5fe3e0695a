/* session.c - the lifecycle of a run: opening, demand, statistics, closing.
 * Owns: the memory of a run and its own relations. Never: evaluates; that is fixpoint.c. */
#include "run/machine.h"

/* Check that the base relations exist and have the arities of their slots. */
static kb_status check_bases(kb_engine *engine, const kb_plan *plan, const kb_rel *base)
{
    uint32_t source = 0;

    for (uint32_t i = 0; i < plan->slot_count; i++) {
        kb_relation *relation;
        kb_status status;

        if (plan->slots[i].derived)
            continue;
        if ((status = kb_engine_readable(engine, base[source++], &relation)) < 0)
            return status;
        if (relation->owned || relation->arity != plan->slots[i].arity)
            return KB_MISUSE;
    }
    return KB_OK;
}

/* Allocate a run with its arrays: one block, with the widest items first so that each part is
 * aligned. The counts are far below overflow. */
static kb_run *allocate(kb_engine *engine, const kb_plan *plan)
{
    size_t derived_count = plan->slot_count - plan->base_count;
    kb_run *run;
    char *at = kb_alloc(&engine->heap, 1, sizeof *run + derived_count * sizeof *run->derived
                        + plan->base_count * sizeof *run->sources + plan->slot_count * sizeof *run->slots
                        + plan->depth * sizeof *run->cursors + plan->folds * sizeof *run->folds
                        + KB_BATCH * sizeof *run->hashes + (size_t)plan->mark_count * 3 * sizeof *run->low
                        + ((size_t)plan->register_count + KB_BATCH * (size_t)plan->width) * sizeof(kb_sym));

    if (at == NULL)
        return NULL;
    run = (kb_run *)(void *)at;
    run->derived = (kb_relation *)(void *)(at += sizeof *run);
    run->sources = (kb_source *)(void *)(at += derived_count * sizeof *run->derived);
    run->slots = (kb_relation **)(void *)(at += plan->base_count * sizeof *run->sources);
    run->cursors = (kb_cursor *)(void *)(at += plan->slot_count * sizeof *run->slots);
    run->folds = (kb_fold *)(void *)(at += plan->depth * sizeof *run->cursors);
    run->hashes = (uint64_t *)(void *)(at += plan->folds * sizeof *run->folds);
    run->low = (uint32_t *)(void *)(at += KB_BATCH * sizeof *run->hashes);
    run->high = run->low + plan->mark_count;
    run->from = run->high + plan->mark_count;
    run->registers = run->from + plan->mark_count;
    run->heads = run->registers + plan->register_count;
    run->derived_count = (uint32_t)derived_count;
    run->source_count = plan->base_count;
    run->cursor_count = plan->depth;
    return run;
}

/* Bind the slots: to relations of the run, and to base relations. */
static void bind_slots(kb_run *run, const kb_rel *base)
{
    uint32_t source = 0, derived = 0;

    for (uint32_t i = 0; i < run->plan->slot_count; i++) {
        const kb_slot *slot = run->plan->slots + i;

        if (slot->derived) {
            run->slots[i] = run->derived + derived++;
            kb_relation_init(run->slots[i], &run->heap, slot->arity);
            run->slots[i]->owned = 1;
            run->slots[i]->best = slot->best;
            run->slots[i]->key = slot->key;
            run->slots[i]->by_id = slot->best != KB_BEST_NONE && slot->best != KB_BEST_FIRST;
        } else {
            run->slots[i] = kb_engine_relation(run->engine, base[source]);
            run->sources[source].rel = base[source];
            run->sources[source].slot = i;
            run->sources[source++].serial = run->slots[i]->serial;
        }
    }
}

kb_status kb_run_open(kb_engine *engine, const kb_plan *plan, const kb_rel *base, size_t base_count,
                      const kb_sym *params, size_t param_count, const kb_limits *limits, kb_run **out)
{
    kb_run *run;
    kb_status status;

    if (engine == NULL || engine->closed || plan == NULL || out == NULL || base_count != plan->base_count
        || param_count != plan->param_count || (base_count != 0 && base == NULL) || (param_count != 0 && params == NULL))
        return KB_MISUSE;
    if ((status = check_bases(engine, plan, base)) < 0)
        return status;
    if (!kb_symbols_exist(engine, params, param_count))
        return KB_MISUSE;
    if ((run = allocate(engine, plan)) == NULL)
        return KB_NOMEM;
    run->engine = engine;
    run->plan = plan;
    run->heap.parent = &engine->heap;
    run->status = KB_OK;
    atomic_init(&run->cancelled, 0);
    bind_slots(run, base);
    if (param_count != 0)
        memcpy(run->registers, params, param_count * sizeof *params);
    if (limits != NULL)
        kb_run_limits(run, limits);
    engine->open_runs++;
    *out = run;
    return KB_OK;
}

kb_status kb_run_seed(kb_run *run, const kb_sym *rows, size_t count)
{
    kb_relation *relation;
    uint32_t before, id;
    int fresh;

    if (run == NULL || run->status < 0 || run->status == KB_PAUSED || run->plan->seed_slot == KB_NONE)
        return KB_MISUSE;
    relation = run->slots[run->plan->seed_slot];
    if (count != 0 && rows == NULL && relation->arity != 0)
        return KB_MISUSE;
    if (!kb_symbols_exist(run->engine, rows, count * relation->arity))
        return KB_MISUSE;
    run->heap.refused = 0;
    if (kb_relation_ready(relation) < 0)
        return kb_run_no_memory(run);
    before = relation->rows;
    for (size_t i = 0; i < count; i++) {
        const kb_sym *row = rows + i * relation->arity;

        if (kb_relation_add(relation, row, &id, &fresh) < 0) {
            kb_relation_truncate(relation, before);
            return kb_run_no_memory(run);
        }
    }
    return KB_OK;
}

kb_status kb_run_relation(const kb_run *run, uint32_t slot, kb_rel *out)
{
    if (run == NULL || out == NULL || slot >= run->plan->slot_count)
        return KB_MISUSE;
    if (!run->plan->slots[slot].derived) {
        uint32_t source = 0;

        while (run->sources[source].slot != slot)
            source++;
        *out = run->sources[source].rel;
        return KB_OK;
    }
    if (run->slots[slot]->handle == 0 && kb_engine_bind(run->engine, run->slots[slot]) < 0)
        return KB_NOMEM;
    *out = run->slots[slot]->handle;
    return KB_OK;
}

void kb_run_stats(const kb_run *run, kb_stats *out)
{
    if (run == NULL || out == NULL)
        return;
    *out = run->stats;
    out->rows_read = run->stats.steps - run->stats.probes;   /* a step is one or the other */
    out->bytes = run->heap.used;
    out->component = run->component;
}

kb_status kb_run_limits(kb_run *run, const kb_limits *limits)
{
    if (run == NULL || limits == NULL)
        return KB_MISUSE;
    run->limits = *limits;
    run->rows_from = run->stats.rows_made;
    run->steps_from = run->stats.steps;
    run->heap.max = limits->max_bytes == 0 ? 0 : run->heap.used + limits->max_bytes;
    return KB_OK;
}

void kb_run_cancel(kb_run *run)
{
    if (run != NULL)
        atomic_store_explicit(&run->cancelled, 1, memory_order_relaxed);
}

/* Does not read the plan: a caller may free a run and its plan in either order. */
void kb_run_close(kb_run *run)
{
    kb_engine *engine;

    if (run == NULL)
        return;
    engine = run->engine;
    kb_run_unpin(run);
    kb_group_end(run);
    kb_queue_end(run);
    kb_dense_end(run);
    kb_intersect_free(run);
    kb_profile_end(run);
    kb_release(&run->heap, run->seen);
    kb_symbols_end_run(engine, run, 0);
    for (uint32_t i = 0; i < run->derived_count; i++) {
        kb_engine_unbind(engine, run->derived + i);
        kb_relation_clear(run->derived + i);
    }
    kb_release(&run->heap, run->scratch);
    kb_release(&engine->heap, run);
    kb_engine_release(engine);
}
