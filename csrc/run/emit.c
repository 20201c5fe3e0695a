/* emit.c - adds heads to their relation, and the innermost loops that make them.
 * Owns: the batch of heads. Never: decides what is joined with what; keeps a pointer across an
 * insert.
 * Where the set is a table of ids, heads are gathered and inserted together, so that the cache
 * misses of one batch overlap. No view of the round can see a new row, because views end at the row
 * counts of its start. */
#include "run/machine.h"

#define CACHED_WORDS (1u << 17)       /* a bitmap up to this size stays in the cache */

/* Add a head that does not exist yet, if the row budget allows it. */
static inline kb_status add_fresh(kb_run *run, const kb_sym *head)
{
    kb_relation *target = run->target;
    kb_matrix *matrix = &target->matrix;
    uint64_t *word;

    if (kb_rows_left(run) == 0) {
        run->stats.budget = KB_BUDGET_ROWS;
        return KB_LIMIT;
    }
    if (target->arity == 2 && target->key == 2 && target->rows < target->capacity && target->indexes == NULL
        && (word = kb_matrix_word(matrix, head[0], head[1] >> 6)) != NULL) {
        matrix->filled += *word == 0; /* as kb_relation_append, without what can fail */
        *word |= UINT64_C(1) << (head[1] & 63);
        memcpy(target->cells + (size_t)target->rows++ * 2, head, 2 * sizeof *head);
    } else if (kb_relation_append(target, head) < 0) {
        return KB_NOMEM;
    }
    run->stats.rows_made++;
    return KB_OK;
}

/* Append heads that are all new: the set is built on the first look-up. */
static kb_status append_all(kb_run *run, uint32_t count, uint64_t rows_left)
{
    kb_relation *target = run->target;
    uint32_t before = target->rows, accepted = count < rows_left ? count : (uint32_t)rows_left;

    if (kb_relation_reserve(target, accepted) < 0)
        return KB_NOMEM;
    memcpy(kb_row(target, before), run->heads, (size_t)accepted * target->arity * sizeof *run->heads);
    target->rows += accepted;
    run->stats.rows_made += accepted;
    if (kb_indexes_extend(target, before) < 0)
        return KB_NOMEM;
    if (accepted < count)
        run->stats.budget = KB_BUDGET_ROWS;
    return accepted < count ? KB_LIMIT : KB_OK;
}

void kb_heads_sorted(kb_run *run)
{
    const kb_rule *rule = run->plan->rules + run->rule;

    run->seen_words = run->engine->symbols.count / 64 + 1;
    run->seen = kb_alloc(&run->heap, run->seen_words, sizeof *run->seen);
    run->seen_from = 0;
    run->outer = run->seen == NULL ? 0 : (uint8_t)rule->outer;
}

void kb_heads_end(kb_run *run)
{
    kb_release(&run->heap, run->seen);
    run->seen = NULL;
    run->outer = 0;
    run->distinct = 0;
}

/* Append the new ones of heads that are sorted by their outer column: within one value of it, one
 * bit for each value of the other column records which heads exist. */
static kb_status append_new(kb_run *run, uint32_t count, uint64_t rows_left)
{
    kb_relation *target = run->target;
    uint32_t outer = run->outer - 1u, other = 1 - outer, before = target->rows, rows = before;
    uint64_t *seen = run->seen;
    kb_status status = KB_OK;
    kb_sym *cells;

    if (kb_relation_reserve(target, count) < 0)
        return KB_NOMEM;
    cells = target->cells;
    for (uint32_t i = 0; i < count && status == KB_OK; i++) {
        const kb_sym *head = run->heads + (size_t)i * 2;

        if (run->seen_from < rows && cells[(size_t)run->seen_from * 2 + outer] != head[outer]) {
            for (; run->seen_from < rows; run->seen_from++)
                seen[cells[(size_t)run->seen_from * 2 + other] >> 6] = 0;
        }
        if (seen[head[other] >> 6] >> (head[other] & 63) & 1)
            continue;
        if (rows - before == rows_left) {
            run->stats.budget = KB_BUDGET_ROWS;
            status = KB_LIMIT;
            continue;
        }
        seen[head[other] >> 6] |= UINT64_C(1) << (head[other] & 63);
        cells[(size_t)rows * 2] = head[0];
        cells[(size_t)rows * 2 + 1] = head[1];
        rows++;
    }
    target->rows = rows;
    run->stats.rows_made += rows - before;
    return kb_indexes_extend(target, before) < 0 ? KB_NOMEM : status;
}

