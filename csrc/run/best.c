/* best.c - relations that keep one row of each group: the rows that agree in all columns but the
 * last.
 * Owns: the table of groups, and the replacement of a row by a better one. Never: decides which row
 * is read next; that is fixpoint.c, or bestfirst.c.
 *
 * A better row is appended and the row of its group is marked dead, so that the new row is part of
 * the next DELTA and no view shows the old one. A rule that has already read the old row has made
 * conclusions that the new row makes better, or leaves: the planner accepts no other rules. Dead
 * rows keep their ids, because marks and cursors are ids, and stay in the lists of the indexes
 * until a round ends.
 *
 * Most candidates are worse than the row of their group. So the table has the value of each group
 * as a double, and a computed value becomes a symbol only if it is not worse. Values are kept in
 * their canonical texts, so that equal values do not replace each other. Of instants, and of
 * numbers before instants, the better ones are those of the aggregates MIN and MAX. */
#include "run/cursor.h"
#include <math.h>

#define MIN_UNINDEXED 1024u           /* replaced rows that an index may list without being
                                       * rebuilt */

/* The bytes of the hash of a group that its slot keeps: the value of the column itself, if there is
 * only one. */
static inline uint32_t tag_of(const kb_sym *row, uint32_t columns, uint64_t hash)
{
    return columns == 1 ? row[0] : (uint32_t)(hash >> 32);
}

/* Replace the table of groups by one for twice as many. */
kb_status kb_groups_grow(kb_relation *relation)
{
    uint64_t size = relation->groups == NULL ? 64 : (relation->group_mask + UINT64_C(1)) * 2;
    uint32_t mask = (uint32_t)(size - 1);
    kb_group_slot *groups;

    if (size > UINT64_C(0x100000000) || (groups = kb_alloc(relation->heap, (size_t)size, sizeof *groups)) == NULL)
        return KB_NOMEM;
    for (uint64_t i = 0; relation->groups != NULL && i <= relation->group_mask; i++) {
        const kb_group_slot *slot = relation->groups + i;
        uint64_t hash;
        uint32_t at;

        if (slot->row == 0)
            continue;
        hash = relation->arity == 2 ? kb_mix(slot->tag) : kb_hash_row(kb_row(relation, slot->row - 1), relation->arity - 1);
        at = (uint32_t)hash & mask;
        while (groups[at].row != 0)
            at = (at + 1) & mask;
        groups[at] = *slot;
    }
    kb_release(relation->heap, relation->groups);
    relation->groups = groups;
    relation->group_mask = mask;
    return KB_OK;
}

/* Return the slot of the group of a row, or the free slot where it would go. */
static inline kb_group_slot *group_slot(const kb_relation *relation, const kb_sym *row, uint64_t hash, uint32_t tag)
{
    uint32_t columns = relation->arity - 1, at = (uint32_t)hash & relation->group_mask;
    kb_group_slot *slot;

    while ((slot = relation->groups + at)->row != 0
           && (slot->tag != tag || (columns != 1 && !kb_same_row(kb_row(relation, slot->row - 1), row, columns))))
        at = (at + 1) & relation->group_mask;
    return slot;
}

kb_group_slot *kb_group_find(const kb_relation *relation, kb_sym value)
{
    uint32_t at = (uint32_t)kb_mix(value) & relation->group_mask;

    while (relation->groups[at].row != 0 && relation->groups[at].tag != value)
        at = (at + 1) & relation->group_mask;
    return relation->groups + at;
}

/* Mark a row dead, and remove it from the set if it is there. */
kb_status kb_best_bury(kb_relation *relation, uint32_t id)
{
    if (relation->state == NULL && (relation->state = kb_alloc(relation->heap, relation->capacity, 1)) == NULL)
        return KB_NOMEM;
    if (id < relation->placed)
        kb_relation_unplace(relation, id);
    relation->state[id] = KB_DEAD;
    relation->dead++;
    relation->unindexed++;
    return KB_OK;
}

/* Append a row that becomes the live one of its group. */
kb_status kb_best_append(kb_relation *relation, const kb_sym *row)
{
    uint32_t id = relation->rows;

    if (kb_relation_reserve(relation, 1) < 0)
        return KB_NOMEM;
    memcpy(kb_row(relation, id), row, relation->arity * sizeof *row);
    if (relation->state != NULL)
        relation->state[id] = KB_LIVE;
    relation->rows++;
    return relation->indexes == NULL ? KB_OK : kb_indexes_extend(relation, id);
}

