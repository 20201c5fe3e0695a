/* emit.c - heads on their way into their relation, and the innermost loops that make them.
 * Owns: the batch of heads. Never: decides what is joined with what; keeps a pointer across an insert.
 * Where the set is a table of ids, heads are gathered and inserted together, so that the cache misses of one
 * batch overlap. No view of the round can see a new row, because views end at the row counts of its start. */
#include "internal.h"

/* Adds a head that is not there yet, if the budget of rows allows it. */
static kb_status add_fresh(kb_run *run, const kb_sym *head)
{
    if (run->limits.max_rows != 0 && run->stats.rows_made - run->rows_from >= run->limits.max_rows) {
        run->stats.budget = KB_BUDGET_ROWS;
        return KB_LIMIT;
    }
    if (kb_relation_append(run->target, head) < 0)
        return KB_NOMEM;
    run->stats.rows_made++;
    return KB_OK;
}

kb_status kb_heads_flush(kb_run *run)
{
    kb_relation *target = run->target;
    uint32_t count = run->head_count, arity, before, id;
    uint64_t room = UINT64_MAX;
    kb_status status = KB_OK;
    int fresh;

    if (count == 0)
        return KB_OK;
    arity = target->arity;
    before = target->rows;
    run->head_count = 0;
    if (run->limits.max_rows != 0)
        room = run->limits.max_rows - (run->stats.rows_made - run->rows_from);
    for (uint32_t i = 0; i < count; i++)
        run->hashes[i] = kb_relation_touch(target, run->heads + (size_t)i * arity);
    if (!kb_is_bits(target) && target->slots != NULL)
        for (uint32_t i = 0; i < count; i++) {
            uint32_t slot = target->slots[(uint32_t)run->hashes[i] & target->slot_mask];

            if (slot != 0)
                KB_PREFETCH(target->cells + (size_t)(slot - 1) * arity);
        }
    for (uint32_t i = 0; i < count && status == KB_OK; i++) {
        const kb_sym *head = run->heads + (size_t)i * arity;

        if (target->rows - before == room && !kb_relation_has(target, head)) {
            run->stats.budget = KB_BUDGET_ROWS;
            status = KB_LIMIT;
        } else {
            status = kb_relation_add(target, head, &id, &fresh);
        }
    }
    run->stats.rows_made += target->rows - before;
    return status;
}

/* Does the first of two columns change with every row, so that each head is in another part of the table? */
static int scattered(const kb_run *run, const kb_step *emit)
{
    const kb_pair *from = run->plan->pairs + emit->pairs + emit->keys;

    for (uint32_t i = 0; i < emit->loads; i++)
        if (from[i].column == 0)
            return emit->arity == 2;
    return 0;
}

/* Rows to heads that wait for their batch. */
static kb_status emit_heads(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_step *emit = step + 1;
    const kb_relation *relation = run->slots[step->slot];
    const kb_pair *from = run->plan->pairs + emit->pairs + emit->keys;   /* head columns that come from the row */
    uint32_t arity = emit->arity, loads = emit->loads;
    kb_sym head[KB_MAX_ARITY];
    int checks = kb_has_checks(step);
    int64_t left = run->left;
    uint64_t probes = 0;
    kb_status status = KB_OK;

    kb_gather(run, emit, head);
    while (cursor->at < cursor->end && left > 0 && status == KB_OK) {
        const uint32_t *list = step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL;
        const kb_sym *cells = relation->cells;
        uint32_t at = cursor->at, end = cursor->end, room = KB_BATCH - run->head_count;

        while (at < end && left > 0 && room > 0) {
            uint32_t id = list != NULL ? list[at] : at;
            const kb_sym *row = cells + (size_t)id * step->arity;
            kb_sym *out = run->heads + (size_t)run->head_count * arity;

            at++;
            left--;
            if (!kb_visible(relation, id) || (checks && !kb_row_fits(run, step, row)))
                continue;
            if (arity == 2) {
                out[0] = head[0];
                out[1] = head[1];
            } else {
                memcpy(out, head, arity * sizeof *out);
            }
            for (uint32_t i = 0; i < loads; i++)
                out[from[i].column] = row[from[i].with];
            run->head_count++;
            left--;
            probes++;
            room--;
        }
        cursor->at = at;
        if (room == 0)
            status = kb_heads_flush(run);
    }
    run->left = left;
    run->stats.probes += probes;
    return status;
}

/* The set as bits: each head is looked up at once and only a new one is written anywhere. The table is small and the
 * heads of one loop share its lines, so there is nothing to overlap. A relation of one column has first value 1. */
static kb_status emit_bits(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_step *emit = step + 1;
    const kb_relation *relation = run->slots[step->slot];
    const kb_pair *from = run->plan->pairs + emit->pairs + emit->keys;
    kb_relation *target = run->target;
    uint32_t arity = emit->arity, last = emit->loads == 0 ? KB_NONE : from[0].with;   /* its last column, of the row */
    kb_sym head[KB_MAX_ARITY];
    const kb_sym *fixed = kb_gather(run, emit, head);
    kb_sym a = arity == 2 ? fixed[0] : 1, b = fixed[arity - 1];
    int checks = kb_has_checks(step);
    int64_t left = run->left;
    uint64_t probes = 0;
    kb_status status = KB_OK;

    while (cursor->at < cursor->end && left > 0 && status == KB_OK && kb_is_bits(target)) {
        const uint32_t *list = step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL;
        const kb_sym *cells = relation->cells;
        const kb_matrix *matrix = &target->matrix;
        const uint64_t *words = target->blocks != NULL || a - matrix->top >= matrix->height
                                ? NULL : matrix->words + (size_t)(a - matrix->top) * matrix->width;
        uint32_t at = cursor->at, end = cursor->end, left_edge = matrix->left, width = matrix->width;
        int fresh = 0;

        while (at < end && left > 0 && !fresh) {
            uint32_t id = list != NULL ? list[at] : at;
            const kb_sym *row = cells + (size_t)id * step->arity;

            at++;
            left--;
            if (!kb_visible(relation, id) || (checks && !kb_row_fits(run, step, row)))
                continue;
            if (last != KB_NONE)
                b = row[last];
            left--;
            probes++;
            if (words != NULL)
                fresh = (b >> 6) - left_edge >= width || (words[(b >> 6) - left_edge] >> (b & 63) & 1) == 0;
            else
                fresh = target->blocks == NULL
                        || (kb_block_seek(target, (uint64_t)a << 32 | b >> 6)->bits >> (b & 63) & 1) == 0;
        }
        cursor->at = at;
        if (fresh) {                  /* pointers may be old after it */
            head[0] = a;
            head[arity - 1] = b;
            status = add_fresh(run, head);
        }
    }
    run->left = left;
    run->stats.probes += probes;
    return status;
}

/* The innermost loop with its EMIT: straight from the rows to the relation, past the registers. */
kb_status kb_emit_rows(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    kb_status status = KB_OK;

    while (cursor->at < cursor->end && run->left > 0 && status == KB_OK) {
        if (!kb_is_bits(run->target) || scattered(run, step + 1))
            status = emit_heads(run, step, cursor);
        else if (run->head_count != 0)
            status = kb_heads_flush(run);
        else
            status = emit_bits(run, step, cursor);
    }
    return status;
}

kb_status kb_emit_one(kb_run *run, const kb_step *step)
{
    kb_gather(run, step, run->heads + (size_t)run->head_count * step->arity);
    run->left--;
    run->stats.probes++;
    return ++run->head_count == KB_BATCH ? kb_heads_flush(run) : KB_OK;
}

