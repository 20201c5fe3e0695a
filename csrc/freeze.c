/* freeze.c - a snapshot of a relation, copied incrementally.
 * Owns: which blocks of rows a frozen relation still has to copy, and who copies them. Never: reads a frozen relation for others
 * before all of it is there.
 * Freezing takes memory and copies nothing. From then on a change of a row of the source first copies its block, and
 * kb_relation_settle copies the others, some at a time. Memory is taken at once, so no change of the source can fail for it. */
#include "internal.h"

#define BLOCK_ROWS 4096u              /* with every column some 300 KB: a fraction of a millisecond */

static int is_whole(const kb_relation *relation)
{
    return relation->freezing == NULL || relation->freezing->source == NULL;
}

kb_relation *kb_engine_readable(const kb_engine *engine, kb_rel rel)
{
    kb_relation *relation = kb_engine_relation(engine, rel);

    return relation != NULL && is_whole(relation) ? relation : NULL;
}

static uint32_t blocks_of(const kb_relation *frozen)
{
    return (frozen->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

static void detach(kb_relation *frozen)
{
    kb_relation **at = &frozen->freezing->source->frozen;

    while (*at != frozen)
        at = &(*at)->freezing->next;
    *at = frozen->freezing->next;
    frozen->freezing->source = frozen->freezing->next = NULL;
}

/* Copies a block that is not copied yet. */
static void save(kb_relation *frozen, uint32_t block)
{
    const kb_relation *source = frozen->freezing->source;
    uint32_t first = block * BLOCK_ROWS;
    uint32_t count = frozen->rows - first < BLOCK_ROWS ? frozen->rows - first : BLOCK_ROWS;

    if (frozen->freezing->saved[block])
        return;
    if (frozen->arity != 0)
        memcpy(frozen->cells + (size_t)first * frozen->arity, source->cells + (size_t)first * frozen->arity,
               (size_t)count * frozen->arity * sizeof(kb_sym));
    if (frozen->state != NULL)
        memcpy(frozen->state + first, source->state + first, count);
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        if (frozen->columns[i] != NULL)
            memcpy(frozen->columns[i] + first, source->columns[i] + first, count * sizeof(int64_t));
    frozen->freezing->saved[block] = 1;
    if (--frozen->freezing->unsaved == 0)
        detach(frozen);
}

void kb_frozen_keep(kb_relation *source, uint32_t first, size_t count)
{
    for (kb_relation *frozen = source->frozen, *next; frozen != NULL; frozen = next) {
        uint32_t block = first / BLOCK_ROWS, blocks = blocks_of(frozen);
        uint64_t end = (first + (uint64_t)count + BLOCK_ROWS - 1) / BLOCK_ROWS;

        next = frozen->freezing->next;
        for (; count != 0 && block < end && block < blocks && frozen->freezing->source != NULL; block++)
            save(frozen, block);
    }
}

void kb_frozen_end(kb_relation *relation)
{
    kb_frozen_keep(relation, 0, relation->rows);
    if (!is_whole(relation))
        detach(relation);
    kb_release(relation->heap, relation->freezing);
    relation->freezing = NULL;
}

/* The frozen relation with all the memory it will need; where that fails the caller drops it. */
static kb_status freeze(kb_relation *source, kb_relation *frozen)
{
    kb_heap *heap = frozen->heap;
    kb_freezing *freezing = kb_alloc(heap, 1, sizeof *freezing + (source->rows + BLOCK_ROWS - 1) / BLOCK_ROWS);

    frozen->freezing = freezing;
    if (freezing == NULL)
        return KB_NOMEM;
    if (source->rows == 0)
        return KB_OK;
    if ((frozen->cells = kb_alloc(heap, (size_t)source->rows * source->arity, sizeof(kb_sym))) == NULL
        || (source->state != NULL && (frozen->state = kb_alloc(heap, source->rows, 1)) == NULL))
        return KB_NOMEM;
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        if (source->columns[i] != NULL && (frozen->columns[i] = kb_alloc(heap, source->rows, sizeof(int64_t))) == NULL)
            return KB_NOMEM;
    frozen->rows = frozen->capacity = source->rows;
    frozen->dead = source->dead;
    frozen->hidden = source->hidden;
    freezing->unsaved = blocks_of(frozen);
    freezing->source = source;
    freezing->next = source->frozen;
    source->frozen = frozen;
    return KB_OK;
}

kb_status kb_relation_freeze(kb_engine *engine, const kb_rel *from, size_t count, kb_rel *out)
{
    kb_status status = KB_OK;
    size_t made = 0;

    if (engine == NULL || (count != 0 && (from == NULL || out == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++) {
        const kb_relation *source = kb_engine_relation(engine, from[i]);

        if (source == NULL || source->owned || source->freezing != NULL)
            return KB_MISUSE;
    }
    for (; made < count && status == KB_OK; made += status == KB_OK) {
        kb_relation *source = kb_engine_relation(engine, from[made]);

        if ((status = kb_relation_new(engine, source->arity, out + made)) == KB_OK
            && (status = freeze(source, kb_engine_relation(engine, out[made]))) < 0)
            kb_relation_drop(engine, out[made]);
    }
    while (status < 0 && made != 0)
        kb_relation_drop(engine, out[--made]);
    return status;
}

kb_status kb_relation_settle(kb_engine *engine, kb_rel rel, size_t rows)
{
    kb_relation *frozen = kb_engine_relation(engine, rel);
    size_t copied = 0;

    if (frozen == NULL || frozen->freezing == NULL)
        return KB_MISUSE;
    while (!is_whole(frozen) && copied < rows) {
        uint32_t block = frozen->freezing->next_block++;

        if (!frozen->freezing->saved[block]) {
            copied += BLOCK_ROWS;
            save(frozen, block);
        }
    }
    return is_whole(frozen) ? KB_DONE : KB_OK;
}
