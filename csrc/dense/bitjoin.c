/* bitjoin.c - a rule applied to rows of bits: 64 pairs with one OR.
 * Owns: the loops of one job. Never: knows when a round ends, or tests a budget.
 * Threads share a job without locks: where a row of the head is joined from rows of another
 * relation, each thread takes rows of the head as they come; where a new row is added to many rows
 * of the head, each part has its own rows of the head. */
#include "dense/dense.h"

#define CHECK_ROWS 16u                /* rows joined between two tests whether a head row is
                                       * complete */

/* Add words `range` of one row to another. */
static void add_row(kb_dense_worker *worker, const uint64_t *from, uint64_t *to, uint32_t range)
{
    uint32_t first = range >> 16, end = range & 0xFFFF;

    for (uint32_t i = first; i < end; i++)
        to[i] |= from[i];
    worker->steps += 1 + (end - first) / KB_WORDS_PER_STEP;
    worker->probes++;
}

/* Return the new bits of a row of `from` that pass the guards, NULL if the row itself does not. */
static const uint64_t *guarded_row(const kb_dense *dense, kb_dense_worker *worker, const kb_rectangles *from, uint32_t side, uint32_t row)
{
    const uint64_t *words = kb_bit_row(dense, from->fresh[side], row), *mask = dense->masks[1 - side];
    uint32_t range = from->ranges[side][row];

    if (dense->is_masked[side] && !(dense->masks[side][row >> 6] >> (row & 63) & 1))
        return NULL;
    if (!dense->is_masked[1 - side])
        return words;
    for (uint32_t i = range >> 16; i < (range & 0xFFFF); i++)
        worker->passed[i] = words[i] & mask[i];
    return worker->passed;
}

/* Return 1 if a value that the probe of the rule loads passes its guards. */
static int passes_probed(const kb_dense *dense, uint32_t bit)
{
    return !dense->is_masked[KB_PROBED] || (dense->masks[KB_PROBED][bit >> 6] >> (bit & 63) & 1);
}

/* Add a row of `from` to the head rows of those values that `with` has for it and that belong to
 * the part. */
static void join_row(const kb_bit_join *join, kb_dense_worker *worker, const uint64_t *words, uint32_t row, uint32_t part, uint32_t parts)
{
    kb_run *run = join->run;
    const kb_dense *dense = run->dense;
    const kb_pair_rule *rule = join->rule;
    uint64_t *heads = join->head->next[1 - rule->keep];
    uint32_t range = join->from->ranges[rule->join][row];

    if (join->with != NULL) {
        const uint64_t *values = kb_bit_row(dense, join->with->full[rule->key], row);

        for (uint32_t i = 0; i < dense->words; i++)
            for (uint64_t left = values[i]; left != 0; left &= left - 1) {
                uint32_t bit = i * 64 + KB_LOWEST_BIT(left);

                if (bit % parts == part && passes_probed(dense, bit))
                    add_row(worker, words, kb_bit_row(dense, heads, bit), range);
            }
    } else {
        const kb_relation *relation = run->slots[rule->with];
        kb_cursor cursor = *join->cursor;
        kb_sym key = dense->first + row;
        const uint32_t *list;

        kb_cursor_seek_key(run, rule->probe, &cursor, &key);
        list = cursor.at < cursor.end ? kb_index_list(cursor.index, cursor.entry) : NULL;
        for (; cursor.at < cursor.end; cursor.at++) {
            uint32_t bit = kb_row(relation, list[cursor.at])[1 - rule->key] - dense->first;

            if (bit % parts == part && kb_visible(relation, list[cursor.at]) && passes_probed(dense, bit))
                add_row(worker, words, kb_bit_row(dense, heads, bit), range);
        }
    }
    worker->steps += part == 0;
}

/* Set `missing` to the bits that a rule can add to a head row. Return 0 if there are none. */
static int find_missing(const kb_bit_join *join, kb_dense_worker *worker, uint32_t row)
{
    const kb_dense *dense = join->run->dense;
    uint32_t side = join->rule->keep;
    const uint64_t *full = kb_bit_row(dense, join->head->full[side], row), *next = kb_bit_row(dense, join->head->next[side], row);
    uint64_t any = 0;

    for (uint32_t i = 0; i < dense->words; i++)
        any |= worker->missing[i] = dense->reachable[i] & ~full[i] & ~next[i];
    worker->steps += dense->words / KB_WORDS_PER_STEP;
    return any != 0;
}

