/* rectangles.c - relations of pairs as rectangles of bits, by rows and by columns.
 * Owns: the search for new bits at the end of a round. Never: applies a rule.
 * Each job is split into parts that write to different words: by rows, or, where rows and columns
 * are exchanged, by squares of 64 rows, which become different words of each row. */
#include "dense/dense.h"

#define PARTS_PER_THREAD 4u

typedef struct rectangle_job {
    const kb_dense *dense;
    kb_rectangles *each;
    const uint64_t *from;
    uint64_t *to;
    uint32_t side;
} rectangle_job;

/* Exchange rows and columns of a square of 64 by 64 bits (Warren, "Hacker's Delight", 7-3). */
static void transpose_square(uint64_t square[64])
{
    uint64_t mask = UINT64_C(0x00000000FFFFFFFF);

    for (uint32_t step = 32; step != 0; step >>= 1, mask ^= mask << step)
        for (uint32_t i = 0; i < 64; i = ((i | step) + 1) & ~step) {
            uint64_t swap = (square[i] >> step ^ square[i | step]) & mask;

            square[i] ^= swap << step;
            square[i | step] ^= swap;
        }
}

/* Return the number of parts of a job: several for each thread, which may be interrupted. */
static uint32_t parts_of(const kb_team *team)
{
    return team->threads == 1 ? 1 : team->threads * PARTS_PER_THREAD;
}

/* Return where a part of some items begins. */
static uint32_t part_start(uint32_t items, uint32_t part, uint32_t parts)
{
    return (uint32_t)((uint64_t)items * part / parts);
}

static void exchange_part(void *context, uint32_t thread, uint32_t part, uint32_t parts)
{
    const rectangle_job *job = context;
    const kb_dense *dense = job->dense;
    uint64_t square[64];

    (void)thread;
    for (uint32_t top = part_start(dense->words, part, parts); top < part_start(dense->words, part + 1, parts); top++)
        for (uint32_t left = 0; left < dense->words; left++) {
            const uint64_t *words = job->from + (size_t)top * 64 * dense->words + left;
            uint64_t any = 0;

            for (uint32_t i = 0; i < 64; i++)
                any |= square[i] = words[(size_t)i * dense->words];
            if (any == 0)
                continue;
            transpose_square(square);
            for (uint32_t i = 0; i < 64; i++)
                job->to[((size_t)left * 64 + i) * dense->words + top] |= square[i];
        }
}

void kb_add_exchanged(kb_dense *dense, kb_team *team, const uint64_t *from, uint64_t *to)
{
    rectangle_job job = { dense, NULL, from, to, 0 };

    kb_team_run(team, exchange_part, &job, parts_of(team));
}

/* Note which words of a row of `fresh` are not 0. */
static void measure_row(const kb_dense *dense, kb_rectangles *each, uint32_t side, uint32_t row)
{
    const uint64_t *words = kb_bit_row(dense, each->fresh[side], row);
    uint32_t first = 0, end = dense->words;

    while (first < end && words[first] == 0)
        first++;
    while (end > first && words[end - 1] == 0)
        end--;
    each->ranges[side][row] = first == end ? 0 : first << 16 | end;
}

/* Move the new bits of some rows of `next` to `fresh` and `full`. Clear the other orientation. */
static void compare_part(void *context, uint32_t thread, uint32_t part, uint32_t parts)
{
    const rectangle_job *job = context;
    const kb_dense *dense = job->dense;
    kb_rectangles *each = job->each;
    uint32_t side = job->side, other = 1 - side, row = part_start(dense->size, part, parts), end = part_start(dense->size, part + 1, parts);
    size_t first = (size_t)row * dense->words, last = (size_t)end * dense->words;
    uint64_t *full = each->full[side], *fresh = each->fresh[side], *next = each->next[side], count = 0;

    if (each->used[other]) {
        memset(each->next[other] + first, 0, (last - first) * sizeof *next);
        memset(each->fresh[other] + first, 0, (last - first) * sizeof *next);
    }
    for (size_t i = first; i < last; i++) {
        uint64_t bits = next[i] & ~full[i];

        fresh[i] = bits;
        full[i] |= bits;
        next[i] = 0;
        if (bits != 0)
            count += kb_count_bits(bits);
    }
    for (; row < end; row++)
        measure_row(dense, each, side, row);
    dense->workers[thread].bits += count;
}

/* Add the new bits of some rows to the other orientation. */
static void add_part(void *context, uint32_t thread, uint32_t part, uint32_t parts)
{
    const rectangle_job *job = context;
    const kb_dense *dense = job->dense;
    kb_rectangles *each = job->each;
    uint32_t other = 1 - job->side, row = part_start(dense->size, part, parts), end = part_start(dense->size, part + 1, parts);

    (void)thread;
    for (size_t i = (size_t)row * dense->words; i < (size_t)end * dense->words; i++)
        each->full[other][i] |= each->fresh[other][i];
    for (; row < end; row++)
        measure_row(dense, each, other, row);
}

void kb_find_new_bits(kb_dense *dense, kb_team *team, kb_rectangles *each)
{
    uint32_t side = each->primary, other = 1 - side;
    rectangle_job job = { dense, each, NULL, NULL, side };

    if (each->used[other])
        kb_add_exchanged(dense, team, each->next[other], each->next[side]);
    for (uint32_t i = 0; i < dense->worker_count; i++)
        dense->workers[i].bits = 0;
    kb_team_run(team, compare_part, &job, parts_of(team));
    each->fresh_bits = 0;
    for (uint32_t i = 0; i < dense->worker_count; i++)
        each->fresh_bits += dense->workers[i].bits;
    each->bits += each->fresh_bits;
    if (each->used[other]) {
        kb_add_exchanged(dense, team, each->fresh[side], each->fresh[other]);
        kb_team_run(team, add_part, &job, parts_of(team));
    }
}

void kb_add_cells(const kb_dense *dense, const kb_relation *relation, uint32_t id, uint32_t end, uint32_t side, uint64_t *words)
{
    for (; id < end; id++) {
        const kb_sym *cells = kb_row(relation, id);
        uint32_t bit = cells[1 - side] - dense->first;

        kb_bit_row(dense, words, cells[side] - dense->first)[bit >> 6] |= UINT64_C(1) << (bit & 63);
    }
}
