/* rows.c - the storage of a relation.
 * Owns: the cells, the hash table of row ids, removing the newest rows, compaction. Never:
 * interprets a symbol; checks arguments, which is relation.c.
 * Rows are appended and keep their id. A deleted row is only marked; compaction removes deleted
 * rows when they outnumber the live ones. So the newest rows are always the last ones, which is all
 * that semi-naive evaluation needs. */
#include "internal.h"

#define MIN_BITMAP_ROWS 2048u         /* rows from which a bitmap as the set may pay */

void kb_relation_init(kb_relation *relation, kb_heap *heap, uint32_t arity)
{
    memset(relation, 0, sizeof *relation);
    relation->heap = heap;
    relation->arity = relation->key = arity;
}

void kb_relation_clear(kb_relation *relation)
{
    kb_snapshots_end(relation);
    kb_release(relation->heap, relation->cells);
    kb_release(relation->heap, relation->state);
    kb_release(relation->heap, relation->slots);
    kb_release(relation->heap, relation->changes);
    kb_release(relation->heap, relation->groups);
    kb_release(relation->heap, relation->members);
    kb_bits_free(relation);
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        kb_release(relation->heap, relation->columns[i]);
    kb_index_free_all(relation);
    relation->cells = NULL;
    relation->state = NULL;
    relation->slots = NULL;
    relation->changes = NULL;
    relation->groups = NULL;
    relation->members = NULL;
    relation->member_capacity = 0;
    relation->group_mask = relation->group_count = relation->unindexed = 0;
    memset(relation->columns, 0, sizeof relation->columns);
    relation->rows = relation->capacity = relation->slot_mask = relation->placed = relation->dead = relation->hidden = 0;
    relation->unwritten = 0;
}

static void place_at(uint32_t *slots, uint32_t mask, uint32_t at, uint32_t id)
{
    while (slots[at] != 0)
        at = (at + 1) & mask;
    slots[at] = id + 1;
}

static void place(const kb_relation *relation, uint32_t *slots, uint32_t mask, uint32_t id)
{
    place_at(slots, mask, (uint32_t)kb_hash_row(kb_row(relation, id), relation->key) & mask, id);
}

/* Insert all live rows into a hash table, a few at a time so that their slots are prefetched
 * together. */
static void place_all(const kb_relation *relation, uint32_t *slots, uint32_t mask)
{
    uint32_t homes[32];

    for (uint32_t id = 0, end; id < relation->rows; id = end) {
        end = relation->rows - id < 32 ? relation->rows : id + 32;
        for (uint32_t i = id; i < end; i++) {
            homes[i - id] = (uint32_t)kb_hash_row(kb_row(relation, i), relation->key) & mask;
            KB_PREFETCH(slots + homes[i - id]);
        }
        for (uint32_t i = id; i < end; i++)
            if (relation->state == NULL || relation->state[i] != KB_DEAD)
                place_at(slots, mask, homes[i - id], i);
    }
}

/* Remove row `id`, which is placed, from the hash table. Later entries of the cluster move back
 * into the gap, so that no probe sequence ends too soon. */
void kb_relation_unplace(kb_relation *relation, uint32_t id)
{
    uint32_t mask = relation->slot_mask;
    uint32_t hole = (uint32_t)kb_hash_row(kb_row(relation, id), relation->key) & mask;

    while (relation->slots[hole] != id + 1)
        hole = (hole + 1) & mask;
    for (uint32_t at = (hole + 1) & mask; relation->slots[at] != 0; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)kb_hash_row(kb_row(relation, relation->slots[at] - 1), relation->key) & mask;

        if (((at - home) & mask) >= ((at - hole) & mask)) {
            relation->slots[hole] = relation->slots[at];
            hole = at;
        }
    }
    relation->slots[hole] = 0;
}

