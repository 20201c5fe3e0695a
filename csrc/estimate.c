/* estimate.c - how many distinct keys some columns have, without an index on them.
 * Owns: the sample and the last few estimates of a relation. Never: makes an index, or fails: no room, no answer.
 * The estimate is that of Haas and Stokes, from the rows of an even sample, the distinct keys among them and the keys
 * met once: n d / (n - f + f n / N). It is exact where the sample is all there is. */
#include "internal.h"

#define SAMPLE 16384u                 /* rows looked at, at most */
#define DRIFT 8u                      /* an estimate is kept until the relation has grown by an eighth */

typedef struct kb_seen { uint64_t hash; uint32_t times, taken; } kb_seen;   /* taken 0: a free place */

static uint64_t hash_columns(const kb_relation *relation, uint32_t id, uint64_t mask)
{
    const kb_sym *row = relation->cells + (size_t)id * relation->arity;
    uint64_t hash = 0;

    for (uint32_t i = 0; i < relation->arity; i++)
        if (mask >> i & 1)
            hash = kb_mix(hash ^ row[i]) + i;
    return hash;
}

/* Somewhere in the i-th of `taken` equal parts: rows often repeat with a period, which a fixed stride could hit. */
static uint32_t sampled_row(uint64_t i, uint32_t rows, uint32_t taken)
{
    uint64_t start = i * rows / taken, end = (i + 1) * rows / taken;

    return (uint32_t)(start + kb_mix(i + 1) % (end > start ? end - start : 1));
}

static uint64_t from_sample(const kb_relation *relation, uint64_t mask, uint64_t live, kb_seen *seen, uint32_t size)
{
    uint32_t taken = live < SAMPLE ? (uint32_t)live : SAMPLE;
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
    if (place->mask == mask && place->epoch == relation->epoch && relation->rows - place->rows <= place->rows / DRIFT)
        return place->distinct;
    while (size / 2 < live && size / 2 < SAMPLE)
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
