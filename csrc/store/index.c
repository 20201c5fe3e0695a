/* index.c - from the values of some columns to the rows that have them.
 * Owns: the table of keys and the lists of row ids. Each list is ascending, so that a view (rows
 * from id to id) is a slice of it. Never: checks if a row is hidden; changes a relation.
 * A list of one id is stored in its entry, longer ones in blocks of the pool that double in size. A
 * list drops its deleted ids when they are the majority, but keeps one, from which the key can be
 * read. */
#include "internal.h"

static void key_of(const kb_lookup *index, const kb_relation *relation, uint32_t id, kb_sym *key)
{
    const kb_sym *row = kb_row(relation, id);

    key[0] = row[index->columns[0]];  /* an index has at least one column */
    for (uint32_t i = 1; i < index->width; i++)
        key[i] = row[index->columns[i]];
}

static uint32_t hash_of(const kb_entry *entry, uint32_t width)
{
    return width == 1 ? (uint32_t)kb_mix(entry->key) : entry->key;
}

uint32_t kb_index_find(const kb_lookup *index, const kb_relation *relation, const kb_sym *key)
{
    uint32_t hash, stored_key, slot;

    if (index->direct)
        return key[0] < index->size ? index->slots[key[0]] - 1 : KB_NONE;   /* 0 - 1 is KB_NONE */
    if (index->slots == NULL)
        return KB_NONE;
    hash = (uint32_t)kb_hash_row(key, index->width);
    stored_key = index->width == 1 ? key[0] : hash;
    for (uint32_t at = hash & (index->size - 1); (slot = index->slots[at]) != 0; at = (at + 1) & (index->size - 1)) {
        const kb_sym *row;
        uint32_t i = 1;

        if (index->entries[slot - 1].key != stored_key)
            continue;
        if (index->width == 1)
            return slot - 1;
        row = relation->cells + (size_t)kb_index_list(index, slot - 1)[0] * relation->arity;
        for (i = 0; i < index->width && row[index->columns[i]] == key[i]; i++)
            ;
        if (i == index->width)
            return slot - 1;
    }
    return KB_NONE;
}

/* Build a larger table: by symbol where symbols are dense enough, otherwise by hash. */
static kb_status grow_table(kb_lookup *index, const kb_relation *relation)
{
    uint32_t size = 8, direct;
    uint32_t *slots;

    while (size / 2 <= index->entry_count)
        size = size < 0x80000000u ? size * 2 : 0;
    if (size == 0)
        return KB_NOMEM;
    direct = index->width == 1 && size >= 256 && index->max_key / 2 < size;
    if (direct)
        size = index->max_key + index->max_key / 4 + 1;
    if ((slots = kb_alloc(relation->heap, size, sizeof *slots)) == NULL)
        return KB_NOMEM;
    for (uint32_t i = 0; i < index->entry_count; i++) {
        uint32_t at = direct ? index->entries[i].key : hash_of(index->entries + i, index->width) & (size - 1);

        while (!direct && slots[at] != 0)
            at = (at + 1) & (size - 1);
        slots[at] = i + 1;
    }
    kb_release(relation->heap, index->slots);
    index->slots = slots;
    index->size = size;
    index->direct = direct;
    return KB_OK;
}

static kb_status new_entry(kb_lookup *index, const kb_relation *relation, const kb_sym *key, uint32_t id)
{
    uint32_t hash = (uint32_t)kb_hash_row(key, index->width);
    uint32_t max_key = index->max_key;
    size_t have = index->entries == NULL ? 0 : kb_capacity(index->entries) / sizeof *index->entries;
    kb_entry *entry;
    uint32_t at;

    if (index->entry_count >= have) {
        void *block = kb_resize(relation->heap, index->entries, kb_grow_capacity(have, index->entry_count + 1u, 4), sizeof *entry);

        if (block == NULL)
            return KB_NOMEM;
        index->entries = block;
    }
    if (key[0] > index->max_key)
        index->max_key = key[0];
    if (index->direct ? key[0] >= index->size : index->size / 2 <= index->entry_count)
        if (grow_table(index, relation) < 0) {
            index->max_key = max_key;
            return KB_NOMEM;
        }
    at = index->direct ? key[0] : hash & (index->size - 1);
    while (!index->direct && index->slots[at] != 0)
        at = (at + 1) & (index->size - 1);
    entry = index->entries + index->entry_count++;
    index->slots[at] = index->entry_count;
    entry->key = index->width == 1 ? key[0] : hash;
    entry->at = id;
    entry->count = 1;
    entry->dead = 0;
    return KB_OK;
}

