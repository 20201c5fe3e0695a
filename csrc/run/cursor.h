/* cursor.h - the views of a round, and cursors over the row ids that an index returns.
 * Owns: the step from a key to the ids of a view. Never: advances a cursor. All functions are
 * inline because every loop of a run starts here. */
#ifndef KB_CURSOR_H
#define KB_CURSOR_H
#include "run/machine.h"

static inline uint32_t kb_view_start(const kb_run *run, const kb_step *step)
{
    return step->view == KB_VIEW_DELTA ? run->low[step->mark] : run->from[step->mark];
}

static inline uint32_t kb_view_end(const kb_run *run, const kb_step *step)
{
    return step->view == KB_VIEW_OLD ? run->low[step->mark] : run->high[step->mark];
}

/* Set the cursor to the ids of the view in the list of an index entry. */
static inline void kb_cursor_set(const kb_run *run, const kb_step *step, kb_cursor *cursor, uint32_t entry)
{
    const kb_relation *relation = run->slots[step->slot];
    const kb_lookup *index = cursor->index;
    uint32_t start = kb_view_start(run, step), end = kb_view_end(run, step), count;
    const uint32_t *list;

    cursor->at = cursor->end = 0;
    if ((cursor->entry = entry) == KB_NONE)
        return;
    count = index->entries[entry].count;
    cursor->end = count;
    if (start == 0 && end == relation->rows)   /* the whole list: no need to read it */
        return;
    list = kb_index_list(index, entry);
    if (start > list[0])
        cursor->at = kb_lower_bound(list, count, start);
    if (list[count - 1] >= end)
        cursor->end = kb_lower_bound(list, count, end);
}

/* Set the cursor to the ids of the view that have the key. */
static inline void kb_cursor_seek(const kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_lookup *index = cursor->index;
    kb_sym key[KB_MAX_ARITY];

    if (index->direct) {
        key[0] = run->registers[run->plan->pairs[step->pairs].with];
        /* 0 - 1 is KB_NONE */
        kb_cursor_set(run, step, cursor, key[0] < index->size ? index->slots[key[0]] - 1 : KB_NONE);
    } else {
        kb_cursor_set(run, step, cursor, kb_index_find(index, run->slots[step->slot], kb_gather(run, step, key)));
    }
}

static inline void kb_cursor_seek_key(const kb_run *run, const kb_step *step, kb_cursor *cursor, const kb_sym *key)
{
    kb_cursor_set(run, step, cursor, kb_index_seek(cursor->index, run->slots[step->slot], key));
}

/* Return the id of the row at place `at` of a loop; `list` is the index list of a PROBE, NULL for a
 * SCAN. */
static inline uint32_t kb_cursor_id(const kb_cursor *cursor, const uint32_t *list, uint32_t at)
{
    if (list != NULL)
        return list[at];
    return cursor->order != NULL ? (uint32_t)cursor->order[at - cursor->first] : at;
}

#define KB_PREFETCH_STAGES 4u

/* Prefetch what the look-up of a key in an index will read, and the first rows of its list. Each
 * stage reads what an earlier stage has prefetched. In a hash table only the home slot is tried: a
 * key elsewhere is not prefetched, which costs time only. */
static KB_ALWAYS_INLINE void kb_prefetch_key(const kb_lookup *index, const kb_relation *relation, kb_sym key, uint32_t stage)
{
    uint32_t at = index->direct ? key : (uint32_t)kb_mix(key) & (index->size - 1), slot;
    const kb_entry *entry;

    if (at >= index->size)
        return;
    if (stage == 0) {
        KB_PREFETCH(index->slots + at);
        return;
    }
    if ((slot = index->slots[at]) == 0)
        return;
    entry = index->entries + slot - 1;
    if (stage == 1)
        KB_PREFETCH(entry);
    else if (stage == 2 && entry->count > 1)
        KB_PREFETCH(index->pool + entry->at);
    else if (entry->count == 1)
        KB_PREFETCH(kb_row(relation, entry->at));
    else if (stage == 3)
        for (uint32_t i = 0; i < entry->count && i < 4; i++)
            KB_PREFETCH(kb_row(relation, index->pool[entry->at + i]));
}

#endif
