/* cursor.h - views of a round, and cursors on the ids that an index gives for them.
 * Owns: the way from a key to the ids of a view. Never: moves a cursor on. Inline, since every loop of a run begins here. */
#ifndef KB_CURSOR_H
#define KB_CURSOR_H
#include "machine.h"

static inline uint32_t kb_view_start(const kb_run *run, const kb_step *step)
{
    return step->view == KB_VIEW_DELTA ? run->low[step->mark] : run->from[step->mark];
}

static inline uint32_t kb_view_end(const kb_run *run, const kb_step *step)
{
    return step->view == KB_VIEW_OLD ? run->low[step->mark] : run->high[step->mark];
}

/* Sets the cursor on the ids of the view in the list of an entry. */
static inline void kb_cursor_stand(const kb_run *run, const kb_step *step, kb_cursor *cursor, uint32_t entry)
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
    if (start == 0 && end == relation->rows)   /* all of the list, which need not be read for that */
        return;
    list = kb_index_list(index, entry);
    if (start > list[0])
        cursor->at = kb_lower_bound(list, count, start);
    if (list[count - 1] >= end)
        cursor->end = kb_lower_bound(list, count, end);
}

/* Sets the cursor on the ids of the view that have the key. */
static inline void kb_cursor_seek(const kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_lookup *index = cursor->index;
    kb_sym key[KB_MAX_ARITY];

    if (index->direct) {
        key[0] = run->registers[run->plan->pairs[step->pairs].with];
        kb_cursor_stand(run, step, cursor, key[0] < index->size ? index->slots[key[0]] - 1 : KB_NONE);   /* 0 - 1 is KB_NONE */
    } else {
        kb_cursor_stand(run, step, cursor, kb_index_find(index, run->slots[step->slot], kb_gather(run, step, key)));
    }
}

static inline void kb_cursor_seek_key(const kb_run *run, const kb_step *step, kb_cursor *cursor, const kb_sym *key)
{
    kb_cursor_stand(run, step, cursor, kb_index_seek(cursor->index, run->slots[step->slot], key));
}

#endif