/* The number, or the instant, that a symbol is. */
static kb_number value_of(const kb_symbols *symbols, kb_sym sym)
{
    kb_arg value;

    kb_value_get(symbols, sym, &value);
    return value.number;
}

/* Return 1 if best rows have the value: a number with a canonical text, or an instant. */
static int is_kept(const kb_number *value)
{
    return value->kind == KB_KIND_LONG || (value->kind != KB_KIND_TEXT && isfinite(value->real));
}

/* Set `out` to the symbol that is kept for a value: of a number its canonical text, of an instant
 * or a long whole number the text itself. `sym` is a symbol of the value, or 0. */
static kb_status canonical(kb_run *run, const kb_number *value, kb_sym sym, kb_sym *out)
{
    char text[KB_NUMBER_TEXT];
    size_t len, known_len;
    const char *known;

    *out = sym;
    if (value->kind == KB_KIND_LONG || value->kind == KB_KIND_INSTANT)
        return KB_OK;
    len = kb_number_text(value, text);
    if (sym != 0) {
        kb_symbol_get(&run->engine->symbols, sym, &known, &known_len, NULL);
        if (known_len == len && memcmp(known, text, len) == 0)
            return KB_OK;
    }
    return kb_symbol_make(run->engine, run, &run->heap, text, len, out);
}

/* The order of two kept symbols, as the aggregates MIN and MAX have it: `sign` is -1 where the
 * first is better. Numbers are better than instants. */
static int kept_order(const kb_symbols *symbols, kb_sym a, kb_sym b, int sign)
{
    kb_arg x, y;

    if (a == b)
        return 0;
    kb_value_get(symbols, a, &x);
    kb_value_get(symbols, b, &y);
    if ((x.number.kind == KB_KIND_INSTANT) != (y.number.kind == KB_KIND_INSTANT))
        return y.number.kind == KB_KIND_INSTANT ? sign : -sign;
    return kb_value_text_order(&x, &y);
}

/* Return the value of a group for the quick test: no number is worse than the one of an instant. */
static double quick_value(const kb_number *value, int is_least)
{
    return value->kind != KB_KIND_INSTANT ? value->real : is_least ? HUGE_VAL : -HUGE_VAL;
}

/* Add a row whose last column has this value; `sym` is a symbol of the value, 0 if it has none
 * yet. */
static kb_status add_row(kb_run *run, kb_relation *relation, kb_sym *row, const kb_number *value, kb_sym sym)
{
    const kb_symbols *symbols = &run->engine->symbols;
    uint32_t last = relation->arity - 1, tag;
    uint64_t hash = kb_hash_row(row, last);
    int is_least = relation->best == KB_BEST_LEAST, order;
    double quick = quick_value(value, is_least);
    kb_group_slot *slot;
    kb_status status;

    if (relation->groups == NULL || relation->group_count > relation->group_mask / 2)
        if (kb_groups_grow(relation) < 0)
            return KB_NOMEM;
    tag = tag_of(row, last, hash);
    slot = group_slot(relation, row, hash, tag);
    if (slot->row != 0 && (is_least ? quick > slot->value : quick < slot->value))
        return KB_OK;
    if ((status = canonical(run, value, sym, &sym)) < 0)
        return status;
    if (slot->row != 0) {             /* values with the same nearest double */
        order = kept_order(symbols, sym, kb_row(relation, slot->row - 1)[last], is_least ? -1 : 1);
        if (is_least ? order >= 0 : order <= 0)
            return KB_OK;
    }
    if (kb_rows_left(run) == 0) {
        run->stats.budget = KB_BUDGET_ROWS;
        return KB_LIMIT;
    }
    row[last] = sym;
    if ((slot->row != 0 && kb_best_bury(relation, slot->row - 1) < 0) || kb_best_append(relation, row) < 0)
        return KB_NOMEM;
    relation->group_count += slot->row == 0;
    slot->row = relation->rows;
    slot->tag = tag;
    slot->value = quick;
    run->stats.rows_made++;
    return run->queue.active ? kb_queue_add(run, relation->rows - 1, value->real) : KB_OK;
}

