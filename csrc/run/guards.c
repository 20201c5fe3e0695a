/* guards.c - steps that test bound values: a row exists, no row exists, a comparison is true.
 * Owns: nothing. Never: moves a cursor, or loads a register. */
#include "run/cursor.h"

int kb_row_is_member(const kb_run *run, const kb_step *step, const kb_sym *row)
{
    const kb_relation *relation = run->slots[step->slot];
    uint32_t start = kb_view_start(run, step), end = kb_view_end(run, step), id;

    if (kb_is_bits(relation))         /* the view is the whole relation, or may be: kb_step_start */
        return kb_relation_has(relation, row);
    id = kb_relation_find(relation, row, kb_hash_row(row, step->arity));
    return id != KB_NO_ROW && kb_visible(relation, id) && id >= start && id < end;
}

int kb_step_is_member(const kb_run *run, const kb_step *step)
{
    kb_sym key[KB_MAX_ARITY];

    return kb_row_is_member(run, step, kb_gather(run, step, key));
}

int kb_step_is_absent(const kb_run *run, const kb_step *step, const kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[step->slot];
    kb_sym key[KB_MAX_ARITY];
    const uint32_t *list;
    uint32_t id, entry;

    kb_gather(run, step, key);
    if (step->keys == step->arity) {
        if (relation->state == NULL)
            return !kb_relation_has(relation, key);
        id = kb_relation_find(relation, key, kb_hash_row(key, step->arity));
        return id == KB_NO_ROW || !kb_visible(relation, id);
    }
    if (step->keys == 0)
        return relation->rows - relation->dead - relation->hidden == 0;
    entry = kb_index_seek(cursor->index, relation, key);
    if (entry == KB_NONE)
        return 1;
    list = kb_index_list(cursor->index, entry);
    for (uint32_t i = 0; i < cursor->index->entries[entry].count; i++)
        if (kb_visible(relation, list[i]))
            return 0;
    return 1;
}

int kb_step_holds(kb_run *run, const kb_step *step, const kb_cursor *cursor)
{
    run->left -= step->op != KB_OP_COMPARE;
    run->stats.probes += step->op == KB_OP_MEMBER || step->op == KB_OP_ABSENT;
    switch (step->op) {
    case KB_OP_MEMBER:
        return kb_step_is_member(run, step);
    case KB_OP_ABSENT:
        return kb_step_is_absent(run, step, cursor);
    case KB_OP_COMPARE:
        return kb_symbol_test(&run->engine->symbols, step->compare, run->registers[step->a], run->registers[step->b]);
    default:                          /* a relation without columns has at most one row */
        return kb_view_start(run, step) < kb_view_end(run, step) && kb_visible(run->slots[step->slot], kb_view_start(run, step));
    }
}
