/* compare.c - compares two relations row by row.
 * Owns: the definition of a difference. Never: changes a row; keeps anything between two calls
 * except the caller's cursor.
 * First the rows of one relation are looked up in the other, then the reverse. Copies have their
 * rows in nearly the same order, so each look-up first tries the row after the last match. */
#include "internal.h"

static const uint32_t COMPARED[] = { KB_VALID_FROM, KB_VALID_UNTIL, KB_TTL, KB_CONFIDENCE };

#define COLUMNS (sizeof COMPARED / sizeof *COMPARED)

#define ROWS_PER_CALL 65536           /* rows looked up in one call: some ten milliseconds */

typedef struct pair {
    kb_relation *one, *other;
    uint32_t next;                    /* row of `other` to try first */
} pair;

static int is_live(const kb_relation *relation, uint32_t id)
{
    return relation->state == NULL || relation->state[id] != KB_DEAD;
}

/* Return the row of `other` that equals row `id` of `one`, or KB_NO_ROW. */
static uint32_t matching_row(pair *rows, uint32_t id)
{
    const kb_relation *other = rows->other;
    const kb_sym *row = kb_row(rows->one, id);
    uint32_t match;

    while (rows->next < other->rows && !is_live(other, rows->next))
        rows->next++;
    if (rows->next < other->rows && kb_same_row(kb_row(other, rows->next), row, other->arity))
        return rows->next++;
    match = kb_relation_find(other, row, kb_hash_row(row, other->arity));
    if (match != KB_NO_ROW)
        rows->next = match + 1;
    return match;
}

/* Compare as numbers: 0 equals -0, and unknown (NaN) equals unknown. */
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
        a = kb_attribute_cell(here, attribute, h);
        b = kb_attribute_cell(there, attribute, t);
        if (a != b && (attribute != KB_CONFIDENCE || !same_real(a, b)))
            return 0;
    }
    return 1;
}

/* Compare rows of the first relation from *cursor on, `*left` at most. Return 1 if rows are
 * left. */
static int compare_first(pair rows, uint64_t *cursor, uint32_t *left, kb_difference *out)
{
    for (uint32_t id = (uint32_t)*cursor; id < rows.one->rows; id++) {
        uint32_t other;

        *cursor = id;
        if ((*left)-- == 0)
            return 1;
        if (out->only_here_count == out->room || out->modified_count == out->room)
            return 1;
        if (!is_live(rows.one, id))
            continue;
        if ((other = matching_row(&rows, id)) == KB_NO_ROW) {
            out->only_here[out->only_here_count++] = id;
            continue;
        }
        out->found++;
        if (same_cells(rows.one, id, rows.other, other)) {
            out->equal++;
        } else {
            out->modified_here[out->modified_count] = id;
            out->modified_there[out->modified_count++] = other;
        }
    }
    *cursor = rows.one->rows;
    return 0;
}

static int compare_second(pair rows, uint64_t before, uint64_t *cursor, uint32_t *left, kb_difference *out)
{
    for (uint32_t id = (uint32_t)(*cursor - before); id < rows.one->rows; id++) {
        *cursor = before + id;
        if ((*left)-- == 0)
            return 1;
        if (out->only_there_count == out->room)
            return 1;
        if (is_live(rows.one, id) && matching_row(&rows, id) == KB_NO_ROW)
            out->only_there[out->only_there_count++] = id;
    }
    *cursor = before + rows.one->rows;
    return 0;
}

kb_status kb_relation_compare(const kb_engine *engine, kb_rel here, kb_rel there, uint64_t *cursor, kb_difference *out)
{
    kb_relation *one, *other;
    kb_status status;
    uint32_t left = ROWS_PER_CALL;

    if ((status = kb_engine_readable(engine, here, &one)) < 0 || (status = kb_engine_readable(engine, there, &other)) < 0)
        return status;
    if (one->arity != other->arity || cursor == NULL || out == NULL || out->room == 0
        || out->only_here == NULL || out->only_there == NULL || out->modified_here == NULL || out->modified_there == NULL)
        return KB_MISUSE;
    if (kb_relation_place(one) < 0 || kb_relation_place(other) < 0)
        return KB_NOMEM;
    out->only_here_count = out->only_there_count = out->modified_count = 0;
    out->equal = 0;
    out->more = 0;
    if (*cursor == 0)
        out->found = 0;
    if (*cursor < one->rows)
        out->more = (uint32_t)compare_first((pair){ one, other, (uint32_t)*cursor }, cursor, &left, out);
    if (!out->more && out->found == other->rows - other->dead)
        *cursor = (uint64_t)one->rows + other->rows;   /* every row of the other has been found */
    if (!out->more && *cursor >= one->rows && *cursor < (uint64_t)one->rows + other->rows)
        out->more = (uint32_t)compare_second((pair){ other, one, (uint32_t)(*cursor - one->rows) },
                                             one->rows, cursor, &left, out);
    return KB_OK;
}
