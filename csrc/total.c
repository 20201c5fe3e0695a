/* total.c - one column of the rows that match a pattern, added up.
 * Owns: nothing; the caller has the totals. Never: rounds, or stops at what is no number: that it only remembers. */
#include "internal.h"

#define ROOM 4096u                    /* symbols copied at a time */

static void take(const kb_symbols *symbols, kb_sym sym, kb_total *total, kb_number *least, kb_number *greatest)
{
    kb_number number;
    const char *text;
    size_t len;
    int order;

    kb_symbol_get(symbols, sym, &text, &len, &number);
    if (number.kind == 0) {
        if (total->other == 0)
            total->other = sym;
        return;
    }
    kb_sum_add(&total->sum, &number);
    if (total->least == 0 || (order = kb_number_order(&number, least)) < 0
        || (order == 0 && sym != total->least && kb_symbol_order(symbols, sym, total->least) < 0)) {
        total->least = sym;
        *least = number;
    }
    if (total->greatest == 0 || (order = kb_number_order(&number, greatest)) > 0
        || (order == 0 && sym != total->greatest && kb_symbol_order(symbols, sym, total->greatest) > 0)) {
        total->greatest = sym;
        *greatest = number;
    }
}

static int is_open(const kb_sym *pattern, uint32_t arity)
{
    for (uint32_t i = 0; i < arity; i++)
        if (pattern[i] != 0)
            return 0;
    return 1;
}

kb_status kb_total_add(kb_engine *engine, kb_rel rel, const kb_sym *pattern, uint32_t column, uint64_t *cursor, uint64_t most,
                       kb_total *total)
{
    kb_relation *relation = kb_engine_readable(engine, rel);
    kb_sym rows[ROOM];
    kb_number least = { 0, 0, 0.0 }, greatest = { 0, 0, 0.0 };
    const char *text;
    size_t room, filled, len;
    int counts = column == KB_NO_ROW;

    if (relation == NULL || cursor == NULL || total == NULL || most == 0 || (pattern == NULL && relation->arity != 0)
        || (!counts && column >= relation->arity))
        return KB_MISUSE;
    if (counts && *cursor == 0 && is_open(pattern, relation->arity)) {
        total->matched += relation->rows - relation->dead - relation->hidden;
        *cursor = relation->rows;
        return KB_DONE;
    }
    if (total->least != 0) {
        kb_symbol_get(&engine->symbols, total->least, &text, &len, &least);
        kb_symbol_get(&engine->symbols, total->greatest, &text, &len, &greatest);
    }
    do {
        kb_status status;

        room = ROOM / (relation->arity == 0 ? 1 : relation->arity);
        room = most < room ? (size_t)most : room;
        status = kb_relation_match(engine, relation, pattern, 0, cursor, counts ? NULL : rows, NULL, room, &filled);
        if (status < 0)
            return status;
        for (size_t i = 0; i < filled && !counts; i++)
            take(&engine->symbols, rows[i * relation->arity + column], total, &least, &greatest);
        total->matched += filled;
        most -= filled;
    } while (filled == room && most != 0);
    return filled < room ? KB_DONE : KB_OK;
}
