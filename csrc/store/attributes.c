/* attributes.c - columns of 8-byte cells, one cell per row.
 * Owns: which columns exist, and defaults. Never: interprets a value. */
#include "internal.h"

int64_t kb_attribute_default(uint32_t attribute)
{
    double real = 0.5;
    int64_t bits;

    switch (attribute) {
    case KB_VALID_UNTIL: return INT64_MAX;
    case KB_ACCESSES: return 1;
    case KB_PRIORITY:
        memcpy(&bits, &real, sizeof bits);
        return bits;
    case KB_CONFIDENCE: return INT64_C(0x7FF8000000000000);   /* the quiet NaN */
    default: return 0;
    }
}

int64_t kb_attribute_cell(const kb_relation *relation, uint32_t attribute, uint32_t id)
{
    return relation->columns[attribute] == NULL ? kb_attribute_default(attribute) : relation->columns[attribute][id];
}

static void fill(int64_t *column, uint32_t attribute, uint32_t first, uint32_t end)
{
    int64_t value = kb_attribute_default(attribute);

    for (uint32_t id = first; id < end; id++)
        column[id] = value;
}

/* Cells past the last row always hold the default, so that a new row needs no writing. */
kb_status kb_attributes_grow(kb_relation *relation, uint32_t capacity)
{
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++) {
        int64_t *column;

        if (relation->columns[i] == NULL)
            continue;
        column = kb_resize(relation->heap, relation->columns[i], capacity, sizeof *column);
        if (column == NULL)
            return KB_NOMEM;
        relation->columns[i] = column;
        fill(column, i, relation->capacity, capacity);
    }
    return KB_OK;
}

void kb_attributes_reset(kb_relation *relation, uint32_t first, uint32_t end)
{
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++)
        if (relation->columns[i] != NULL)
            fill(relation->columns[i], i, first, end);
}

static kb_status writable(kb_engine *engine, kb_rel rel, uint32_t attribute, kb_relation **out)
{
    *out = kb_engine_writable(engine, rel);
    return *out == NULL || attribute >= KB_ATTRIBUTES ? KB_MISUSE : KB_OK;
}

static kb_status need_column(kb_relation *relation, uint32_t attribute)
{
    int64_t *column;

    if (relation->columns[attribute] != NULL)
        return KB_OK;
    if ((column = kb_alloc(relation->heap, relation->capacity, sizeof *column)) == NULL)
        return KB_NOMEM;
    fill(column, attribute, 0, relation->capacity);
    relation->columns[attribute] = column;
    return KB_OK;
}

static int all_default(uint32_t attribute, const int64_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] != kb_attribute_default(attribute))
            return 0;
    return 1;
}

kb_status kb_attribute_set(kb_engine *engine, kb_rel rel, uint32_t attribute, const uint32_t *ids, const int64_t *values, size_t count)
{
    kb_relation *relation;

    if (writable(engine, rel, attribute, &relation) < 0 || (count != 0 && (ids == NULL || values == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= relation->rows)
            return KB_MISUSE;
    if (relation->columns[attribute] == NULL && all_default(attribute, values, count))
        return KB_OK;
    if (count != 0 && need_column(relation, attribute) < 0)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        kb_snapshots_save(relation, ids[i], 1);
        relation->columns[attribute][ids[i]] = values[i];
    }
    return KB_OK;
}

kb_status kb_attribute_used(const kb_engine *engine, kb_rel rel, uint32_t attribute, uint32_t *out)
{
    const kb_relation *relation = kb_engine_relation(engine, rel);

    if (relation == NULL || attribute >= KB_ATTRIBUTES || out == NULL)
        return KB_MISUSE;
    *out = relation->columns[attribute] != NULL;
    return KB_OK;
}

kb_status kb_attribute_fill(kb_engine *engine, kb_rel rel, uint32_t attribute, uint32_t first, size_t count, int64_t value)
{
    kb_relation *relation;

    if (writable(engine, rel, attribute, &relation) < 0 || first > relation->rows || count > relation->rows - first)
        return KB_MISUSE;
    if (count != 0 && need_column(relation, attribute) < 0)
        return KB_NOMEM;
    kb_snapshots_save(relation, first, count);
    for (size_t i = 0; i < count; i++)
        relation->columns[attribute][first + i] = value;
    return KB_OK;
}

kb_status kb_attribute_get(const kb_engine *engine, kb_rel rel, uint32_t attribute, const uint32_t *ids, size_t count, int64_t *values)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);
    int64_t value;

    if (status < 0)
        return status;
    if (attribute >= KB_ATTRIBUTES || (count != 0 && (ids == NULL || values == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= relation->rows)
            return KB_MISUSE;
    value = kb_attribute_default(attribute);
    for (size_t i = 0; i < count; i++)
        values[i] = relation->columns[attribute] == NULL ? value : relation->columns[attribute][ids[i]];
    return KB_OK;
}

static void add_access(int64_t *last, int64_t *accesses, int64_t now)
{
    *last = *last < now ? now : *last;
    *accesses += *accesses != INT64_MAX;
}

kb_status kb_record_access(kb_engine *engine, kb_rel rel, const uint32_t *ids, size_t count, int64_t now)
{
    kb_relation *relation;

    if (writable(engine, rel, KB_ACCESSES, &relation) < 0 || (count != 0 && ids == NULL))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= relation->rows)
            return KB_MISUSE;
    if (count != 0 && (need_column(relation, KB_LAST_ACCESS) < 0 || need_column(relation, KB_ACCESSES) < 0))
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        kb_snapshots_save(relation, ids[i], 1);
        add_access(relation->columns[KB_LAST_ACCESS] + ids[i], relation->columns[KB_ACCESSES] + ids[i], now);
    }
    return KB_OK;
}