/* Return 1 if the joined rows have all bits that were missing. */
static int is_complete(const kb_dense *dense, kb_dense_worker *worker)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < dense->words; i++)
        any |= worker->missing[i] & ~worker->joined[i];
    worker->steps += dense->words / KB_WORDS_PER_STEP;
    return any == 0;
}

/* Add to a head row the rows that `with` has for its new values, until no bit is missing: rows of a
 * dense result are complete after a few of them. */
static void join_pairs(const kb_bit_join *join, kb_dense_worker *worker, const uint64_t *words, uint32_t row)
{
    const kb_dense *dense = join->run->dense;
    const kb_pair_rule *rule = join->rule;
    uint64_t *to = kb_bit_row(dense, join->head->next[rule->keep], row);
    uint32_t range = join->from->ranges[1 - rule->join][row], count = 0, done = 0;

    if (!find_missing(join, worker, row))
        return;
    memset(worker->joined, 0, dense->words * sizeof *to);
    for (uint32_t i = range >> 16; i < (range & 0xFFFF) && !done; i++)
        for (uint64_t left = words[i]; left != 0 && !done; left &= left - 1) {
            add_row(worker, kb_bit_row(dense, join->with->full[rule->key], i * 64 + KB_LOWEST_BIT(left)), worker->joined, dense->words);
            count++;
            done = (count % CHECK_ROWS == 0 || (count & (count - 1)) == 0) && is_complete(dense, worker);
        }
    for (uint32_t i = 0; i < dense->words; i++)
        to[i] |= worker->joined[i] & worker->missing[i];
}

/* Work on the rows that no other thread takes. */
static void take_rows(void *context, uint32_t thread, uint32_t part, uint32_t parts)
{
    kb_bit_join *join = context;
    const kb_dense *dense = join->run->dense;
    kb_dense_worker *worker = dense->workers + thread;
    uint32_t side = dense->by_pairs ? 1 - join->rule->join : join->rule->join, row;

    (void)part;
    (void)parts;
    while ((row = atomic_fetch_add_explicit(&join->next, 1, memory_order_relaxed)) < join->end) {
        const uint64_t *words;

        if (join->from->ranges[side][row] == 0 || (words = guarded_row(dense, worker, join->from, side, row)) == NULL)
            continue;
        if (dense->by_pairs)
            join_pairs(join, worker, words, row);
        else
            add_row(worker, words, kb_bit_row(dense, join->head->next[1 - join->rule->keep], row), join->from->ranges[side][row]);
    }
}

/* Add all rows to the head rows of the part. */
static void share_rows(void *context, uint32_t thread, uint32_t part, uint32_t parts)
{
    const kb_bit_join *join = context;
    const kb_dense *dense = join->run->dense;
    kb_dense_worker *worker = dense->workers + thread;
    uint32_t side = join->rule->join;

    for (uint32_t row = join->row; row < join->end; row++) {
        const uint64_t *words;

        if (join->from->ranges[side][row] != 0 && (words = guarded_row(dense, worker, join->from, side, row)) != NULL)
            join_row(join, worker, words, row, part, parts);
    }
}

uint64_t kb_bit_join_rows(kb_bit_join *join, kb_team *team)
{
    kb_run *run = join->run;
    kb_dense *dense = run->dense;
    uint64_t steps = 0;

    for (uint32_t i = 0; i < dense->worker_count; i++)
        dense->workers[i].steps = dense->workers[i].probes = 0;
    atomic_store_explicit(&join->next, join->row, memory_order_relaxed);
    kb_team_run(team, dense->by_pairs || join->rule->with == KB_NONE ? take_rows : share_rows, join, team->threads);
    for (uint32_t i = 0; i < dense->worker_count; i++) {
        steps += dense->workers[i].steps;
        run->stats.probes += dense->workers[i].probes;
    }
    return steps;
}