static uint32_t block_class(uint32_t count)
{
    uint32_t class = 0;

    while ((UINT64_C(1) << class) < count)
        class++;
    return class;
}

static void free_block(kb_lookup *index, uint32_t at, uint32_t class)
{
    index->pool[at] = index->free_blocks[class];
    index->free_blocks[class] = at + 1;
}

static kb_status take_block(kb_lookup *index, const kb_relation *relation, uint32_t class, uint32_t *at)
{
    uint64_t need = (uint64_t)index->pool_used + (UINT64_C(1) << class);
    size_t have = index->pool == NULL ? 0 : kb_capacity(index->pool) / sizeof *index->pool;

    if (class < 32 && index->free_blocks[class] != 0) {
        *at = index->free_blocks[class] - 1;
        index->free_blocks[class] = index->pool[*at];
        return KB_OK;
    }
    if (class >= 32 || need > UINT32_MAX - 1)
        return KB_NOMEM;
    if (need > have) {
        void *block = kb_resize(relation->heap, index->pool, kb_grow_capacity(have, need, 8), sizeof *index->pool);

        if (block == NULL)
            return KB_NOMEM;
        index->pool = block;
    }
    *at = index->pool_used;
    index->pool_used = (uint32_t)need;
    return KB_OK;
}

/* Shrink the list of `entry` to its first `count` ids (at least one) and free the rest of its
 * block. */
static void shrink_list(kb_lookup *index, kb_entry *entry, uint32_t count)
{
    uint32_t class = block_class(entry->count), at = entry->at;

    if (entry->count > 1) {
        while (class > block_class(count) && class > 1) {
            class--;
            free_block(index, at + (1u << class), class);
        }
        if (count == 1) {
            entry->at = index->pool[at];
            free_block(index, at, 1);
        }
    }
    entry->count = count;
}

kb_status kb_index_add(kb_lookup *index, const kb_relation *relation, uint32_t id)
{
    kb_sym key[KB_MAX_ARITY];
    kb_entry *entry;
    uint32_t place, at;

    key_of(index, relation, id, key);
    place = kb_index_find(index, relation, key);
    if (place == KB_NONE)
        return new_entry(index, relation, key, id);
    entry = index->entries + place;
    if ((entry->count & (entry->count - 1)) == 0) {   /* the block is full */
        uint32_t class = block_class(entry->count);

        if (take_block(index, relation, class + 1, &at) < 0)
            return KB_NOMEM;
        memcpy(index->pool + at, kb_index_list(index, place), (size_t)entry->count * sizeof *index->pool);
        if (entry->count > 1)
            free_block(index, entry->at, class);
        entry->at = at;
    }
    index->pool[entry->at + entry->count++] = id;
    return KB_OK;
}

kb_status kb_indexes_extend(kb_relation *relation, uint32_t first)
{
    for (kb_lookup *index = relation->indexes; index != NULL; index = index->next)
        for (uint32_t id = first; id < relation->rows; id++)
            if (kb_index_add(index, relation, id) < 0)
                return KB_NOMEM;
    return KB_OK;
}

