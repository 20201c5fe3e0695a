/* relation.c - the public calls on sets of rows.
 * Owns: the state of each row, epochs, the checks of arguments. Never: interprets a symbol. */
#include "internal.h"

#define MIN_COMPACTED_ROWS 16u        /* with fewer deleted rows compaction does not pay */

/* Check the arguments of a call that changes rows, and find its relation. */
static kb_status begin_change(const kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, const size_t *changed,
                              kb_relation **out)
{
    *out = kb_engine_writable(engine, rel);
    if (*out == NULL)
        return KB_MISUSE;
    if ((*out)->pins != 0)
        return KB_BUSY;
    return changed == NULL || (count != 0 && rows == NULL && (*out)->arity != 0) ? KB_MISUSE : KB_OK;
}

static kb_status need_state(kb_relation *relation, size_t count)
{
    if (relation->state == NULL && relation->rows != 0 && count != 0
        && (relation->state = kb_alloc(relation->heap, relation->capacity, 1)) == NULL)
        return KB_NOMEM;
    return KB_OK;
}

kb_status kb_relation_new(kb_engine *engine, uint32_t arity, kb_rel *out)
{
    kb_relation *relation;

    if (engine == NULL || out == NULL || arity > KB_MAX_ARITY)
        return KB_MISUSE;
    if ((relation = kb_alloc(&engine->heap, 1, sizeof *relation)) == NULL)
        return KB_NOMEM;
    kb_relation_init(relation, &engine->heap, arity);
    if (kb_engine_bind(engine, relation) < 0) {
        kb_release(&engine->heap, relation);
        return KB_NOMEM;
    }
    relation->serial = ++engine->serial;
    *out = relation->handle;
    return KB_OK;
}

kb_status kb_relation_drop(kb_engine *engine, kb_rel rel)
{
    kb_relation *relation = kb_engine_relation(engine, rel);

    if (relation == NULL || relation->owned)
        return KB_MISUSE;
    if (relation->pins != 0)
        return KB_BUSY;
    kb_engine_unbind(engine, relation);
    kb_relation_clear(relation);
    kb_release(&engine->heap, relation);
    return KB_OK;
}

kb_status kb_insert(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, uint32_t *ids, size_t *added)
{
    kb_relation *relation;
    kb_status status = begin_change(engine, rel, rows, count, added, &relation);
    uint32_t before, id;
    int fresh;

    if (status < 0)
        return status;
    if (!kb_symbols_exist(engine, rows, count * relation->arity))
        return KB_MISUSE;
    before = relation->rows;
    for (size_t i = 0; i < count; i++) {
        const kb_sym *row = rows + i * relation->arity;

        if (kb_relation_add(relation, row, &id, &fresh) < 0) {
            kb_relation_truncate(relation, before);
            return KB_NOMEM;
        }
        if (ids != NULL)
            ids[i] = id;
    }
    *added = relation->rows - before;
    return KB_OK;
}

/* Record a row that was deleted, hidden or shown. Without memory for that, record that some row
 * was. */
static void record_change(kb_relation *relation, const kb_sym *row)
{
    if (relation->changes == NULL
        && (relation->changes = kb_alloc(relation->heap, KB_CHANGES * (size_t)relation->arity, sizeof *row)) == NULL) {
        relation->moved++;
        return;
    }
    memcpy(relation->changes + (relation->changed++ % KB_CHANGES) * relation->arity, row, relation->arity * sizeof *row);
}

kb_status kb_delete(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, size_t *removed)
{
    kb_relation *relation;
    kb_status status = begin_change(engine, rel, rows, count, removed, &relation);
    size_t deleted = 0;

    if (status < 0)
        return status;
    if (need_state(relation, count) < 0)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const kb_sym *row = rows + i * relation->arity;
        uint32_t id = kb_relation_find(relation, row, kb_hash_row(row, relation->arity));

        if (id == KB_NO_ROW)
            continue;
        kb_snapshots_save(relation, id, 1);
        kb_relation_unplace(relation, id);
        relation->hidden -= relation->state[id] == KB_HIDDEN;
        relation->state[id] = KB_DEAD;
        relation->dead++;
        record_change(relation, row);
        for (kb_lookup *index = relation->indexes; index != NULL; index = index->next)
            kb_index_died(index, relation, id);
        deleted++;
    }
    relation->epoch += deleted != 0;
    if (relation->dead > MIN_COMPACTED_ROWS && relation->dead > relation->rows - relation->dead)
        kb_relation_compact(relation);
    *removed = deleted;
    return KB_OK;
}

kb_status kb_hide(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, int hidden, size_t *changed)
{
    kb_relation *relation;
    kb_status status = begin_change(engine, rel, rows, count, changed, &relation);
    size_t moved = 0;

    if (status < 0)
        return status;
    if (need_state(relation, count) < 0)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const kb_sym *row = rows + i * relation->arity;
        uint32_t id = kb_relation_find(relation, row, kb_hash_row(row, relation->arity));

        if (id == KB_NO_ROW || (relation->state[id] == KB_HIDDEN) == (hidden != 0))
            continue;
        kb_snapshots_save(relation, id, 1);
        relation->state[id] = hidden ? KB_HIDDEN : KB_LIVE;
        relation->hidden += hidden ? 1u : UINT32_MAX;
        record_change(relation, row);
        moved++;
    }
    relation->epoch += moved != 0;
    *changed = moved;
    return KB_OK;
}

kb_status kb_locate(const kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, uint32_t *ids)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);

    if (status < 0)
        return status;
    if ((count != 0 && (ids == NULL || (rows == NULL && relation->arity != 0))))
        return KB_MISUSE;
    if (kb_relation_place(relation) < 0)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const kb_sym *row = rows + i * relation->arity;

        ids[i] = kb_relation_locate(relation, row);
    }
    return KB_OK;
}

kb_status kb_missing(const kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, kb_sym *missing,
                     size_t *missing_count)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);
    size_t kept = 0;

    if (status < 0)
        return status;
    if (missing_count == NULL || (count != 0 && relation->arity != 0 && (rows == NULL || missing == NULL)))
        return KB_MISUSE;
    if (kb_relation_place(relation) < 0)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const kb_sym *row = rows + i * relation->arity;

        if (kb_relation_locate(relation, row) != KB_NO_ROW)
            continue;
        for (uint32_t column = 0; column < relation->arity; column++)
            missing[kept * relation->arity + column] = row[column];
        kept++;
    }
    *missing_count = kept;
    return KB_OK;
}

kb_status kb_count(const kb_engine *engine, kb_rel rel, uint64_t *rows, uint64_t *live, uint64_t *visible, uint64_t *epoch)
{
    const kb_relation *relation = kb_engine_relation(engine, rel);

    if (relation == NULL || rows == NULL || live == NULL || visible == NULL || epoch == NULL)
        return KB_MISUSE;
    *rows = relation->rows;
    *live = relation->rows - relation->dead;
    *visible = *live - relation->hidden;
    *epoch = relation->epoch;
    return KB_OK;
}
