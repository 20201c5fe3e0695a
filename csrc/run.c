/* run.c - the work of one rule: nested loops over views, as a machine that can stop between any two rows.
 * Owns: registers and cursors. Never: decides which rule is next (fixpoint.c), checks a bound (the verifier
 * did), or keeps a pointer across an insert (emit.c). */
#include "cursor.h"

#define LARGE_INDEX 4096u             /* keys; fewer are in the cache anyhow */
#define FAR 16u                       /* rows between the first look at a key and its seek */

/* Moves the cursor to the next row that fits and loads its registers; 0: none, or `left` is used up. */
static inline int next_row(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[step->slot];
    const uint32_t *list = step->op == KB_OP_PROBE && cursor->at < cursor->end ? kb_index_list(cursor->index, cursor->entry) : NULL;
    const kb_pair *pairs = run->plan->pairs + step->pairs + step->keys;
    const uint64_t *order = cursor->order;
    int checks = kb_has_checks(step);

    while (cursor->at < cursor->end && run->left > 0) {
        uint32_t id = list != NULL ? list[cursor->at] : order != NULL ? (uint32_t)order[cursor->at - cursor->first] : cursor->at;
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

/* Which column of the rows of `step` is the one key of the PROBE after it, if its index is too large for the cache? */
static uint32_t prefetch_column(const kb_run *run, const kb_step *step, const kb_cursor *cursor)
{
    const kb_pair *loads = run->plan->pairs + step->pairs + step->keys;

    if (step[1].keys != 1 || cursor[1].index->entry_count < LARGE_INDEX || cursor->end - cursor->at < FAR)
        return KB_NONE;
    for (uint32_t i = 0; i < step->loads; i++)
        if (loads[i].with == run->plan->pairs[step[1].pairs].with)
            return loads[i].column;
    return KB_NONE;
}

/* Fetches what the next seeks will read: each stage reads what an earlier one has asked for. A key that is not at
 * its own place in a table by hash is not found here, which costs time and nothing else. */
static KB_ALWAYS_INLINE void prefetch(const kb_run *run, const kb_step *step, const kb_cursor *cursor,
                                     const uint32_t *list, uint32_t column)
{
    const uint64_t *order = cursor->order;
    static const uint32_t distance[] = { FAR - 1, 10, 6, 3 };
    const kb_lookup *index = cursor[1].index;
    const kb_relation *relation = run->slots[step->slot], *inner = run->slots[step[1].slot];

    for (uint32_t stage = 0; stage < 4; stage++) {
        uint32_t at = cursor->at + distance[stage], id, place, slot;
        const kb_entry *entry;
        kb_sym key;

        if (at >= cursor->end)
            continue;
        id = list != NULL ? list[at] : order != NULL ? (uint32_t)order[at - cursor->first] : at;
        key = relation->cells[(size_t)id * step->arity + column];
        place = index->direct ? key : (uint32_t)kb_mix(key) & (index->size - 1);
        if (place >= index->size)
            continue;
        if (stage == 0) {
            KB_PREFETCH(index->slots + place);
            continue;
        }
        if ((slot = index->slots[place]) == 0)
            continue;
        entry = index->entries + slot - 1;
        if (stage == 1)
            KB_PREFETCH(entry);
        else if (stage == 2 && entry->count > 1)
            KB_PREFETCH(index->pool + entry->at);
        else if (entry->count == 1)
            KB_PREFETCH(inner->cells + (size_t)entry->at * step[1].arity);
        else if (stage == 3)
            for (uint32_t i = 0; i < entry->count && i < 4; i++)
                KB_PREFETCH(inner->cells + (size_t)index->pool[entry->at + i] * step[1].arity);
    }
}

static int looks_up_rows(const kb_step *step)
{
    return step->op == KB_OP_MEMBER || (step->op == KB_OP_ABSENT && step->keys == step->arity);
}

/* Fetches the places of the set at which the next rows of the loop will be looked up by the step after it. */
static KB_ALWAYS_INLINE void prefetch_rows(const kb_run *run, const kb_step *step, const kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[step->slot], *set = run->slots[step[1].slot];
    const uint32_t *list = step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL;
    const kb_pair *loads = run->plan->pairs + step->pairs + step->keys, *keys = run->plan->pairs + step[1].pairs;
    uint32_t from[2] = { KB_NONE, KB_NONE }, end = (cursor->at | (FAR - 1)) + 1;
    kb_sym key[2] = { run->registers[keys[0].with], run->registers[keys[1].with] };

    for (uint32_t i = 0; i < step->loads; i++)
        for (uint32_t j = 0; j < 2; j++)
            if (loads[i].with == keys[j].with)
                from[j] = loads[i].column;
    for (uint32_t at = cursor->at; at < end && at < cursor->end; at++) {
        const kb_sym *row = relation->cells + (size_t)(list != NULL ? list[at] : at) * step->arity;

        for (uint32_t j = 0; j < 2; j++)
            if (from[j] != KB_NONE)
                key[j] = row[from[j]];
        kb_relation_touch(set, key);
    }
}

/* A loop and, inside it, a PROBE with its EMIT: the shape that takes most of the time of most rules. KB_PAUSED: stopped
 * in the inner loop; KB_OK: the rows of the outer one are done, or `left` is. */
static kb_status join_rows(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    uint32_t column = prefetch_column(run, step, cursor);
    kb_status status;

    while (next_row(run, step, cursor)) {
        if (column != KB_NONE)
            prefetch(run, step, cursor, step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL, column);
        kb_count_step(run, step, 1);
        kb_cursor_seek(run, step + 1, cursor + 1);
        run->left--;
        run->stats.probes++;
        if (cursor[1].at == cursor[1].end)
            continue;
        if ((status = kb_emit_rows(run, step + 1, cursor + 1)) < 0)
            return status;
        if (cursor[1].at < cursor[1].end)
            return KB_PAUSED;
    }
    return KB_OK;
}

/* Is the view less than the whole relation, or will it be by the end of the round? Then it takes ids to tell. */
static int cuts(const kb_run *run, const kb_step *step)
{
    return run->plan->slots[step->slot].component == run->component + 1 || kb_view_start(run, step) != 0
           || kb_view_end(run, step) != run->slots[step->slot]->rows;
}

kb_status kb_rule_start(kb_run *run, const kb_rule *rule)
{
    const kb_step *steps = run->plan->steps + rule->first;

    for (uint32_t i = 0; i < rule->count; i++) {
        const kb_step *step = steps + i;

        if (step->op == KB_OP_PROBE || (step->op == KB_OP_AGGREGATE && step->loads != 0)
            || (step->op == KB_OP_ABSENT && step->keys != 0 && step->keys != step->arity))
            if (kb_index_need(run->slots[step->slot], step->mask, &run->cursors[i].index) < 0)
                return KB_NOMEM;
        if ((looks_up_rows(step) || step->meets) && kb_relation_ready(run->slots[step->slot]) < 0)
            return KB_NOMEM;
        if ((step->op == KB_OP_MEMBER || step->meets) && cuts(run, step) && kb_bits_forbid(run->slots[step->slot]) < 0)
            return KB_NOMEM;
    }
    if (kb_meet_start(run, rule) < 0)
        return KB_NOMEM;
    run->target = run->slots[steps[rule->count - 1].slot];
    run->distinct = rule->distinct && run->target->rows == 0;
    run->depth = 0;
    run->entering = 1;
    return KB_OK;
}

/* At the end of a linear rule: rows that it has made itself are taken in the same round, unless group.c would do so. */
static kb_status extend(kb_run *run, const kb_rule *rule)
{
    const kb_component *component = run->plan->components + run->component;
    const kb_step *scan = run->plan->steps + rule->first;
    uint32_t end = run->cursors->end;
    kb_status status;

    if (!component->live || !rule->linear || run->fresh)
        return KB_DONE;
    if ((status = kb_heads_flush(run)) < 0)
        return status;
    if (run->target->rows == end || kb_group_pays(run, component))
        return KB_DONE;
    kb_release(&run->heap, run->cursors->order);
    run->cursors->order = NULL;       /* of the rows there were */
    run->high[scan->mark] = run->cursors->end = run->target->rows;
    return KB_OK;
}

kb_status kb_rule_work(kb_run *run, const kb_rule *rule)
{
    const kb_step *steps = run->plan->steps + rule->first;
    uint32_t depth = run->depth;
    uint32_t column;
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
                cursor->at = kb_view_start(run, step);
                cursor->end = kb_view_end(run, step);
                kb_meet_order(run, step, cursor);
            }
            break;
        case KB_OP_PROBE:
            /* Opcode: PROBE slot view columns
             * As SCAN, but only the rows that the index on the KEY columns gives. */
            if (entering) {
                if (step->meets)
                    kb_meet_enter(run, step, cursor);
                else
                    kb_cursor_seek(run, step, cursor);
                run->left--;
                run->stats.probes++;
            }
            break;
        case KB_OP_MEMBER:
            /* Opcode: MEMBER slot view columns
             * Go on if the row made of the KEY columns is in the view. */
            goes_on = kb_step_is_member(run, step);
            run->left--;
            run->stats.probes++;
            break;
        case KB_OP_ABSENT:
            /* Opcode: ABSENT slot columns
             * Go on if no visible row has these KEY columns. */
            goes_on = kb_step_is_absent(run, step, cursor);
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
        case KB_OP_CALL:
            /* Opcode: CALL function to count registers
             * Register `to` gets the value of the function of `count` registers; go on if it has one. */
            if ((status = kb_compute(run, step, &goes_on)) < 0)
                return status;
            break;
        case KB_OP_TEST:
            /* Opcode: TEST op a b
             * Go on if the text in register a starts with, ends with or contains the one in register b. */
            goes_on = kb_text_test(run, step);
            break;
        case KB_OP_MATCHES:
            /* Opcode: MATCHES negated register count program
             * Go on if the regular expression, compiled to `count` words, matches somewhere in the text. */
            if ((status = kb_match_pattern(run, step, &goes_on)) < 0)
                return status;
            break;
        case KB_OP_EQUAL:
            /* Opcode: EQUAL to from
             * For each text that is the same number as register `from`, or just that text: register `to` gets it, go on. */
            if ((status = kb_equal(run, step, cursor, entering)) < 0)
                return status;
            goes_on = status == KB_OK;
            break;
        case KB_OP_AGGREGATE:
            /* Opcode: AGGREGATE slot view columns count folds
             * For each group of rows of the view with the same LOAD columns: load them and the value of each fold, go on. */
            if ((status = kb_aggregate(run, step, cursor, entering)) < 0)
                return status;
            if (status == KB_PAUSED) {
                run->depth = depth;
                run->entering = 0;
                return KB_PAUSED;
            }
            goes_on = status == KB_OK;
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
            if (step->meets) {
                goes_on = kb_meet_next(run, step, cursor);
                kb_count_step(run, step + 1, (uint64_t)goes_on);
                depth += (uint32_t)goes_on;   /* past the second part */
            } else if (step->emits) {
                if ((status = kb_emit_rows(run, step, cursor)) < 0)
                    return status;
                goes_on = 0;
            } else if (kb_sifts(run, step)) {
                if ((status = kb_sift_rows(run, step, cursor)) < 0)
                    return status;
                goes_on = 0;
            } else if (step[1].op == KB_OP_PROBE && step[1].emits) {
                if ((status = join_rows(run, step, cursor)) < 0)
                    return status;
                if (status == KB_PAUSED) {
                    run->depth = depth + 1;
                    run->entering = 0;
                    return KB_PAUSED;
                }
                goes_on = 0;
            } else {
                if ((entering || cursor->at % FAR == 0) && cursor->at < cursor->end && looks_up_rows(step + 1)
                    && step[1].arity == 2 && run->slots[step[1].slot]->rows > LARGE_INDEX)
                    prefetch_rows(run, step, cursor);
                goes_on = next_row(run, step, cursor);
                if (goes_on && step[1].op == KB_OP_PROBE && (column = prefetch_column(run, step, cursor)) != KB_NONE)
                    prefetch(run, step, cursor, step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL,
                            column);
            }
            if (!goes_on && cursor->at < cursor->end) {   /* stopped between rows */
                run->depth = depth;
                run->entering = 0;
                return KB_PAUSED;
            }
        }
        if (goes_on) {
            kb_count_step(run, step, 1);
            depth++;
            entering = 1;
        } else if (step->back != KB_NONE) {
            depth = step->back;
            entering = 0;
        } else {
            if ((status = extend(run, rule)) != KB_OK)
                return status;
            depth = 0;
            entering = 0;
        }
    }
}

/* Opcode: INTERSECT slot view columns slot view columns
 * For each value that a PROBE of the first would load and with which the row of the second is in its view: load it, go on. */
/* Opcode: COMPONENT recursive rule_count
 * The next rule_count rules are one component; its rounds repeat while they make rows, if recursive is 1. */
/* Opcode: RULE rule_id word_count
 * The next word_count words are the steps of one version of a rule. */
/* Opcode: END
 * The end of the plan. */