/* Rows are rolled back newest first, so an entry whose only row is removed is the newest entry. */
void kb_index_undo(kb_lookup *index, const kb_relation *relation, uint32_t id)
{
    kb_sym key[KB_MAX_ARITY];
    kb_entry *entry;
    uint32_t place, hole, mask = index->size - 1;

    key_of(index, relation, id, key);
    place = kb_index_find(index, relation, key);
    if (place == KB_NONE)
        return;
    entry = index->entries + place;
    if (kb_index_list(index, place)[entry->count - 1] != id)
        return;
    if (entry->count > 1) {
        shrink_list(index, entry, entry->count - 1);
        return;
    }
    index->entry_count--;
    if (index->direct) {
        index->slots[key[0]] = 0;
        return;
    }
    hole = hash_of(entry, index->width) & mask;
    while (index->slots[hole] != place + 1)
        hole = (hole + 1) & mask;
    for (uint32_t at = (hole + 1) & mask; index->slots[at] != 0; at = (at + 1) & mask) {
        uint32_t home = hash_of(index->entries + index->slots[at] - 1, index->width) & mask;

        if (((at - home) & mask) >= ((at - hole) & mask)) {
            index->slots[hole] = index->slots[at];
            hole = at;
        }
    }
    index->slots[hole] = 0;
}

/* Count row `id`, which is marked deleted, against its list. */
void kb_index_died(kb_lookup *index, const kb_relation *relation, uint32_t id)
{
    kb_sym key[KB_MAX_ARITY];
    kb_entry *entry;
    uint32_t place, live = 0, last;
    uint32_t *list;

    key_of(index, relation, id, key);
    place = kb_index_find(index, relation, key);
    if (place == KB_NONE)
        return;
    entry = index->entries + place;
    entry->dead++;
    if (entry->count == 1 || entry->dead <= entry->count / 2)
        return;
    list = index->pool + entry->at;
    last = list[entry->count - 1];
    for (uint32_t i = 0; i < entry->count; i++)
        if (relation->state[list[i]] != KB_DEAD)
            list[live++] = list[i];
    entry->dead = live == 0;
    if (live == 0)
        list[live++] = last;
    shrink_list(index, entry, live);
}

static void index_free(kb_heap *heap, kb_lookup *index)
{
    kb_release(heap, index->slots);
    kb_release(heap, index->entries);
    kb_release(heap, index->pool);
    kb_release(heap, index);
}

void kb_index_free_all(kb_relation *relation)
{
    kb_lookup *next;

    for (kb_lookup *index = relation->indexes; index != NULL; index = next) {
        next = index->next;
        index_free(relation->heap, index);
    }
    relation->indexes = NULL;
}

kb_lookup *kb_index_have(const kb_relation *relation, uint64_t mask)
{
    for (kb_lookup *index = relation->indexes; index != NULL; index = index->next)
        if (index->mask == mask)
            return index;
    return NULL;
}

kb_status kb_index_need(kb_relation *relation, uint64_t mask, kb_lookup **out)
{
    kb_lookup *index = kb_index_have(relation, mask);

    if (index == NULL) {
        if ((index = kb_alloc(relation->heap, 1, sizeof *index)) == NULL)
            return KB_NOMEM;
        index->mask = mask;
        for (uint32_t i = 0; i < relation->arity; i++)
            if (mask >> i & 1)
                index->columns[index->width++] = (uint8_t)i;
        for (uint32_t id = 0; id < relation->rows; id++)
            if ((relation->state == NULL || relation->state[id] != KB_DEAD)
                && kb_index_add(index, relation, id) < 0) {
                index_free(relation->heap, index);
                return KB_NOMEM;
            }
        index->next = relation->indexes;
        relation->indexes = index;
    }
    *out = index;
    return KB_OK;
}

static int mask_fits(const kb_relation *relation, uint64_t mask)
{
    return mask != 0 && (relation->arity == KB_MAX_ARITY || mask >> relation->arity == 0);
}

kb_status kb_index(kb_engine *engine, kb_rel rel, uint64_t column_mask)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);
    kb_lookup *index;

    if (status < 0)
        return status;
    if (!mask_fits(relation, column_mask))
        return KB_MISUSE;
    return kb_index_need(relation, column_mask, &index);
}

kb_status kb_distinct(const kb_engine *engine, kb_rel rel, uint64_t column_mask, uint64_t *out)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);
    kb_lookup *index;

    if (status < 0)
        return status;
    if (out == NULL || !mask_fits(relation, column_mask))
        return KB_MISUSE;
    index = kb_index_have(relation, column_mask);
    *out = index == NULL ? kb_estimate_distinct(relation, column_mask) : index->entry_count;
    return KB_OK;
}
