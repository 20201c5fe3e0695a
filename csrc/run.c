/* run.c - the work of one rule: nested loops over views, as a machine that can stop between any two rows.
 * Owns: registers and cursors. Never: decides which rule is next (fixpoint.c), checks a bound (the verifier
 * did), or keeps a pointer across an insert (emit.c). */
#include "internal.h"

static uint32_t view_start(const kb_run *run, const kb_step *step)
{
    return step->view == KB_VIEW_DELTA ? run->low[step->mark] : 0;
}

static uint32_t view_end(const kb_run *run, const kb_step *step)
{
    return step->view == KB_VIEW_OLD ? run->low[step->mark] : run->high[step->mark];
}

/* Sets the cursor on the ids of the view that have the key. */
static void seek(const kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[step->slot];
    uint32_t start = view_start(run, step), end = view_end(run, step), count;
    const uint32_t *list;
    kb_sym key[KB_MAX_ARITY];

    cursor->at = cursor->end = 0;
    cursor->entry = kb_index_seek(cursor->index, relation, kb_gather(run, step, key));
    if (cursor->entry == KB_NONE)
        return;
    list = kb_index_list(cursor->index, cursor->entry);
    count = cursor->index->entries[cursor->entry].count;
    cursor->at = start <= list[0] ? 0 : kb_lower_bound(list, count, start);
    cursor->end = list[count - 1] < end ? count : kb_lower_bound(list, count, end);
}

static int is_member(const kb_run *run, const kb_step *step)
{
    const kb_relation *relation = run->slots[step->slot];
    kb_sym key[KB_MAX_ARITY];
    const kb_sym *row = kb_gather(run, step, key);
    uint32_t start = view_start(run, step), end = view_end(run, step), id;

    if (kb_is_bits(relation))         /* only where the view is all of it: see kb_rule_start */
        return kb_relation_has(relation, row);
    id = kb_relation_find(relation, row, kb_hash_row(row, step->arity));
    return id != KB_NO_ROW && kb_visible(relation, id) && id >= start && id < end;
}

static int is_absent(const kb_run *run, const kb_step *step, const kb_cursor *cursor)
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

/* Moves the cursor to the next row that fits and loads its registers; 0: none, or `left` is used up. */
static int next_row(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[step->slot];
    const uint32_t *list = step->op == KB_OP_PROBE && cursor->at < cursor->end ? kb_index_list(cursor->index, cursor->entry) : NULL;
    const kb_pair *pairs = run->plan->pairs + step->pairs + step->keys;
    int checks = kb_has_checks(step);

    while (cursor->at < cursor->end && run->left > 0) {
        uint32_t id = list != NULL ? list[cursor->at] : cursor->at;
        const kb_sym *row = relation->cells + (size_t)id * step->arity;

        cursor->at++;
        run->left--;
        if (!kb_visible(relation, id) || (checks && !kb_row_fits(run, step, row)))
            continue;
        for (uint32_t i = 0; i < step->loads; i++)
            run->registers[pairs[i].with] = row[pairs[i].column];
        return 1;
    }
    return 0;
}

/* Is the view less than the whole relation, or will it be by the end of the round? Then it takes ids to tell. */
static int cuts(const kb_run *run, const kb_step *step)
{
    return run->plan->slots[step->slot].component == run->component + 1 || view_start(run, step) != 0
           || view_end(run, step) != run->slots[step->slot]->rows;
}

kb_status kb_rule_start(kb_run *run, const kb_rule *rule)
{
    const kb_step *steps = run->plan->steps + rule->first;

    for (uint32_t i = 0; i < rule->count; i++) {
        const kb_step *step = steps + i;

        if (step->op == KB_OP_PROBE || (step->op == KB_OP_ABSENT && step->keys != 0 && step->keys != step->arity))
            if (kb_index_need(run->slots[step->slot], step->mask, &run->cursors[i].index) < 0)
                return KB_NOMEM;
        if (step->op == KB_OP_MEMBER && cuts(run, step) && kb_bits_forbid(run->slots[step->slot]) < 0)
            return KB_NOMEM;
    }
    run->target = run->slots[steps[rule->count - 1].slot];
    run->depth = 0;
    run->entering = 1;
    return KB_OK;
}

kb_status kb_rule_work(kb_run *run, const kb_rule *rule)
{
    const kb_step *steps = run->plan->steps + rule->first;
    uint32_t depth = run->depth;
    int entering = run->entering;
    kb_status status;

    for (;;) {
        const kb_step *step = steps + depth;
        kb_cursor *cursor = run->cursors + depth;
        int goes_on = 1;

        switch (step->op) {
        case KB_OP_SCAN:
            /* Opcode: SCAN slot view columns
             * For each row of the view: check the KEY and SAME columns, load registers, go on. */
            if (entering) {
                cursor->at = view_start(run, step);
                cursor->end = view_end(run, step);
            }
            break;
        case KB_OP_PROBE:
            /* Opcode: PROBE slot view columns
             * As SCAN, but only the rows that the index on the KEY columns gives. */
            if (entering) {
                seek(run, step, cursor);
                run->left--;
                run->stats.probes++;
            }
            break;
        case KB_OP_MEMBER:
            /* Opcode: MEMBER slot view columns
             * Go on if the row made of the KEY columns is in the view. */
            goes_on = is_member(run, step);
            run->left--;
            run->stats.probes++;
            break;
        case KB_OP_ABSENT:
            /* Opcode: ABSENT slot columns
             * Go on if no visible row has these KEY columns. */
            goes_on = is_absent(run, step, cursor);
            run->left--;
            run->stats.probes++;
            break;
        case KB_OP_COMPARE:
            /* Opcode: COMPARE op a b
             * Go on if register a stands in relation op to register b. */
            goes_on = kb_symbol_test(&run->engine->symbols, step->compare, run->registers[step->a], run->registers[step->b]);
            break;
        case KB_OP_COPY:
            /* Opcode: COPY to from
             * Register `to` gets the value of register `from`. */
            run->registers[step->a] = run->registers[step->b];
            break;
        default:
            /* Opcode: EMIT slot registers
             * Add the row made of the registers to the relation, unless it is there; go back for the next. */
            if ((status = kb_emit_one(run, step)) < 0)
                return status;
            goes_on = 0;
            break;
        }
        if (step->op == KB_OP_SCAN || step->op == KB_OP_PROBE) {
            if (step->emits) {
                if ((status = kb_emit_rows(run, step, cursor)) < 0)
                    return status;
                goes_on = 0;
            } else {
                goes_on = next_row(run, step, cursor);
            }
            if (!goes_on && cursor->at < cursor->end) {   /* stopped between rows */
                run->depth = depth;
                run->entering = 0;
                return KB_PAUSED;
            }
        }
        if (goes_on) {
            depth++;
            entering = 1;
        } else if (step->back != KB_NONE) {
            depth = step->back;
            entering = 0;
        } else {
            return KB_DONE;
        }
    }
}

/* Opcode: COMPONENT recursive rule_count
 * The next rule_count rules are one component; its rounds repeat while they make rows, if recursive is 1. */
/* Opcode: RULE rule_id word_count
 * The next word_count words are the steps of one version of a rule. */
/* Opcode: END
 * The end of the plan. */
