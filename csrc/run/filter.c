/* filter.c - filter loop: an innermost loop whose rows one look-up tests, MEMBER or ABSENT, before
 * EMIT.
 * Owns: nothing. Never: takes a step that needs an index, or a relation with hidden rows.
 * Rows are processed in small batches: what their look-ups read is prefetched first, so that cache
 * misses overlap. */
#include "run/cursor.h"

#define BATCH_ROWS 16u                /* rows whose look-ups overlap */
#define MAX_HEAD_COLUMNS 4u           /* columns of a head */
#define LARGE_SET 4096u               /* rows; a smaller set is in the cache */

/* For each column of the look-up and of the head: a column of the row, or KB_NONE for a
 * register. */
typedef struct kb_filter {
    uint32_t key_from[2], head_from[MAX_HEAD_COLUMNS];
    kb_sym key[2], head[MAX_HEAD_COLUMNS];
} kb_filter;

int kb_filter_applies(const kb_run *run, const kb_step *step)
{
    const kb_step *test = step + 1;
    const kb_relation *set = run->slots[test->slot];

    if ((test->op != KB_OP_MEMBER && test->op != KB_OP_ABSENT) || step->intersects || test[1].op != KB_OP_EMIT
        || test[1].back != (uint32_t)(step - run->plan->steps) - run->plan->rules[run->rule].first
        || test->keys != test->arity || test->arity == 0 || test->arity > 2 || test[1].arity > MAX_HEAD_COLUMNS || set->state != NULL || set == run->target)
        return 0;
    return test->op == KB_OP_ABSENT || (kb_view_start(run, test) == 0 && kb_view_end(run, test) == set->rows);
}

static void prepare(const kb_run *run, const kb_step *step, kb_filter *filter)
{
    const kb_pair *keys = run->plan->pairs + step[1].pairs, *heads = run->plan->pairs + step[2].pairs;

    for (uint32_t i = 0; i < step[1].arity; i++) {
        filter->key_from[i] = kb_loaded_column(run, step, keys[i].with);
        filter->key[i] = run->registers[keys[i].with];
    }
    for (uint32_t i = 0; i < step[2].arity; i++) {
        filter->head_from[i] = kb_loaded_column(run, step, heads[i].with);
        filter->head[i] = run->registers[heads[i].with];
    }
}

static inline const kb_sym *key_of(kb_filter *filter, uint32_t arity, const kb_sym *row)
{
    for (uint32_t i = 0; i < arity; i++)
        if (filter->key_from[i] != KB_NONE)
            filter->key[i] = row[filter->key_from[i]];
    return filter->key;
}

kb_status kb_filter_rows(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[step->slot], *set = run->slots[step[1].slot];
    uint32_t width = step[1].arity, arity = step[2].arity;
    int expected = step[1].op == KB_OP_MEMBER, checks = kb_has_checks(step), large = set->rows > LARGE_SET;
    uint64_t probes = run->stats.probes, tested = 0;
    kb_status status = KB_OK;
    kb_filter filter;

    prepare(run, step, &filter);
    while (cursor->at < cursor->end && run->left > 0 && status == KB_OK) {
        const uint32_t *list = step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL;
        uint32_t ids[BATCH_ROWS];     /* ids, because a flush may move the rows of the target */
        uint32_t count = 0;

        for (; count < BATCH_ROWS && cursor->at < cursor->end && run->left > 0; cursor->at++, run->left--) {
            uint32_t id = kb_cursor_id(cursor, list, cursor->at);
            const kb_sym *row = relation->cells + (size_t)id * step->arity;

            if (!kb_visible(relation, id) || (checks && !kb_row_matches(run, step, row)))
                continue;
            if (large)
                kb_relation_prefetch(set, key_of(&filter, width, row));
            ids[count++] = id;
        }
        run->left -= count;
        run->stats.probes += count;
        tested += count;
        for (uint32_t i = 0; i < count && status == KB_OK; i++) {
            const kb_sym *row = relation->cells + (size_t)ids[i] * step->arity;
            kb_sym *head = run->heads + (size_t)run->head_count * arity;

            if (kb_relation_has(set, key_of(&filter, width, row)) != expected)
                continue;
            for (uint32_t c = 0; c < arity; c++)
                head[c] = filter.head_from[c] == KB_NONE ? filter.head[c] : row[filter.head_from[c]];
            run->left--;
            run->stats.probes++;
            if (++run->head_count == KB_BATCH)
                status = kb_heads_flush(run);
        }
    }
    kb_count_step(run, step, tested);
    kb_count_step(run, step + 1, run->stats.probes - probes - tested);
    return status;
}