kb_status kb_best_add(kb_run *run, kb_sym *rows, uint32_t count)
{
    kb_relation *relation = run->target;
    kb_status status = KB_OK;

    for (uint32_t i = 0; i < count && status == KB_OK; i++) {
        kb_sym *row = rows + (size_t)i * relation->arity;
        kb_number value = value_of(&run->engine->symbols, row[relation->arity - 1]);

        if (!is_kept(&value))
            run->stats.warnings++;
        else
            status = add_row(run, relation, row, &value, row[relation->arity - 1]);
    }
    return status;
}

double kb_best_value(const kb_run *run, const kb_relation *relation, uint32_t id)
{
    return value_of(&run->engine->symbols, kb_row(relation, id)[relation->arity - 1]).real;
}

/* Compute MIN or MAX of two symbols: the value, and the symbol that has it. Return 0 without a
 * value. */
static int extreme_of(const kb_run *run, uint32_t function, const kb_sym *syms, kb_number *value, kb_sym *sym)
{
    kb_arg args[2];
    const kb_arg *best;

    kb_value_get(&run->engine->symbols, syms[0], args);
    kb_value_get(&run->engine->symbols, syms[1], args + 1);
    if ((best = kb_extreme(function == KB_FUNCTION_MIN ? -1 : 1, args, 2)) == NULL || !is_kept(&best->number))
        return 0;
    *value = best->number;
    *sym = syms[best - args];
    return 1;
}

/* Run the innermost loop with the CALL and the EMIT after it, without the registers of the row. */
kb_status kb_best_rows(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_step *call = step + 1, *emit = step + 2;
    const kb_relation *relation = run->slots[step->slot];
    const kb_pair *args = run->plan->pairs + call->pairs, *heads = run->plan->pairs + emit->pairs;
    uint32_t from[2], arity = emit->arity, head_from[KB_MAX_ARITY];
    kb_sym head[KB_MAX_ARITY], seen[2] = { 0, 0 }, sym;
    int checks = kb_has_checks(step), is_extreme = call->compare == KB_FUNCTION_MIN || call->compare == KB_FUNCTION_MAX, has_value;
    kb_status status = KB_OK;
    kb_number values[2];

    for (uint32_t i = 0; i + 1 < arity; i++) {
        head_from[i] = kb_loaded_column(run, step, heads[i].with);
        head[i] = head_from[i] == KB_NONE ? run->registers[heads[i].with] : 0;
    }
    for (uint32_t i = 0; i < 2; i++) {
        from[i] = kb_loaded_column(run, step, args[i].with);
        if (from[i] == KB_NONE) {
            seen[i] = run->registers[args[i].with];
            values[i] = value_of(&run->engine->symbols, seen[i]);
        }
    }
    if ((status = kb_heads_flush(run)) < 0)
        return status;
    while (cursor->at < cursor->end && run->left > 0 && status == KB_OK) {
        const uint32_t *list = step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL;
        uint32_t id = kb_cursor_id(cursor, list, cursor->at);
        /* an append may move the cells */
        const kb_sym *row = relation->cells + (size_t)id * step->arity;
        kb_number value;

        cursor->at++;
        run->left--;
        if (!kb_visible(relation, id) || (checks && !kb_row_matches(run, step, row)))
            continue;
        run->left--;
        run->stats.probes++;
        kb_count_step(run, step, 1);
        for (uint32_t i = 0; i < 2; i++)
            if (from[i] != KB_NONE && row[from[i]] != seen[i]) {
                seen[i] = row[from[i]];
                values[i] = value_of(&run->engine->symbols, seen[i]);
            }
        sym = 0;
        has_value = is_extreme ? extreme_of(run, call->compare, seen, &value, &sym)
                               : kb_number_compute(call->compare, values, &value);
        if (!has_value) {
            run->stats.warnings++;
            continue;
        }
        run->left--;
        run->stats.probes++;
        kb_count_step(run, call, 1);
        for (uint32_t i = 0; i + 1 < arity; i++)
            if (head_from[i] != KB_NONE)
                head[i] = row[head_from[i]];
        status = add_row(run, run->target, head, &value, sym);
    }
    return status;
}

void kb_best_end_round(kb_relation *relation)
{
    if (relation->unindexed <= MIN_UNINDEXED || relation->unindexed <= relation->rows - relation->dead)
        return;
    kb_index_free_all(relation);      /* rebuilt from the live rows by the next rule that needs
                                       * them */
    relation->unindexed = 0;
}
