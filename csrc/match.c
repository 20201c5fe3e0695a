/* match.c - the rows of one relation that fit a pattern.
 * Owns: the choice between the set, an index and a walk over the rows. Never: joins; that is a plan. */
#include "internal.h"

#define TINY 32u                      /* rows that are quicker walked over than looked up */
#define MAX_INDEXES 12u               /* patterns come from outside: they may not grow indexes without end */
#define SHORT_LIST 128u               /* a list through an index on fewer columns that is short enough to filter */

static int fits(const kb_relation *relation, const kb_sym *pattern, uint32_t flags, uint32_t id)
{
    const kb_sym *row = relation->cells + (size_t)id * relation->arity;
    uint8_t state = relation->state == NULL ? KB_LIVE : relation->state[id];

    if (state == KB_DEAD || (state == KB_HIDDEN && !(flags & KB_MATCH_HIDDEN)))
        return 0;
    for (uint32_t i = 0; i < relation->arity; i++) {
        if (pattern[i] == 0)
            continue;
        if (row[i] != (pattern[i] & KB_SAME ? row[pattern[i] & ~KB_SAME] : pattern[i]))
            return 0;
    }
    return 1;
}

static uint32_t list_of(const kb_lookup *index, const kb_relation *relation, const kb_sym *pattern, const uint32_t **list)
{
    kb_sym key[KB_MAX_ARITY];
    uint32_t entry;

    key[0] = pattern[index->columns[0]];
    for (uint32_t i = 1; i < index->width; i++)
        key[i] = pattern[index->columns[i]];
    if ((entry = kb_index_find(index, relation, key)) == KB_NONE)
        return 0;
    *list = kb_index_list(index, entry);
    return index->entries[entry].count;
}

/* The ids that can match, or no index at all (0): then every row has to be looked at. */
static int candidates(kb_relation *relation, uint64_t mask, const kb_sym *pattern, const uint32_t **list, uint32_t *count)
{
    kb_lookup *index = kb_index_have(relation, mask), *best = NULL;
    uint32_t made = 0;

    if (index == NULL) {
        for (kb_lookup *other = relation->indexes; other != NULL; other = other->next, made++)
            if ((other->mask & ~mask) == 0) {
                *count = list_of(other, relation, pattern, list);
                if (*count <= SHORT_LIST)
                    return 1;
                best = other;
            }
        if (made < MAX_INDEXES && kb_index_need(relation, mask, &index) < 0)
            index = NULL;             /* no room for it: slower, but the answer is the same */
        if (index == NULL)
            index = best;
    }
    if (index == NULL)
        return 0;
    *count = list_of(index, relation, pattern, list);
    return 1;
}

kb_status kb_relation_match(const kb_engine *engine, kb_relation *relation, const kb_sym *pattern, uint32_t flags,
                            uint64_t *cursor, kb_sym *rows, uint32_t *ids, size_t room, size_t *filled)
{
    const uint32_t *list = NULL;
    uint32_t count = 0, at, one, listed = 0;
    uint64_t mask = 0;
    size_t found = 0;

    if (relation == NULL || cursor == NULL || filled == NULL || room == 0 || (pattern == NULL && relation->arity != 0))
        return KB_MISUSE;
    for (uint32_t i = 0; i < relation->arity; i++) {
        if (pattern[i] & KB_SAME ? (pattern[i] & ~KB_SAME) >= i : pattern[i] > engine->symbols.count)
            return KB_MISUSE;
        if (pattern[i] != 0 && !(pattern[i] & KB_SAME))
            mask |= UINT64_C(1) << i;
    }
    if (*cursor >= relation->rows) {
        *filled = 0;
        return KB_OK;
    }
    if (relation->arity != 0 && mask == UINT64_MAX >> (KB_MAX_ARITY - relation->arity)
        && kb_relation_place(relation) == KB_OK) {
        one = kb_relation_find(relation, pattern, kb_hash_row(pattern, relation->arity));
        list = &one;
        count = one != KB_NO_ROW;
        listed = 1;
    } else if (mask != 0 && relation->rows > TINY) {
        listed = (uint32_t)candidates(relation, mask, pattern, &list, &count);
    }
    if (!listed)
        count = relation->rows;
    at = listed ? kb_lower_bound(list, count, (uint32_t)*cursor) : (uint32_t)*cursor;
    for (; at < count && found < room; at++) {
        uint32_t id = listed ? list[at] : at;

        if (!fits(relation, pattern, flags, id))
            continue;
        if (rows != NULL)
            memcpy(rows + found * relation->arity, relation->cells + (size_t)id * relation->arity,
                   relation->arity * sizeof *rows);
        if (ids != NULL)
            ids[found] = id;
        found++;
        *cursor = (uint64_t)id + 1;
    }
    if (found < room)
        *cursor = relation->rows;
    *filled = found;
    return KB_OK;
}

kb_status kb_match(kb_engine *engine, kb_rel rel, const kb_sym *pattern, uint32_t flags, uint64_t *cursor,
                   kb_sym *rows, uint32_t *ids, size_t room, size_t *filled)
{
    return kb_relation_match(engine, kb_engine_readable(engine, rel), pattern, flags, cursor, rows, ids, room, filled);
}

kb_status kb_rows_at(const kb_engine *engine, kb_rel rel, const uint32_t *ids, size_t count, kb_sym *rows)
{
    const kb_relation *relation = kb_engine_readable(engine, rel);

    if (relation == NULL || (count != 0 && (ids == NULL || rows == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= relation->rows || (relation->state != NULL && relation->state[ids[i]] == KB_DEAD))
            return KB_MISUSE;
    for (size_t i = 0; relation->arity != 0 && i < count; i++)
        memcpy(rows + i * relation->arity, relation->cells + (size_t)ids[i] * relation->arity, relation->arity * sizeof *rows);
    return KB_OK;
}