kb_status kb_relation_reserve(kb_relation *relation, uint32_t more)
{
    uint64_t rows = (uint64_t)relation->rows + more;
    void *block;

    if (rows > KB_MAX_ROWS)
        return KB_NOMEM;
    if (rows > relation->capacity) {
        uint64_t capacity = kb_grow_capacity(relation->capacity, rows, 8);

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

/* Replace the hash table by one for `rows` rows, and fill it. */
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

/* Reserve space for `row` in the set. */
static kb_status grow_set(kb_relation *relation, const kb_sym *row)
{
    uint64_t rows = relation->rows - relation->dead + UINT64_C(1);

    if (kb_is_bits(relation))
        return kb_bits_reserve(relation, row);
    if (relation->slots != NULL && rows <= (relation->slot_mask + UINT64_C(1)) / 2)
        return KB_OK;
    if (rows > MIN_BITMAP_ROWS && kb_bits_try(relation))
        return kb_bits_reserve(relation, row);
    return grow_slots(relation, rows);
}

/* The bits of the rows that the cells have are removed from the matrix while the others are
 * written, so that no memory but that of the cells is needed. */
kb_status kb_relation_write(kb_relation *relation)
{
    kb_matrix *matrix = &relation->matrix;
    uint32_t written = relation->rows - relation->unwritten, id = written;
    void *block;

    if (relation->unwritten == 0)
        return KB_OK;
    if ((block = kb_resize(relation->heap, relation->cells, (size_t)relation->rows * 2, sizeof(kb_sym))) == NULL)
        return KB_NOMEM;
    relation->cells = block;
    relation->capacity = relation->rows;
    relation->unwritten = 0;
    for (uint32_t i = 0; i < written; i++)
        kb_bits_remove(relation, kb_row(relation, i));
    for (uint32_t i = 0; i < matrix->height; i++)
        for (uint32_t j = 0; j < matrix->width; j++)
            for (uint64_t left = matrix->words[(size_t)i * matrix->width + j]; left != 0; left &= left - 1) {
                kb_sym *row = kb_row(relation, id++);

                row[0] = matrix->top + i;
                row[1] = (matrix->left + j) * 64 + KB_LOWEST_BIT(left);
            }
    for (uint32_t i = 0; i < written; i++)
        kb_bits_add(relation, kb_row(relation, i));
    return KB_OK;
}

kb_status kb_relation_place(kb_relation *relation)
{
    uint64_t rows = relation->rows - relation->dead;

    if (kb_relation_write(relation) < 0)
        return KB_NOMEM;
    if (relation->placed == relation->rows)
        return KB_OK;
    if (relation->slots == NULL || rows > (relation->slot_mask + UINT64_C(1)) / 2)
        return grow_slots(relation, rows);
    for (; relation->placed < relation->rows; relation->placed++)
        if (relation->state == NULL || relation->state[relation->placed] != KB_DEAD)
            place(relation, relation->slots, relation->slot_mask, relation->placed);
    return KB_OK;
}

kb_status kb_relation_ready(kb_relation *relation)
{
    if (kb_relation_write(relation) < 0)
        return KB_NOMEM;
    if (kb_is_bits(relation) || relation->placed == relation->rows)
        return KB_OK;
    return relation->rows > MIN_BITMAP_ROWS && kb_bits_try(relation) ? KB_OK : kb_relation_place(relation);
}

/* A radix sort from the low digits, 8 bits at a time. */
uint64_t *kb_relation_sorted(const kb_relation *relation, kb_heap *heap, uint32_t column, uint32_t start, uint32_t end)
{
    uint32_t count = end - start, top = 0;
    uint64_t *items = kb_alloc(heap, count, sizeof *items);
    uint64_t *other = kb_alloc(heap, count, sizeof *items), *swap;

    for (uint32_t i = 0; i < count && items != NULL && other != NULL; i++) {
        items[i] = (uint64_t)kb_row(relation, start + i)[column] << 32 | (start + i);
        top |= kb_row(relation, start + i)[column];
    }
    for (uint32_t shift = 32; items != NULL && other != NULL && shift < 64 && top >> (shift - 32) != 0; shift += 8) {
        uint32_t starts[257] = { 0 };

        for (uint32_t i = 0; i < count; i++)
            starts[(items[i] >> shift & 255) + 1]++;
        for (uint32_t i = 0; i < 256; i++)
            starts[i + 1] += starts[i];
        for (uint32_t i = 0; i < count; i++)
            other[starts[items[i] >> shift & 255]++] = items[i];
        swap = items;
        items = other;
        other = swap;
    }
    if (items == NULL || other == NULL) {
        kb_release(heap, items);
        items = NULL;
    }
    kb_release(heap, other);
    return items;
}

/* On KB_NOMEM the row may be half inserted: the caller removes it with kb_relation_truncate. */
kb_status kb_relation_append(kb_relation *relation, const kb_sym *row)
{
    uint32_t id = relation->rows;

    if ((id >= relation->capacity && kb_relation_reserve(relation, 1) < 0) || grow_set(relation, row) < 0)
        return KB_NOMEM;
    relation->rows++;
    if (relation->arity == 2) {       /* a call of memcpy for 8 bytes would cost more than
                                       * everything else */
        relation->cells[(size_t)id * 2] = row[0];
        relation->cells[(size_t)id * 2 + 1] = row[1];
    } else {
        memcpy(kb_row(relation, id), row, relation->arity * sizeof *row);
    }
    if (relation->state != NULL)
        relation->state[id] = KB_LIVE;
    if (kb_is_bits(relation)) {
        kb_bits_add(relation, row);
    } else {
        place(relation, relation->slots, relation->slot_mask, id);
        relation->placed = relation->rows;
    }
    return kb_indexes_extend(relation, id);
}

kb_status kb_relation_add(kb_relation *relation, const kb_sym *row, uint32_t *id, int *fresh)
{
    if (!kb_is_bits(relation)) {
        *id = kb_relation_find(relation, row, kb_hash_row(row, relation->key));
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
            kb_bits_remove(relation, kb_row(relation, id));
        if (id < relation->placed) {
            kb_relation_unplace(relation, id);
            relation->placed = id;
        }
        relation->rows--;
    }
}

/* Move the live rows together. Cannot fail: indexes are dropped and rebuilt when they are next
 * needed. */
void kb_relation_compact(kb_relation *relation)
{
    uint32_t live = 0, old_rows = relation->rows;

    if (relation->state == NULL)
        return;
    kb_snapshots_save(relation, 0, old_rows);
    for (uint32_t id = 0; id < old_rows; id++) {
        if (relation->state[id] == KB_DEAD)
            continue;
        if (live != id) {
            memcpy(kb_row(relation, live), kb_row(relation, id), relation->arity * sizeof(kb_sym));
            relation->state[live] = relation->state[id];
            for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
                if (relation->columns[i] != NULL)
                    relation->columns[i][live] = relation->columns[i][id];
        }
        live++;
    }
    kb_attributes_reset(relation, live, old_rows);
    relation->rows = relation->placed = live;
    relation->dead = 0;
    kb_index_free_all(relation);
    memset(relation->slots, 0, ((size_t)relation->slot_mask + 1) * sizeof *relation->slots);
    place_all(relation, relation->slots, relation->slot_mask);
    if (relation->hidden == 0) {
        kb_release(relation->heap, relation->state);
        relation->state = NULL;
    }
    relation->epoch++;
    relation->moved++;
}
