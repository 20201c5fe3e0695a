/* estimate.c - estimates the number of distinct keys of some columns, without an index.
 * Owns: the sample, and the last few estimates of a relation. Never: builds an index, or fails: out
 * of memory, the result is unknown.
 * The estimator is that of Haas and Stokes, n d / (n - f + f n / N), from n sampled of N rows, d
 * distinct keys and f keys met once. It is exact where all rows are sampled. */
#include "internal.h"

#define MAX_SAMPLE 16384u             /* rows sampled, at most */
#define GROWTH_SHARE 8u               /* an estimate is valid until the relation has grown by an
                                       * eighth */

/* taken 0: a free slot */
typedef struct kb_seen { uint64_t hash; uint32_t times, taken; } kb_seen;

static uint64_t hash_columns(const kb_relation *relation, uint32_t id, uint64_t mask)
{
    const kb_sym *row = kb_row(relation, id);
    uint64_t hash = 0;

    for (uint32_t i = 0; i < relation->arity; i++)
        if (mask >> i & 1)
            hash = kb_mix(hash ^ row[i]) + i;
    return hash;
}

/* Return a pseudo-random row of the i-th of `taken` equal parts: rows often repeat with a period,
 * which a fixed stride could hit. */
static uint32_t sampled_row(uint64_t i, uint32_t rows, uint32_t taken)
{
    uint64_t start = i * rows / taken, end = (i + 1) * rows / taken;

    return (uint32_t)(start + kb_mix(i + 1) % (end > start ? end - start : 1));
}

static uint64_t from_sample(const kb_relation *relation, uint64_t mask, uint64_t live, kb_seen *seen, uint32_t size)
{
    uint32_t taken = live < MAX_SAMPLE ? (uint32_t)live : MAX_SAMPLE;
    uint64_t sampled = 0, distinct = 0, once = 0;

    for (uint64_t i = 0; i < (taken == live ? relation->rows : taken); i++) {
        uint32_t id = taken == live ? (uint32_t)i : sampled_row(i, relation->rows, taken);
        uint64_t hash = hash_columns(relation, id, mask);
        uint32_t at = (uint32_t)hash & (size - 1);

        if (!kb_visible(relation, id))
            continue;
        while (seen[at].taken && seen[at].hash != hash)
            at = (at + 1) & (size - 1);
        distinct += !seen[at].taken;
        once += seen[at].times == 0;
        once -= seen[at].times == 1;
        seen[at].hash = hash;
        seen[at].taken = 1;
        seen[at].times += seen[at].times < 2;
        sampled++;
    }
    if (sampled == 0 || sampled == live)
        return distinct;
    return (uint64_t)((double)sampled * (double)distinct
                      / ((double)(sampled - once) + (double)once * (double)sampled / (double)live));
}

uint64_t kb_estimate_distinct(kb_relation *relation, uint64_t mask)
{
    uint64_t live = relation->rows - relation->dead - relation->hidden;
    kb_estimate *place = relation->estimates;
    uint32_t size = 64;
    kb_seen *seen;

    for (uint32_t i = 0; i < KB_ESTIMATES; i++) {
        kb_estimate *estimate = relation->estimates + i;

        if (estimate->mask == mask || estimate->mask == 0) {
            place = estimate;
            break;
        }
    }
    if (place->mask == mask && place->epoch == relation->epoch && relation->rows - place->rows <= place->rows / GROWTH_SHARE)
        return place->distinct;
    while (size / 2 < live && size / 2 < MAX_SAMPLE)
        size *= 2;
    if ((seen = kb_alloc(relation->heap, size, sizeof *seen)) == NULL)
        return 0;
    place->mask = mask;
    place->epoch = relation->epoch;
    place->rows = relation->rows;
    place->distinct = from_sample(relation, mask, live, seen, size);
    kb_release(relation->heap, seen);
    return place->distinct;
}
