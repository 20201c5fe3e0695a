/* match.c - the rows of one relation that match a pattern.
 * Owns: the choice between the set, an index and a scan. Never: joins; that is a plan. */
#include "internal.h"

#define MAX_SCANNED_ROWS 32u          /* rows that are faster to scan than to look up */
#define MAX_INDEXES 12u               /* patterns come from users: they must not create indexes
                                       * without limit */
#define SHORT_LIST 128u               /* ids from an index on fewer columns that are few enough to
                                       * filter */

static int matches(const kb_relation *relation, const kb_sym *pattern, uint32_t flags, uint32_t id)
{
    const kb_sym *row = kb_row(relation, id);
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

/* Return 1 if every row of a relation matches. */
static int is_free(const kb_relation *relation, const kb_sym *pattern)
{
    for (uint32_t i = 0; i < relation->arity; i++)
        if (pattern[i] != 0)
            return 0;
    return relation->state == NULL && relation->arity != 0;
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

/* Find the ids that can match. Return 0 if there is no index: then every row has to be checked. */
static int find_candidates(kb_relation *relation, uint64_t mask, const kb_sym *pattern, const uint32_t **list, uint32_t *count)
{
    kb_lookup *index = kb_index_have(relation, mask), *best = NULL;
    uint32_t index_count = 0;

    if (index == NULL) {
        for (kb_lookup *other = relation->indexes; other != NULL; other = other->next, index_count++)
            if ((other->mask & ~mask) == 0) {
                *count = list_of(other, relation, pattern, list);
                if (*count <= SHORT_LIST)
                    return 1;
                best = other;
            }
        if (index_count < MAX_INDEXES && kb_index_need(relation, mask, &index) < 0)
            index = NULL;             /* out of memory: slower, with the same answer */
        if (index == NULL)
            index = best;
    }
    if (index == NULL)
        return 0;
    *count = list_of(index, relation, pattern, list);
    return 1;
}

/* Choose the rows to check: `list` with `count` ids, where `id` has space for a single one. Return
 * 0 if every row has to be checked. */
static int choose_rows(kb_relation *relation, uint64_t mask, const kb_sym *pattern, uint32_t *id, const uint32_t **list,
                       uint32_t *count)
{
    if (relation->arity != 0 && mask == UINT64_MAX >> (KB_MAX_ARITY - relation->arity)
        && kb_relation_place(relation) == KB_OK) {
        *id = kb_relation_locate(relation, pattern);
        *list = id;
        *count = *id != KB_NO_ROW;
        return 1;
    }
    return mask != 0 && relation->rows > MAX_SCANNED_ROWS && find_candidates(relation, mask, pattern, list, count);
}

/* Set `mask` to the columns that a pattern binds to symbols. Return 0 if it is no pattern. */
static int read_mask(const kb_engine *engine, const kb_relation *relation, const kb_sym *pattern, uint64_t *mask)
{
    *mask = 0;
    for (uint32_t i = 0; i < relation->arity; i++) {
        if (pattern[i] & KB_SAME ? (pattern[i] & ~KB_SAME) >= i : pattern[i] > engine->symbols.count)
            return 0;
        if (pattern[i] != 0 && !(pattern[i] & KB_SAME))
            *mask |= UINT64_C(1) << i;
    }
    return 1;
}

kb_status kb_relation_match(const kb_engine *engine, kb_relation *relation, const kb_sym *pattern, uint32_t flags,
                            uint64_t *cursor, kb_sym *rows, uint32_t *ids, size_t room, size_t *filled)
{
    const uint32_t *list = NULL;
    uint32_t count = 0, at, id_of_row;
    int has_list;
    uint64_t mask;
    size_t match_count = 0;

    if (relation == NULL || cursor == NULL || filled == NULL || room == 0 || (pattern == NULL && relation->arity != 0))
        return KB_MISUSE;
    if (!read_mask(engine, relation, pattern, &mask))
        return KB_MISUSE;
    if (kb_relation_write(relation) < 0)
        return KB_NOMEM;
    if (*cursor >= relation->rows) {
        *filled = 0;
        return KB_OK;
    }
    if (mask == 0 && ids == NULL && rows != NULL && is_free(relation, pattern)) {
        match_count = relation->rows - *cursor < room ? (size_t)(relation->rows - *cursor) : room;
        memcpy(rows, kb_row(relation, (uint32_t)*cursor), match_count * relation->arity * sizeof *rows);
        *cursor += match_count;
        *filled = match_count;
        return KB_OK;
    }
    if (!(has_list = choose_rows(relation, mask, pattern, &id_of_row, &list, &count)))
        count = relation->rows;
    at = has_list ? kb_lower_bound(list, count, (uint32_t)*cursor) : (uint32_t)*cursor;
    for (; at < count && match_count < room; at++) {
        uint32_t id = has_list ? list[at] : at;

        if (!matches(relation, pattern, flags, id))
            continue;
        if (rows != NULL)
            memcpy(rows + match_count * relation->arity, kb_row(relation, id),
                   relation->arity * sizeof *rows);
        if (ids != NULL)
            ids[match_count] = id;
        match_count++;
        *cursor = (uint64_t)id + 1;
    }
    if (match_count < room)
        *cursor = relation->rows;
    *filled = match_count;
    return KB_OK;
}

kb_status kb_match(kb_engine *engine, kb_rel rel, const kb_sym *pattern, uint32_t flags, uint64_t *cursor,
                   kb_sym *rows, uint32_t *ids, size_t room, size_t *filled)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);

    return status < 0 ? status : kb_relation_match(engine, relation, pattern, flags, cursor, rows, ids, room, filled);
}

kb_status kb_match_many(kb_engine *engine, kb_rel rel, const kb_sym *patterns, size_t count, uint32_t flags,
                        uint64_t *cursor, uint32_t *ids, uint32_t *numbers, size_t room, size_t *filled)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);
    size_t match_count = 0;

    if (status < 0)
        return status;
    if (relation == NULL || cursor == NULL || ids == NULL || numbers == NULL || room == 0 || filled == NULL
        || (patterns == NULL && count != 0 && relation->arity != 0))
        return KB_MISUSE;
    while (cursor[0] < count && match_count < room) {
        const kb_sym *pattern = relation->arity == 0 ? patterns : patterns + cursor[0] * relation->arity;
        size_t added, left = room - match_count;

        status = kb_relation_match(engine, relation, pattern, flags, cursor + 1, NULL, ids + match_count, left, &added);
        if (status < 0)
            return status;
        for (size_t i = 0; i < added; i++)
            numbers[match_count++] = (uint32_t)cursor[0];
        if (added < left) {
            cursor[0]++;
            cursor[1] = 0;
        }
    }
    *filled = match_count;
    return KB_OK;
}

kb_status kb_rows_at(const kb_engine *engine, kb_rel rel, const uint32_t *ids, size_t count, kb_sym *rows)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);

    if (status < 0)
        return status;
    if ((count != 0 && (ids == NULL || rows == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= relation->rows || (relation->state != NULL && relation->state[ids[i]] == KB_DEAD))
            return KB_MISUSE;
    for (size_t i = 0; relation->arity != 0 && i < count; i++)
        memcpy(rows + i * relation->arity, kb_row(relation, ids[i]), relation->arity * sizeof *rows);
    return KB_OK;
}
