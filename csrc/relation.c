/* relation.c - sets of rows.
 * Owns: the cells, the set that finds a row, the state of each row, epochs. Never: interprets a symbol.
 * Rows are appended and keep their id; a deleted row is only marked, and leaves when the dead outnumber
 * the living. The newest rows are therefore always the tail: that is all semi-naive evaluation needs. */
#include "internal.h"

#define COMPACT_AT 16u                /* fewer dead rows than this are not worth moving the others */
#define BITS_AT 2048u                 /* rows from which on it may pay to hold the set as bits */

void kb_relation_init(kb_relation *relation, kb_heap *heap, uint32_t arity)
{
    memset(relation, 0, sizeof *relation);
    relation->heap = heap;
    relation->arity = arity;
}

void kb_relation_clear(kb_relation *relation)
{
    kb_release(relation->heap, relation->cells);
    kb_release(relation->heap, relation->state);
    kb_release(relation->heap, relation->slots);
    kb_bits_free(relation);
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        kb_release(relation->heap, relation->columns[i]);
    kb_index_free_all(relation);
    relation->cells = NULL;
    relation->state = NULL;
    relation->slots = NULL;
    memset(relation->columns, 0, sizeof relation->columns);
    relation->rows = relation->capacity = relation->slot_mask = relation->placed = relation->dead = relation->hidden = 0;
}

static const kb_sym *row_of(const kb_relation *relation, uint32_t id)
{
    return relation->cells + (size_t)id * relation->arity;
}

static void place_at(uint32_t *slots, uint32_t mask, uint32_t at, uint32_t id)
{
    while (slots[at] != 0)
        at = (at + 1) & mask;
    slots[at] = id + 1;
}

static void place(const kb_relation *relation, uint32_t *slots, uint32_t mask, uint32_t id)
{
    place_at(slots, mask, (uint32_t)kb_hash_row(row_of(relation, id), relation->arity) & mask, id);
}

/* A few rows at a time, so that their places are fetched together. */
static void place_all(const kb_relation *relation, uint32_t *slots, uint32_t mask)
{
    uint32_t homes[32];

    for (uint32_t id = 0, end; id < relation->rows; id = end) {
        end = relation->rows - id < 32 ? relation->rows : id + 32;
        for (uint32_t i = id; i < end; i++) {
            homes[i - id] = (uint32_t)kb_hash_row(row_of(relation, i), relation->arity) & mask;
            KB_PREFETCH(slots + homes[i - id]);
        }
        for (uint32_t i = id; i < end; i++)
            if (relation->state == NULL || relation->state[i] != KB_DEAD)
                place_at(slots, mask, homes[i - id], i);
    }
}

/* Takes row `id` out of the set; the table closes the gap, so that no later probe ends too soon. */
static void unplace(kb_relation *relation, uint32_t id)
{
    uint32_t mask = relation->slot_mask;
    uint32_t hole = (uint32_t)kb_hash_row(row_of(relation, id), relation->arity) & mask;

    while (relation->slots[hole] != id + 1)
        hole = (hole + 1) & mask;
    for (uint32_t at = (hole + 1) & mask; relation->slots[at] != 0; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)kb_hash_row(row_of(relation, relation->slots[at] - 1), relation->arity) & mask;

        if (((at - home) & mask) >= ((at - hole) & mask)) {
            relation->slots[hole] = relation->slots[at];
            hole = at;
        }
    }
    relation->slots[hole] = 0;
}

/* Room for one more row in the cells and what lies beside them. */
static kb_status grow_rows(kb_relation *relation)
{
    uint64_t rows = (uint64_t)relation->rows + 1;
    void *block;

    if (rows > KB_MAX_ROWS)
        return KB_NOMEM;
    if (rows > relation->capacity) {
        uint64_t capacity = kb_grown(relation->capacity, rows, 8);

        if (capacity > KB_MAX_ROWS)
            capacity = KB_MAX_ROWS;
        block = kb_resize(relation->heap, relation->cells, (size_t)capacity * relation->arity, sizeof(kb_sym));
        if (block == NULL)
            return KB_NOMEM;
        relation->cells = block;
        if (relation->state != NULL) {
            if ((block = kb_resize(relation->heap, relation->state, (size_t)capacity, 1)) == NULL)
                return KB_NOMEM;
            relation->state = block;
        }
        if (kb_attributes_grow(relation, (uint32_t)capacity) < 0)
            return KB_NOMEM;
        relation->capacity = (uint32_t)capacity;
    }
    return KB_OK;
}

/* A table with room for `rows` rows, holding those there are; it replaces the one there was. */
static kb_status grow_slots(kb_relation *relation, uint64_t rows)
{
    uint64_t size = 16;
    uint32_t *slots;

    while (size / 2 < rows)
        size *= 2;
    if (size > UINT64_C(0x100000000) || (slots = kb_alloc(relation->heap, (size_t)size, sizeof *slots)) == NULL)
        return KB_NOMEM;
    place_all(relation, slots, (uint32_t)(size - 1));
    kb_release(relation->heap, relation->slots);
    relation->slots = slots;
    relation->slot_mask = (uint32_t)(size - 1);
    relation->placed = relation->rows;
    return KB_OK;
}

