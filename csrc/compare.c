/* compare.c - two relations row by row.
 * Owns: what makes two rows differ. Never: changes a row; remembers anything between two calls but the caller's cursor.
 * First the rows of one are looked for in the other, then those of the other in the first. Relations that come from one
 * another have their rows in nearly the same order: each look begins past the last row found, and mostly ends there. */
#include "internal.h"

static const uint32_t COMPARED[] = { KB_VALID_FROM, KB_VALID_UNTIL, KB_TTL, KB_CONFIDENCE };

#define COLUMNS (sizeof COMPARED / sizeof *COMPARED)

typedef struct pair {
    kb_relation *one, *other;
    uint32_t next;                    /* row of `other` at which to look first */
} pair;

static int is_there(const kb_relation *relation, uint32_t id)
{
    return relation->state == NULL || relation->state[id] != KB_DEAD;
}

static const kb_sym *row_of(const kb_relation *relation, uint32_t id)
{
    return relation->cells + (size_t)id * relation->arity;
}

/* Where row `id` of one is in the other. */
static uint32_t partner(pair *rows, uint32_t id)
{
    const kb_relation *other = rows->other;
    const kb_sym *row = row_of(rows->one, id);
    uint32_t found;

    while (rows->next < other->rows && !is_there(other, rows->next))
        rows->next++;
    if (rows->next < other->rows && kb_same_row(row_of(other, rows->next), row, other->arity))
        return rows->next++;
    found = kb_relation_find(other, row, kb_hash_row(row, other->arity));
    if (found != KB_NO_ROW)
        rows->next = found + 1;
    return found;
}

static int64_t cell(const kb_relation *relation, uint32_t attribute, uint32_t id)
{
    return relation->columns[attribute] == NULL ? kb_attribute_default(attribute) : relation->columns[attribute][id];
}

/* As numbers: 0 is -0, and what is unknown is the same as what is unknown. */
static int same_real(int64_t a, int64_t b)
{
    double x, y;

    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y || (x != x && y != y);
}

static int same_cells(const kb_relation *here, uint32_t h, const kb_relation *there, uint32_t t)
{
    for (size_t i = 0; i < COLUMNS; i++) {
        uint32_t attribute = COMPARED[i];
        int64_t a, b;

        if (here->columns[attribute] == NULL && there->columns[attribute] == NULL)
            continue;
        a = cell(here, attribute, h);
        b = cell(there, attribute, t);
        if (a != b && (attribute != KB_CONFIDENCE || !same_real(a, b)))
            return 0;
    }
    return 1;
}

/* Rows of the first relation from *cursor on; 1 where a list is full. */
static int walk_here(pair rows, uint64_t *cursor, kb_difference *out)
{
    for (uint32_t id = (uint32_t)*cursor; id < rows.one->rows; id++) {
        uint32_t other;

        *cursor = id;
        if (out->only_here_count == out->room || out->modified_count == out->room)
            return 1;
        if (!is_there(rows.one, id))
            continue;
        if ((other = partner(&rows, id)) == KB_NO_ROW) {
            out->only_here[out->only_here_count++] = id;
        } else if (same_cells(rows.one, id, rows.other, other)) {
            out->equal++;
        } else {
            out->modified_here[out->modified_count] = id;
            out->modified_there[out->modified_count++] = other;
        }
    }
    *cursor = rows.one->rows;
    return 0;
}

static int walk_there(pair rows, uint64_t before, uint64_t *cursor, kb_difference *out)
{
    for (uint32_t id = (uint32_t)(*cursor - before); id < rows.one->rows; id++) {
        *cursor = before + id;
        if (out->only_there_count == out->room)
            return 1;
        if (is_there(rows.one, id) && partner(&rows, id) == KB_NO_ROW)
            out->only_there[out->only_there_count++] = id;
    }
    *cursor = before + rows.one->rows;
    return 0;
}

kb_status kb_relation_compare(const kb_engine *engine, kb_rel here, kb_rel there, uint64_t *cursor, kb_difference *out)
{
    kb_relation *one = kb_engine_readable(engine, here), *other = kb_engine_readable(engine, there);

    if (one == NULL || other == NULL || one->arity != other->arity || cursor == NULL || out == NULL || out->room == 0
        || out->only_here == NULL || out->only_there == NULL || out->modified_here == NULL || out->modified_there == NULL)
        return KB_MISUSE;
    if (kb_relation_place(one) < 0 || kb_relation_place(other) < 0)
        return KB_NOMEM;
    out->only_here_count = out->only_there_count = out->modified_count = 0;
    out->equal = 0;
    out->more = 0;
    if (*cursor < one->rows)
        out->more = (uint32_t)walk_here((pair){ one, other, 0 }, cursor, out);
    if (!out->more && *cursor >= one->rows && *cursor < (uint64_t)one->rows + other->rows)
        out->more = (uint32_t)walk_there((pair){ other, one, 0 }, one->rows, cursor, out);
    return KB_OK;
}
