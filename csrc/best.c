/* best.c - relations that keep one row of each group: the rows that agree in all columns but the
 * last.
 * Owns: the table of groups, and the replacement of a row by a better one. Never: orders what is
 * evaluated; that is fixpoint.c.
 *
 * A better row is appended and the row of its group is marked dead, so that the new row is part of
 * the next DELTA and no view shows the old one. A rule that has already read the old row has made
 * conclusions that the new row makes better: the planner sees to that. Dead rows keep their ids,
 * because marks and cursors are ids, and stay in the lists of the indexes until a round ends. */
#include "machine.h"

#define MIN_UNINDEXED 1024u           /* replaced rows that an index may list without being rebuilt */

static uint64_t hash_group(const kb_relation *relation, const kb_sym *row)
{
    return kb_hash_row(row, relation->arity - 1);
}

/* Replace the table of groups by one for twice as many. */
static kb_status grow_groups(kb_relation *relation)
{
    uint64_t size = relation->groups == NULL ? 64 : (relation->group_mask + UINT64_C(1)) * 2;
    uint32_t mask = (uint32_t)(size - 1);
    uint32_t *groups;

    if (size > UINT64_C(0x100000000) || (groups = kb_alloc(relation->heap, (size_t)size, sizeof *groups)) == NULL)
        return KB_NOMEM;
    for (uint64_t i = 0; relation->groups != NULL && i <= relation->group_mask; i++) {
        uint32_t slot = relation->groups[i], at;

        if (slot == 0)
            continue;
        at = (uint32_t)hash_group(relation, kb_row(relation, slot - 1)) & mask;
        while (groups[at] != 0)
            at = (at + 1) & mask;
        groups[at] = slot;
    }
    kb_release(relation->heap, relation->groups);
    relation->groups = groups;
    relation->group_mask = mask;
    return KB_OK;
}

/* Return the place of the group of a row, or the free place where it would go. */
static uint32_t group_place(const kb_relation *relation, const kb_sym *row, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & relation->group_mask;

    while (relation->groups[at] != 0 && !kb_same_row(kb_row(relation, relation->groups[at] - 1), row, relation->arity - 1))
        at = (at + 1) & relation->group_mask;
    return at;
}

/* Mark a row dead, and remove it from the set if it is there. */
static kb_status bury(kb_relation *relation, uint32_t id)
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
static kb_status append(kb_relation *relation, const kb_sym *row)
{
    uint32_t id = relation->rows;

    if (kb_relation_reserve(relation, 1) < 0)
        return KB_NOMEM;
    memcpy(kb_row(relation, id), row, relation->arity * sizeof *row);
    if (relation->state != NULL)
        relation->state[id] = KB_LIVE;
    relation->rows++;
    return kb_indexes_extend(relation, id);
}

/* Return 1 if a value is better than another, which is a number. */
static int is_better(const kb_symbols *symbols, uint32_t best, kb_sym value, kb_sym other)
{
    int order = value == other ? 0 : kb_symbol_order(symbols, value, other);

    return best == KB_BEST_LEAST ? order < 0 : order > 0;
}

/* Return 1 if a value is a number; others are counted as warnings. */
static int is_number(kb_run *run, kb_sym value)
{
    kb_number number;
    const char *text;
    size_t len;

    kb_symbol_get(&run->engine->symbols, value, &text, &len, &number);
    run->stats.warnings += number.kind == 0;
    return number.kind != 0;
}

static kb_status add_row(kb_run *run, kb_relation *relation, const kb_sym *row)
{
    uint64_t hash = hash_group(relation, row);
    kb_sym value = row[relation->arity - 1];
    uint32_t at, slot;

    if (!is_number(run, value))
        return KB_OK;
    if (relation->groups == NULL || relation->group_count > relation->group_mask / 2)
        if (grow_groups(relation) < 0)
            return KB_NOMEM;
    at = group_place(relation, row, hash);
    slot = relation->groups[at];
    if (slot != 0 && !is_better(&run->engine->symbols, relation->best, value, kb_row(relation, slot - 1)[relation->arity - 1]))
        return KB_OK;
    if (kb_rows_left(run) == 0) {
        run->stats.budget = KB_BUDGET_ROWS;
        return KB_LIMIT;
    }
    if ((slot != 0 && bury(relation, slot - 1) < 0) || append(relation, row) < 0)
        return KB_NOMEM;
    relation->group_count += slot == 0;
    relation->groups[at] = relation->rows;
    run->stats.rows_made++;
    return KB_OK;
}

kb_status kb_best_add(kb_run *run, const kb_sym *rows, uint32_t count)
{
    kb_relation *relation = run->target;
    kb_status status = KB_OK;

    for (uint32_t i = 0; i < count && status == KB_OK; i++)
        status = add_row(run, relation, rows + (size_t)i * relation->arity);
    return status;
}

void kb_best_end_round(kb_relation *relation)
{
    if (relation->unindexed <= MIN_UNINDEXED || relation->unindexed <= relation->rows - relation->dead)
        return;
    kb_index_free_all(relation);      /* rebuilt from the live rows by the next rule that needs them */
    relation->unindexed = 0;
}