/* Room for `row` in the set. */
static kb_status grow_set(kb_relation *relation, const kb_sym *row)
{
    uint64_t rows = relation->rows - relation->dead + UINT64_C(1);

    if (kb_is_bits(relation))
        return kb_bits_reserve(relation, row);
    if (relation->slots != NULL && rows <= (relation->slot_mask + UINT64_C(1)) / 2)
        return KB_OK;
    if (rows > BITS_AT && kb_bits_try(relation))
        return kb_bits_reserve(relation, row);
    return grow_slots(relation, rows);
}

kb_status kb_relation_place(kb_relation *relation)
{
    uint64_t rows = relation->rows - relation->dead;

    if (relation->placed == relation->rows)
        return KB_OK;
    if (relation->slots == NULL || rows > (relation->slot_mask + UINT64_C(1)) / 2)
        return grow_slots(relation, rows);
    while (relation->placed < relation->rows)
        place(relation, relation->slots, relation->slot_mask, relation->placed++);
    return KB_OK;
}

/* On KB_NOMEM the row may be half there: the caller takes it back with kb_relation_truncate. */
kb_status kb_relation_append(kb_relation *relation, const kb_sym *row)
{
    uint32_t id = relation->rows;

    if ((id >= relation->capacity && grow_rows(relation) < 0) || grow_set(relation, row) < 0)
        return KB_NOMEM;
    relation->rows++;
    if (relation->arity == 2) {       /* a call to copy 8 bytes would cost more than all the rest */
        relation->cells[(size_t)id * 2] = row[0];
        relation->cells[(size_t)id * 2 + 1] = row[1];
    } else {
        memcpy(relation->cells + (size_t)id * relation->arity, row, relation->arity * sizeof *row);
    }
    if (relation->state != NULL)
        relation->state[id] = KB_LIVE;
    if (kb_is_bits(relation)) {
        kb_bits_add(relation, row);
    } else {
        place(relation, relation->slots, relation->slot_mask, id);
        relation->placed = relation->rows;
    }
    for (kb_lookup *index = relation->indexes; index != NULL; index = index->next)
        if (kb_index_add(index, relation, id) < 0)
            return KB_NOMEM;
    return KB_OK;
}

kb_status kb_relation_add(kb_relation *relation, const kb_sym *row, uint32_t *id, int *fresh)
{
    if (!kb_is_bits(relation)) {
        *id = kb_relation_find(relation, row, kb_hash_row(row, relation->arity));
        *fresh = *id == KB_NO_ROW;
    } else {
        *id = KB_NO_ROW;
        *fresh = !kb_relation_has(relation, row);
    }
    if (!*fresh)
        return KB_OK;
    *id = relation->rows;
    return kb_relation_append(relation, row);
}

void kb_relation_truncate(kb_relation *relation, uint32_t rows)
{
    while (relation->rows > rows) {
        uint32_t id = relation->rows - 1;

        for (kb_lookup *index = relation->indexes; index != NULL; index = index->next)
            kb_index_undo(index, relation, id);
        if (kb_is_bits(relation))
            kb_bits_remove(relation, row_of(relation, id));
        if (id < relation->placed) {
            unplace(relation, id);
            relation->placed = id;
        }
        relation->rows--;
    }
}

/* Moves the living rows together. Cannot fail: indexes are dropped and made anew when next needed. */
void kb_relation_compact(kb_relation *relation)
{
    uint32_t kept = 0, was = relation->rows;

    if (relation->state == NULL)
        return;
    for (uint32_t id = 0; id < was; id++) {
        if (relation->state[id] == KB_DEAD)
            continue;
        if (kept != id) {
            memcpy(relation->cells + (size_t)kept * relation->arity, row_of(relation, id), relation->arity * sizeof(kb_sym));
            relation->state[kept] = relation->state[id];
            for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
                if (relation->columns[i] != NULL)
                    relation->columns[i][kept] = relation->columns[i][id];
        }
        kept++;
    }
    kb_attributes_reset(relation, kept, was);
    relation->rows = relation->placed = kept;
    relation->dead = 0;
    kb_index_free_all(relation);
    memset(relation->slots, 0, ((size_t)relation->slot_mask + 1) * sizeof *relation->slots);
    place_all(relation, relation->slots, relation->slot_mask);
    if (relation->hidden == 0) {
        kb_release(relation->heap, relation->state);
        relation->state = NULL;
    }
    relation->epoch++;
}

/* A relation that may be changed from outside, or why it may not. */
static kb_status writable(const kb_engine *engine, kb_rel rel, kb_relation **out)
{
    *out = kb_engine_relation(engine, rel);
    if (*out == NULL || (*out)->owned)
        return KB_MISUSE;
    return (*out)->pins != 0 ? KB_BUSY : KB_OK;
}