kb_status kb_heads_flush(kb_run *run)
{
    kb_relation *target = run->target;
    uint32_t count = run->head_count, arity, before, id;
    uint64_t rows_left = kb_rows_left(run);
    kb_status status = KB_OK;
    int fresh;

    if (count == 0)
        return KB_OK;
    arity = target->arity;
    before = target->rows;
    run->head_count = 0;
    if (target->best == KB_BEST_CLASSES)
        return kb_classes_add(run, run->heads, count);
    if (target->best && target->best != KB_BEST_FIRST)
        return kb_best_add(run, run->heads, count);
    if (run->distinct)
        return append_all(run, count, rows_left);
    if (run->outer)
        return append_new(run, count, rows_left);
    for (uint32_t i = 0; i < count; i++)
        run->hashes[i] = kb_relation_prefetch(target, run->heads + (size_t)i * arity);
    if (!kb_is_bits(target) && target->slots != NULL)
        for (uint32_t i = 0; i < count; i++) {
            uint32_t slot = target->slots[(uint32_t)run->hashes[i] & target->slot_mask];

            if (slot != 0)
                KB_PREFETCH(target->cells + (size_t)(slot - 1) * arity);
        }
    for (uint32_t i = 0; i < count && status == KB_OK; i++) {
        const kb_sym *head = run->heads + (size_t)i * arity;

        if (target->rows - before == rows_left && !kb_relation_has(target, head)) {
            run->stats.budget = KB_BUDGET_ROWS;
            status = KB_LIMIT;
        } else {
            status = kb_relation_add(target, head, &id, &fresh);
        }
    }
    run->stats.rows_made += target->rows - before;
    return status;
}

/* Return 1 if the bitmap is too large for the cache. */
static int is_large(const kb_relation *target)
{
    return (target->blocks != NULL ? (size_t)target->block_mask * 2
                                   : (size_t)target->matrix.height * target->matrix.width) > CACHED_WORDS;
}

/* Return 1 if the first of two columns changes with every row, so that each head is in another part
 * of a large bitmap. */
static int is_scattered(const kb_relation *target, const kb_step *emit)
{
    return target->key == 2 && emit->row_first != KB_FIXED && is_large(target);
}

/* Make heads from rows and gather them in the batch. */
static kb_status emit_heads(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_step *emit = step + 1;
    const kb_relation *relation = run->slots[step->slot];
    /* head columns that come from the row */
    const kb_pair *loads_from = run->plan->pairs + emit->pairs + emit->keys;
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
        uint32_t at = cursor->at, end = cursor->end, batch_left = KB_BATCH - run->head_count;

        while (at < end && left > 0 && batch_left > 0) {
            uint32_t id = list != NULL ? list[at] : at;
            const kb_sym *row = cells + (size_t)id * step->arity;
            kb_sym *out = run->heads + (size_t)run->head_count * arity;

            at++;
            left--;
            if (!kb_visible(relation, id) || (checks && !kb_row_matches(run, step, row)))
                continue;
            if (arity == 2) {
                out[0] = head[0];
                out[1] = head[1];
            } else {
                memcpy(out, head, arity * sizeof *out);
            }
            for (uint32_t i = 0; i < loads; i++)
                out[loads_from[i].column] = row[loads_from[i].with];
            run->head_count++;
            left--;
            probes++;
            batch_left--;
        }
        cursor->at = at;
        if (batch_left == 0)
            status = kb_heads_flush(run);
    }
    run->left = left;
    run->stats.probes += probes;
    return status;
}

/* Gather a head that has columns beside its key, from the registers and the row of its loop. */
static const kb_sym *whole_head(const kb_run *run, const kb_step *emit, const kb_sym *row, kb_sym *head)
{
    const kb_pair *loads_from = run->plan->pairs + emit->pairs + emit->keys;

    kb_gather(run, emit, head);
    for (uint32_t i = 0; i < emit->loads; i++)
        head[loads_from[i].column] = row[loads_from[i].with];
    return head;
}

/* Emit where the set is a bitmap: each head is looked up at once and only a new one is written. The
 * bitmap is small, or the heads of one loop share its cache lines, so no misses need to overlap. A
 * relation of one column has 1 as its first value. */
