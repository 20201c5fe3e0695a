/* total.c - totals of one column over the rows that match a pattern.
 * Owns: nothing; the caller owns the totals. Never: rounds, or stops at a value that is not a
 * number: it records the first one. */
#include "internal.h"

#define BATCH_SYMBOLS 4096u           /* symbols copied at a time */

static void add_value(const kb_symbols *symbols, kb_sym sym, kb_total *total, kb_number *min, kb_number *max)
{
    kb_number number;
    const char *text;
    size_t len;
    int order;

    kb_symbol_get(symbols, sym, &text, &len, &number);
    if (number.kind == KB_KIND_TEXT) {
        if (total->first_text == 0)
            total->first_text = sym;
        return;
    }
    kb_sum_add(&total->sum, &number);
    if (total->min == 0 || (order = kb_number_order(&number, min)) < 0
        || (order == 0 && kb_symbol_order(symbols, sym, total->min) < 0)) {
        total->min = sym;
        *min = number;
    }
    if (total->max == 0 || (order = kb_number_order(&number, max)) > 0
        || (order == 0 && kb_symbol_order(symbols, sym, total->max) > 0)) {
        total->max = sym;
        *max = number;
    }
}

/* Add integers to a sum of 128 bits: `low` holds the sum of their lower halves. */
static void add_halves(kb_sum *sum, uint64_t low, int64_t high)
{
    uint64_t shifted = (uint64_t)high << 32;

    sum->low += low;
    sum->high += sum->low < low;
    sum->low += shifted;
    sum->high += (high >> 32) + (sum->low < shifted);
}

/* Integers between the extremes so far change nothing but the sum. All other values go through
 * add_value. At most 2^32 values, so that the halves do not overflow. */
static void add_values(const kb_symbols *symbols, const kb_sym *values, size_t stride, size_t count, kb_total *total,
                       kb_number *min, kb_number *max)
{
    const uint64_t *starts = symbols->starts;
    const char *bytes = symbols->bytes;
    uint64_t low = 0, added = 0, least = 0, width = 0;
    int64_t high = 0, value;

    for (size_t i = 0; i < count; i++) {
        kb_sym sym = values[i * stride];

        if (starts[sym] >> KB_KIND_SHIFT == KB_KIND_INTEGER) {
            memcpy(&value, bytes + (starts[sym + 1] & KB_START_MASK) - sizeof value, sizeof value);
            if ((uint64_t)value - least < width) {
                low += (uint32_t)value;
                high += value >> 32;
                added++;
                continue;
            }
        }
        add_value(symbols, sym, total, min, max);
        least = (uint64_t)min->integer + 1;
        width = min->kind == KB_KIND_INTEGER && max->kind == KB_KIND_INTEGER && min->integer < max->integer ? (uint64_t)max->integer - least : 0;
    }
    add_halves(&total->sum, low, high);
    total->sum.count += added;
}

static int matches_all(const kb_sym *pattern, uint32_t arity)
{
    for (uint32_t i = 0; i < arity; i++)
        if (pattern[i] != 0)
            return 0;
    return 1;
}

/* Add at most `max_rows` values of a column of which every row counts. */
static kb_status add_column(const kb_engine *engine, kb_relation *relation, uint32_t column, uint64_t *cursor, uint64_t max_rows,
                            kb_total *total, kb_number *min, kb_number *max)
{
    size_t filled;

    if (kb_relation_write(relation) < 0)
        return KB_NOMEM;
    filled = relation->rows - *cursor < max_rows ? (size_t)(relation->rows - *cursor) : (size_t)max_rows;
    if (filled != 0)
        add_values(&engine->symbols, kb_row(relation, (uint32_t)*cursor) + column, relation->arity, filled, total, min, max);
    *cursor += filled;
    total->matched += filled;
    return *cursor == relation->rows ? KB_DONE : KB_OK;
}

kb_status kb_total_add(kb_engine *engine, kb_rel rel, const kb_sym *pattern, uint32_t column, uint64_t *cursor, uint64_t max_rows,
                       kb_total *total)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);
    kb_sym rows[BATCH_SYMBOLS];
    kb_number min = { 0, 0, 0.0 }, max = { 0, 0, 0.0 };
    const char *text;
    size_t room, filled, len;
    int counts_only = column == KB_NO_ROW;

    if (status < 0)
        return status;
    if (cursor == NULL || total == NULL || max_rows == 0 || (pattern == NULL && relation->arity != 0)
        || (!counts_only && column >= relation->arity))
        return KB_MISUSE;
    if (counts_only && *cursor == 0 && matches_all(pattern, relation->arity)) {
        total->matched += relation->rows - relation->dead - relation->hidden;
        *cursor = relation->rows;
        return KB_DONE;
    }
    if (total->min != 0) {
        kb_symbol_get(&engine->symbols, total->min, &text, &len, &min);
        kb_symbol_get(&engine->symbols, total->max, &text, &len, &max);
    }
    if (!counts_only && *cursor <= relation->rows && relation->state == NULL && matches_all(pattern, relation->arity))
        return add_column(engine, relation, column, cursor, max_rows, total, &min, &max);
    do {
        room = BATCH_SYMBOLS / (relation->arity == 0 ? 1 : relation->arity);
        room = max_rows < room ? (size_t)max_rows : room;
        status = kb_relation_match(engine, relation, pattern, 0, cursor, counts_only ? NULL : rows, NULL, room, &filled);
        if (status < 0)
            return status;
        if (!counts_only)
            add_values(&engine->symbols, rows + column, relation->arity, filled, total, &min, &max);
        total->matched += filled;
        max_rows -= filled;
    } while (filled == room && max_rows != 0);
    return filled < room ? KB_DONE : KB_OK;
}