static kb_status need_state(kb_relation *relation)
{
    if (relation->state == NULL)
        relation->state = kb_alloc(relation->heap, relation->capacity, 1);
    return relation->state == NULL ? KB_NOMEM : KB_OK;
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
    kb_relation *relation;
    kb_status status = writable(engine, rel, &relation);

    if (status < 0)
        return status;
    kb_engine_unbind(engine, relation);
    kb_relation_clear(relation);
    kb_release(&engine->heap, relation);
    return KB_OK;
}

static void *copied(kb_heap *heap, const void *block, int *failed)
{
    void *copy;

    if (block == NULL)
        return NULL;
    copy = kb_resize(heap, NULL, kb_capacity(block), 1);
    if (copy == NULL)
        *failed = 1;
    else
        memcpy(copy, block, kb_capacity(block));
    return copy;
}

/* The copy has the same ids, dead rows and all. */
kb_status kb_relation_copy(kb_engine *engine, kb_rel from, kb_rel *out)
{
    const kb_relation *source = kb_engine_relation(engine, from);
    kb_relation *copy;
    kb_rel rel;
    kb_status status;
    int failed = 0;

    if (source == NULL || out == NULL)
        return KB_MISUSE;
    if ((status = kb_relation_new(engine, source->arity, &rel)) < 0)
        return status;
    copy = kb_engine_relation(engine, rel);
    copy->cells = copied(copy->heap, source->cells, &failed);
    copy->state = copied(copy->heap, source->state, &failed);
    if (!kb_is_bits(source))
        copy->slots = copied(copy->heap, source->slots, &failed);
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        copy->columns[i] = copied(copy->heap, source->columns[i], &failed);
    copy->rows = source->rows;
    copy->placed = kb_is_bits(source) ? 0 : source->rows;
    copy->capacity = source->capacity;
    copy->slot_mask = source->slot_mask;
    copy->dead = source->dead;
    copy->hidden = source->hidden;
    if (failed || kb_relation_place(copy) < 0) {
        kb_relation_drop(engine, rel);
        return KB_NOMEM;
    }
    *out = rel;
    return KB_OK;
}

kb_status kb_insert(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, uint32_t *ids, size_t *added)
{
    kb_relation *relation;
    kb_status status = writable(engine, rel, &relation);
    uint32_t before, id;
    int fresh;

    if (status < 0)
        return status;
    if (added == NULL || (count != 0 && rows == NULL && relation->arity != 0))
        return KB_MISUSE;
    for (size_t i = 0; i < count * relation->arity; i++)
        if (rows[i] - 1 >= engine->symbols.count)
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

kb_status kb_delete(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, size_t *removed)
{
    kb_relation *relation;
    kb_status status = writable(engine, rel, &relation);
    size_t gone = 0;

    if (status < 0)
        return status;
    if (removed == NULL || (count != 0 && rows == NULL && relation->arity != 0))
        return KB_MISUSE;
    if (relation->rows != 0 && count != 0 && need_state(relation) < 0)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const kb_sym *row = rows + i * relation->arity;
        uint32_t id = kb_relation_find(relation, row, kb_hash_row(row, relation->arity));

        if (id == KB_NO_ROW)
            continue;
        unplace(relation, id);
        relation->hidden -= relation->state[id] == KB_HIDDEN;
        relation->state[id] = KB_DEAD;
        relation->dead++;
        for (kb_lookup *index = relation->indexes; index != NULL; index = index->next)
            kb_index_died(index, relation, id);
        gone++;
    }
    relation->epoch += gone != 0;
    if (relation->dead > COMPACT_AT && relation->dead > relation->rows - relation->dead)
        kb_relation_compact(relation);
    *removed = gone;
    return KB_OK;
}

kb_status kb_hide(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, int hidden, size_t *changed)
{
    kb_relation *relation;
    kb_status status = writable(engine, rel, &relation);
    size_t moved = 0;

    if (status < 0)
        return status;
    if (changed == NULL || (count != 0 && rows == NULL && relation->arity != 0))
        return KB_MISUSE;
    if (relation->rows != 0 && count != 0 && need_state(relation) < 0)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const kb_sym *row = rows + i * relation->arity;
        uint32_t id = kb_relation_find(relation, row, kb_hash_row(row, relation->arity));

        if (id == KB_NO_ROW || (relation->state[id] == KB_HIDDEN) == (hidden != 0))
            continue;
        relation->state[id] = hidden ? KB_HIDDEN : KB_LIVE;
        relation->hidden += hidden ? 1u : UINT32_MAX;
        moved++;
    }
    relation->epoch += moved != 0;
    *changed = moved;
    return KB_OK;
}

kb_status kb_locate(const kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, uint32_t *ids)
{
    kb_relation *relation = kb_engine_relation(engine, rel);

    if (relation == NULL || (count != 0 && (ids == NULL || (rows == NULL && relation->arity != 0))))
        return KB_MISUSE;
    if (kb_relation_place(relation) < 0)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const kb_sym *row = rows + i * relation->arity;

        ids[i] = kb_relation_find(relation, row, kb_hash_row(row, relation->arity));
    }
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