static kb_status emit_bits(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_step *emit = step + 1;
    const kb_relation *relation = run->slots[step->slot];
    const kb_pair *pairs = run->plan->pairs + emit->pairs;
    uint32_t key = run->target->key, first = key == 2 ? emit->row_first : KB_FIXED, last = emit->row_last;
    kb_sym head[2] = { key == 2 ? run->registers[pairs[0].with] : 1, run->registers[pairs[key - 1].with] };
    kb_sym whole[KB_MAX_ARITY];
    int checks = kb_has_checks(step);
    int64_t left = run->left;
    uint64_t probes = 0;
    kb_status status = KB_OK;

    while (cursor->at < cursor->end && left > 0 && status == KB_OK && kb_is_bits(run->target)) {
        const uint32_t *list = step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL;
        const kb_sym *cells = relation->cells;
        uint32_t at = cursor->at, end = cursor->end;
        const kb_sym *row = NULL;
        int fresh = 0;

        while (at < end && left > 0 && !fresh) {
            uint32_t id = list != NULL ? list[at] : at;

            row = cells + (size_t)id * step->arity;

            at++;
            left--;
            if (!kb_visible(relation, id) || (checks && !kb_row_matches(run, step, row)))
                continue;
            if (first != KB_FIXED)
                head[0] = row[first];
            if (last != KB_FIXED)
                head[1] = row[last];
            left--;
            probes++;
            fresh = !kb_bits_have(run->target, head[0], head[1]);
        }
        cursor->at = at;
        if (fresh)                    /* invalidates pointers into the relations */
            status = add_fresh(run, key == emit->arity ? head + 2 - key : whole_head(run, emit, row, whole));
    }
    run->left = left;
    run->stats.probes += probes;
    return status;
}

/* As emit_bits, for the most frequent form of recursion: an index list all of whose rows count, a
 * rectangle of bits, a first column that does not change. */
static kb_status emit_words(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_step *emit = step + 1;
    const kb_pair *pairs = run->plan->pairs + emit->pairs;
    kb_relation *target = run->target;
    uint32_t arity = step->arity, column = emit->row_last, key = target->key, start = cursor->at, at = start;
    uint32_t end = cursor->end - at > (uint64_t)(run->left + 1) / 2 ? at + (uint32_t)((run->left + 1) / 2) : cursor->end;
    kb_sym head[2] = { key == 2 ? run->registers[pairs[0].with] : 1, 0 }, whole[KB_MAX_ARITY];
    kb_status status = KB_OK;

    while (at < end && status == KB_OK && target->matrix.words != NULL) {
        const uint32_t *list = kb_index_list(cursor->index, cursor->entry);
        const kb_sym *cells = run->slots[step->slot]->cells + column;
        uint32_t row = head[0] - target->matrix.top, edge = target->matrix.left;
        uint32_t width = row < target->matrix.height ? target->matrix.width : 0;
        const uint64_t *words = target->matrix.words + (width == 0 ? 0 : (size_t)row * width);
        kb_sym value = 0;
        int fresh = 0;

        while (at < end && !fresh) {
            uint32_t word;

            value = cells[(size_t)list[at++] * arity];
            word = (value >> 6) - edge;
            fresh = word >= width || (words[word] >> (value & 63) & 1) == 0;
        }
        head[1] = value;
        if (fresh)
            status = add_fresh(run, key == emit->arity ? head + 2 - key
                                    : whole_head(run, emit, cells - column + (size_t)list[at - 1] * arity, whole));
    }
    cursor->at = at;
    run->left -= 2 * (int64_t)(at - start);
    run->stats.probes += at - start;
    return status;
}

/* Run the innermost loop with its EMIT: from the rows to the relation, without the registers. */
kb_status kb_emit_rows(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    uint64_t probes = run->stats.probes;
    kb_status status = KB_OK;

    while (cursor->at < cursor->end && run->left > 0 && status == KB_OK) {
        if (run->distinct || run->outer || !kb_is_bits(run->target) || is_scattered(run->target, step + 1))
            status = emit_heads(run, step, cursor);
        else if (run->head_count != 0)
            status = kb_heads_flush(run);
        else if (run->target->matrix.words != NULL && step->op == KB_OP_PROBE && step->sames == 0
                 && run->slots[step->slot]->state == NULL && step[1].row_last != KB_FIXED
                 && (step[1].row_first == KB_FIXED || run->target->key == 1))
            status = emit_words(run, step, cursor);
        else
            status = emit_bits(run, step, cursor);
    }
    kb_count_step(run, step, run->stats.probes - probes);   /* each head is one probe */
    return status;
}

kb_status kb_emit_one(kb_run *run, const kb_step *step)
{
    const kb_sym *head = kb_gather(run, step, run->heads + (size_t)run->head_count * step->arity);

    run->left--;
    run->stats.probes++;
    if (run->head_count == 0 && !run->distinct && !run->outer && kb_is_bits(run->target) && !is_large(run->target))
        return kb_relation_has(run->target, head) ? KB_OK : add_fresh(run, head);
    return ++run->head_count == KB_BATCH ? kb_heads_flush(run) : KB_OK;
}
