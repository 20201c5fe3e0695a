/* copy.c - copies a relation, and counts the bytes of one.
 * Owns: which parts of a relation are copied. Never: changes the relation it copies; builds
 * indexes, which are built on first use.
 * Where few rows are deleted, cells, states, columns and the table of ids are copied as they are,
 * with all ids. Otherwise the live rows move together, in their order, and a new table of ids is
 * built. */
#include "internal.h"

#define DEAD_SHARE 8u                 /* with at most one deleted row in 8, deleted rows are copied
                                       * too */

/* Copy items of `size` bytes, except those of deleted rows. */
static void copy_live(void *to, const void *from, size_t size, const uint8_t *state, uint32_t rows)
{
    char *at = to;

    for (uint32_t id = 0, end; id < rows; id = end) {
        for (end = id; end < rows && state[end] != KB_DEAD; end++)
            ;
        memcpy(at, (const char *)from + id * size, (end - id) * size);
        at += (end - id) * size;
        while (end < rows && state[end] == KB_DEAD)
            end++;
    }
}

/* Allocate and fill a column of one item of `size` bytes per row of the copy. */
static void *copy_column(const kb_relation *source, kb_relation *copy, const void *items, size_t size)
{
    void *block = kb_resize(copy->heap, NULL, copy->rows, size);

    if (block != NULL && size != 0) {
        if (copy->rows == source->rows)
            memcpy(block, items, copy->rows * size);
        else
            copy_live(block, items, size, source->state, source->rows);
    }
    return block;
}

static kb_status copy_rows(const kb_relation *source, kb_relation *copy)
{
    int keeps_ids = source->dead <= source->rows / DEAD_SHARE;

    copy->rows = copy->capacity = keeps_ids ? source->rows : source->rows - source->dead;
    if (copy->rows == 0)
        return KB_OK;
    copy->dead = keeps_ids ? source->dead : 0;
    copy->hidden = source->hidden;
    if ((copy->cells = copy_column(source, copy, source->cells, source->arity * sizeof(kb_sym))) == NULL)
        return KB_NOMEM;
    if (copy->dead + copy->hidden != 0 && (copy->state = copy_column(source, copy, source->state, 1)) == NULL)
        return KB_NOMEM;
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        if (source->columns[i] != NULL
            && (copy->columns[i] = copy_column(source, copy, source->columns[i], sizeof(int64_t))) == NULL)
            return KB_NOMEM;
    if (keeps_ids && source->slots != NULL && source->key == source->arity && !kb_is_bits(source)) {
        size_t size = kb_capacity(source->slots);

        if ((copy->slots = kb_resize(copy->heap, NULL, size, 1)) == NULL)
            return KB_NOMEM;
        memcpy(copy->slots, source->slots, size);
        copy->slot_mask = source->slot_mask;
        copy->placed = source->placed;
    }
    return kb_relation_place(copy);
}

kb_status kb_relation_copy(kb_engine *engine, kb_rel from, kb_rel *out)
{
    kb_relation *source;
    kb_status status = kb_engine_readable(engine, from, &source);
    kb_rel rel;

    if (status < 0)
        return status;
    if (out == NULL)
        return KB_MISUSE;
    if ((status = kb_relation_new(engine, source->arity, &rel)) < 0)
        return status;
    if ((status = copy_rows(source, kb_engine_relation(engine, rel))) < 0) {
        kb_relation_drop(engine, rel);
        return status;
    }
    *out = rel;
    return KB_OK;
}

/* Count the allocated blocks of a relation, each with the allocator's header. */
kb_status kb_relation_bytes(const kb_engine *engine, kb_rel rel, uint64_t *out)
{
    const kb_relation *relation = kb_engine_relation(engine, rel);
    uint64_t bytes;

    if (relation == NULL || out == NULL)
        return KB_MISUSE;
    /* a derived relation is part of the block of its run */
    bytes = relation->owned ? 0 : kb_block_bytes(relation);
    bytes += kb_block_bytes(relation->cells) + kb_block_bytes(relation->state) + kb_block_bytes(relation->slots)
             + kb_block_bytes(relation->blocks) + kb_block_bytes(relation->matrix.words) + kb_block_bytes(relation->changes)
             + kb_block_bytes(relation->snapshot) + kb_block_bytes(relation->groups) + kb_block_bytes(relation->members);
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        bytes += kb_block_bytes(relation->columns[i]);
    for (const kb_lookup *index = relation->indexes; index != NULL; index = index->next)
        bytes += kb_block_bytes(index) + kb_block_bytes(index->slots) + kb_block_bytes(index->entries)
                 + kb_block_bytes(index->pool);
    *out = bytes;
    return KB_OK;
}
