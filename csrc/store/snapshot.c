/* snapshot.c - a snapshot of a relation, copied incrementally.
 * Owns: which blocks of rows a snapshot has still to copy, and from which relation. Never: lets
 * others read a snapshot before it is complete.
 * Taking a snapshot allocates memory and copies nothing. From then on, a change of a row in the
 * source first copies the block of that row, and kb_snapshot_copy copies the other blocks. All
 * memory is allocated at the start, so no change of the source can fail because of a snapshot. */
#include "internal.h"

#define BLOCK_ROWS 4096u              /* with all columns about 300 KB: a fraction of a millisecond
                                       * to copy */

static int is_complete(const kb_relation *relation)
{
    return relation->snapshot == NULL || relation->snapshot->source == NULL;
}

kb_relation *kb_engine_writable(const kb_engine *engine, kb_rel rel)
{
    kb_relation *relation = kb_engine_relation(engine, rel);

    return relation != NULL && !relation->owned && relation->snapshot == NULL ? relation : NULL;
}

kb_status kb_engine_readable(const kb_engine *engine, kb_rel rel, kb_relation **out)
{
    *out = kb_engine_relation(engine, rel);
    if (*out == NULL || !is_complete(*out))
        return KB_MISUSE;
    return kb_relation_write(*out);
}

static uint32_t block_count(const kb_relation *copy)
{
    return (copy->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

static void detach(kb_relation *copy)
{
    kb_relation **at = &copy->snapshot->source->snapshots;

    while (*at != copy)
        at = &(*at)->snapshot->next;
    *at = copy->snapshot->next;
    copy->snapshot->source = copy->snapshot->next = NULL;
}

/* Copy a block that is not copied yet. */
static void copy_block(kb_relation *copy, uint32_t block)
{
    const kb_relation *source = copy->snapshot->source;
    uint32_t first = block * BLOCK_ROWS;
    uint32_t count = copy->rows - first < BLOCK_ROWS ? copy->rows - first : BLOCK_ROWS;

    if (copy->snapshot->saved[block])
        return;
    if (copy->arity != 0)
        memcpy(kb_row(copy, first), source->cells + (size_t)first * copy->arity,
               (size_t)count * copy->arity * sizeof(kb_sym));
    if (copy->state != NULL)
        memcpy(copy->state + first, source->state + first, count);
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        if (copy->columns[i] != NULL)
            memcpy(copy->columns[i] + first, source->columns[i] + first, count * sizeof(int64_t));
    copy->snapshot->saved[block] = 1;
    if (--copy->snapshot->unsaved == 0)
        detach(copy);
}

void kb_snapshots_save(kb_relation *source, uint32_t first, size_t count)
{
    for (kb_relation *copy = source->snapshots, *next; copy != NULL; copy = next) {
        uint32_t block = first / BLOCK_ROWS, blocks = block_count(copy);
        uint64_t end = (first + (uint64_t)count + BLOCK_ROWS - 1) / BLOCK_ROWS;

        next = copy->snapshot->next;
        for (; count != 0 && block < end && block < blocks && copy->snapshot->source != NULL; block++)
            copy_block(copy, block);
    }
}

void kb_snapshots_end(kb_relation *relation)
{
    kb_snapshots_save(relation, 0, relation->rows);
    if (!is_complete(relation))
        detach(relation);
    kb_release(relation->heap, relation->snapshot);
    relation->snapshot = NULL;
}

/* Allocate the memory of a snapshot and link it to its source. On failure the caller drops it. */
static kb_status init_snapshot(kb_relation *source, kb_relation *copy)
{
    kb_heap *heap = copy->heap;
    kb_snapshot *snapshot = kb_alloc(heap, 1, sizeof *snapshot + (source->rows + BLOCK_ROWS - 1) / BLOCK_ROWS);

    copy->snapshot = snapshot;
    if (snapshot == NULL)
        return KB_NOMEM;
    if (source->rows == 0)
        return KB_OK;
    if ((copy->cells = kb_alloc(heap, (size_t)source->rows * source->arity, sizeof(kb_sym))) == NULL
        || (source->state != NULL && (copy->state = kb_alloc(heap, source->rows, 1)) == NULL))
        return KB_NOMEM;
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        if (source->columns[i] != NULL && (copy->columns[i] = kb_alloc(heap, source->rows, sizeof(int64_t))) == NULL)
            return KB_NOMEM;
    copy->rows = copy->capacity = source->rows;
    copy->dead = source->dead;
    copy->hidden = source->hidden;
    snapshot->unsaved = block_count(copy);
    snapshot->source = source;
    snapshot->next = source->snapshots;
    source->snapshots = copy;
    return KB_OK;
}

kb_status kb_relation_snapshot(kb_engine *engine, const kb_rel *from, size_t count, kb_rel *out)
{
    kb_status status = KB_OK;
    size_t created = 0;

    if (engine == NULL || (count != 0 && (from == NULL || out == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++) {
        if (kb_engine_writable(engine, from[i]) == NULL)
            return KB_MISUSE;
    }
    for (; created < count && status == KB_OK; created += status == KB_OK) {
        kb_relation *source = kb_engine_relation(engine, from[created]);

        if ((status = kb_relation_new(engine, source->arity, out + created)) == KB_OK
            && (status = init_snapshot(source, kb_engine_relation(engine, out[created]))) < 0)
            kb_relation_drop(engine, out[created]);
    }
    while (status < 0 && created != 0)
        kb_relation_drop(engine, out[--created]);
    return status;
}

kb_status kb_snapshot_copy(kb_engine *engine, kb_rel rel, size_t rows)
{
    kb_relation *copy = kb_engine_relation(engine, rel);
    size_t copied = 0;

    if (copy == NULL || copy->snapshot == NULL)
        return KB_MISUSE;
    while (!is_complete(copy) && copied < rows) {
        uint32_t block = copy->snapshot->next_block++;

        if (!copy->snapshot->saved[block]) {
            copied += BLOCK_ROWS;
            copy_block(copy, block);
        }
    }
    return is_complete(copy) ? KB_DONE : KB_OK;
}
