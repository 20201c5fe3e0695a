/* run.c - evaluates one rule: nested loops over views, as a machine that can stop between any two
 * rows.
 * Owns: registers and cursors. Never: decides which rule is next (fixpoint.c), checks bounds (the
 * verifier has), or keeps a pointer across an insert (emit.c). */
#include "run/cursor.h"

#define LARGE_INDEX 4096u             /* keys; a smaller index is in the cache */
#define PREFETCH_DISTANCE 16u         /* rows from the first prefetch for a key to its look-up */

/* Advance the cursor to the next matching row and load its registers. Return 0 at the end of the
 * view, or if `left` is used up. */
static inline int next_row(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[step->slot];
    const uint32_t *list = step->op == KB_OP_PROBE && cursor->at < cursor->end ? kb_index_list(cursor->index, cursor->entry) : NULL;
    const kb_pair *pairs = run->plan->pairs + step->pairs + step->keys;
    int checks = kb_has_checks(step);

    while (cursor->at < cursor->end && run->left > 0) {
        uint32_t id = kb_cursor_id(cursor, list, cursor->at);
        const kb_sym *row = relation->cells + (size_t)id * step->arity;

        cursor->at++;
        run->left--;
        if (!kb_visible(relation, id) || (checks && !kb_row_matches(run, step, row)))
            continue;
        for (uint32_t i = 0; i < step->loads; i++)
            run->registers[pairs[i].with] = row[pairs[i].column];
        return 1;
    }
    return 0;
}

/* Return the column of the rows of `step` that is the only key of the PROBE after it, or KB_NONE.
 * Also KB_NONE where the index is small enough for the cache. */
static uint32_t prefetch_column(const kb_run *run, const kb_step *step, const kb_cursor *cursor)
{
    if (step[1].keys != 1 || cursor[1].index->entry_count < LARGE_INDEX || cursor->end - cursor->at < PREFETCH_DISTANCE)
        return KB_NONE;
    return kb_loaded_column(run, step, run->plan->pairs[step[1].pairs].with);
}

/* Prefetch what the PROBE after `step` will read for the next rows. */
static KB_ALWAYS_INLINE void prefetch(const kb_run *run, const kb_step *step, const kb_cursor *cursor,
                                     const uint32_t *list, uint32_t column)
{
    static const uint32_t distance[KB_PREFETCH_STAGES] = { PREFETCH_DISTANCE - 1, 10, 6, 3 };
    const kb_relation *relation = run->slots[step->slot], *inner = run->slots[step[1].slot];

    for (uint32_t stage = 0; stage < KB_PREFETCH_STAGES; stage++) {
        uint32_t at = cursor->at + distance[stage];

        if (at < cursor->end)
            kb_prefetch_key(cursor[1].index, inner, kb_row(relation, kb_cursor_id(cursor, list, at))[column], stage);
    }
}

static int looks_up_whole_rows(const kb_step *step)
{
    return step->op == KB_OP_MEMBER || (step->op == KB_OP_ABSENT && step->keys == step->arity);
}

/* Prefetch the slots of the set in which the next step will look up the coming rows. */
static KB_ALWAYS_INLINE void prefetch_set(const kb_run *run, const kb_step *step, const kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[step->slot], *set = run->slots[step[1].slot];
    const uint32_t *list = step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL;
    const kb_pair *keys = run->plan->pairs + step[1].pairs;
    uint32_t from[2] = { kb_loaded_column(run, step, keys[0].with), kb_loaded_column(run, step, keys[1].with) };
    uint32_t end = (cursor->at | (PREFETCH_DISTANCE - 1)) + 1;
    kb_sym key[2] = { run->registers[keys[0].with], run->registers[keys[1].with] };

    for (uint32_t at = cursor->at; at < end && at < cursor->end; at++) {
        const kb_sym *row = relation->cells + (size_t)(list != NULL ? list[at] : at) * step->arity;

        for (uint32_t j = 0; j < 2; j++)
            if (from[j] != KB_NONE)
                key[j] = row[from[j]];
        kb_relation_prefetch(set, key);
    }
}

/* Run a loop and, inside it, a PROBE with its EMIT, where most rules spend most of their time.
 * Return KB_PAUSED if stopped in the inner loop, KB_OK if the outer rows or `left` are used up. */
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

/* Return 1 if the view is less than the whole relation, or will be at the end of the round. Row ids
 * are then needed to test whether a row is in the view. */
static int is_partial_view(const kb_run *run, const kb_step *step)
{
    return run->plan->slots[step->slot].component == run->component + 1 || kb_view_start(run, step) != 0
           || kb_view_end(run, step) != run->slots[step->slot]->rows;
}

kb_status kb_step_start(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    kb_relation *relation = kb_step_reads(step) ? run->slots[step->slot] : NULL;

    if (relation == NULL)
        return KB_OK;
    if (kb_relation_write(relation) < 0)
        return KB_NOMEM;
    if (step->op == KB_OP_PROBE || (step->op == KB_OP_AGGREGATE && step->loads != 0)
        || (step->op == KB_OP_ABSENT && step->keys != 0 && step->keys != step->arity))
        if (kb_index_need(relation, step->mask, &cursor->index) < 0)
            return KB_NOMEM;
    if ((looks_up_whole_rows(step) || step->intersects) && kb_relation_ready(relation) < 0)
        return KB_NOMEM;
    /* Beside rows of bits, a view may be taken for the whole relation: no rule of such a component
     * recurses through an absence, so what follows from a row of a later round holds too. */
    if (run->dense != NULL && kb_is_bits(relation))
        return KB_OK;
    if ((step->op == KB_OP_MEMBER || step->intersects) && is_partial_view(run, step) && kb_bits_forbid(relation) < 0)
        return KB_NOMEM;
    return KB_OK;
}

kb_status kb_rule_start(kb_run *run, const kb_rule *rule)
{
    const kb_step *steps = run->plan->steps + rule->first;

    for (uint32_t i = 0; i < rule->count; i++)
        if (kb_step_start(run, steps + i, run->cursors + i) < 0)
            return KB_NOMEM;
    if (kb_intersect_start(run, rule) < 0)
        return KB_NOMEM;
    run->target = run->slots[steps[rule->count - 1].slot];
    /* Such heads are appended, and the set is built afterwards: one that exists, a rectangle that
     * mixed.c shares, would not get them. */
    run->distinct = rule->distinct && run->target->rows == 0 && !kb_is_bits(run->target);
    run->depth = 0;
    run->entering = 1;
    return KB_OK;
}

/* At the end of a linear rule: extend its loop to the rows it has just made, unless group.c would
 * evaluate them faster. */
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
    run->cursors->order = NULL;       /* it holds only the rows from before */
    run->high[scan->mark] = run->cursors->end = run->target->rows;
    return KB_OK;
}

/* The functions below return KB_OK if the rule continues with the next step, KB_DONE if it goes
 * back to the loop before this step, and KB_PAUSED if they stop between two rows. They are inline
 * because a call for each step of each row would take as long as most steps. */

static KB_ALWAYS_INLINE kb_status passing(kb_status status, int passes)
{
    if (status < 0)
        return status;
    return passes ? KB_OK : KB_DONE;
}

/* Set the cursor of a SCAN or PROBE to the rows of its view. */
static KB_ALWAYS_INLINE void enter_loop(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    if (step->op == KB_OP_SCAN) {
        /* Opcode: SCAN slot view columns
         * For each row of the view: check the KEY and SAME columns, load registers,
         * continue. */
        cursor->at = kb_view_start(run, step);
        cursor->end = kb_view_end(run, step);
        kb_scan_order(run, step, cursor);
        return;
    }
    /* Opcode: PROBE slot view columns
     * As SCAN, but only the rows that the index on the KEY columns returns. */
    if (step->intersects)
        kb_intersect_enter(run, step, cursor);
    else
        kb_cursor_seek(run, step, cursor);
    run->left--;
    run->stats.probes++;
}

/* Advance a SCAN or PROBE by one row; prefetch what the next step will read for the rows after
 * it. */
static KB_ALWAYS_INLINE kb_status load_row(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering)
{
    uint32_t column;

    if ((entering || cursor->at % PREFETCH_DISTANCE == 0) && cursor->at < cursor->end && looks_up_whole_rows(step + 1)
        && step[1].arity == 2 && run->slots[step[1].slot]->rows > LARGE_INDEX)
        prefetch_set(run, step, cursor);
    if (!next_row(run, step, cursor))
        return KB_DONE;
    if (step[1].op == KB_OP_PROBE && (column = prefetch_column(run, step, cursor)) != KB_NONE)
        prefetch(run, step, cursor, step->op == KB_OP_PROBE ? kb_index_list(cursor->index, cursor->entry) : NULL, column);
    return KB_OK;
}

/* Work on a SCAN or PROBE, with the steps after it where one loop evaluates them together. `depth`
 * becomes the step that has passed, or at which the rule pauses, where this is a later one. */
static KB_ALWAYS_INLINE kb_status work_loop(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering, uint32_t *depth)
{
    kb_status status;

    if (entering)
        enter_loop(run, step, cursor);
    if (step->intersects) {
        int passes = kb_intersect_next(run, step, cursor);

        kb_count_step(run, step + 1, (uint64_t)passes);
        *depth += (uint32_t)passes;   /* skip its second step */
        status = passing(KB_OK, passes);
    } else if (step->emits) {
        status = passing(kb_emit_rows(run, step, cursor), 0);
    } else if (step->relaxes) {
        status = passing(kb_best_rows(run, step, cursor), 0);
    } else if (kb_filter_applies(run, step)) {
        status = passing(kb_filter_rows(run, step, cursor), 0);
    } else if (step[1].op == KB_OP_PROBE && step[1].emits) {
        if ((status = join_rows(run, step, cursor)) == KB_PAUSED)
            *depth += 1;
        else
            status = passing(status, 0);
    } else {
        status = load_row(run, step, cursor, entering);
    }
    return status == KB_DONE && cursor->at < cursor->end ? KB_PAUSED : status;
}

/* Work on a step that is no SCAN or PROBE. */
static KB_ALWAYS_INLINE kb_status work_step(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering)
{
    kb_status status;
    int passes = 1;

    switch (step->op) {
    case KB_OP_MEMBER:
        /* Opcode: MEMBER slot view columns
         * Continue if the row made of the KEY columns is in the view. */
        passes = kb_step_is_member(run, step);
        run->left--;
        run->stats.probes++;
        return passing(KB_OK, passes);
    case KB_OP_ABSENT:
        /* Opcode: ABSENT slot columns
         * Continue if no visible row has these KEY columns. */
        passes = kb_step_is_absent(run, step, cursor);
        run->left--;
        run->stats.probes++;
        return passing(KB_OK, passes);
    case KB_OP_COMPARE:
        /* Opcode: COMPARE op a b
         * Continue if the comparison `op` of the registers a and b is true. */
        return passing(KB_OK, kb_symbol_test(&run->engine->symbols, step->compare, run->registers[step->a],
                                             run->registers[step->b]));
    case KB_OP_COPY:
        /* Opcode: COPY to from
         * Copy register `from` to register `to`. */
        run->registers[step->a] = run->registers[step->b];
        return KB_OK;
    case KB_OP_CALL:
        /* Opcode: CALL function to count registers
         * Set register `to` to the function of `count` registers; continue if it has a
         * value. */
        status = kb_compute(run, step, &passes);
        return passing(status, passes);
    case KB_OP_TEST:
        /* Opcode: TEST op a b
         * Continue if the text in register a starts with, ends with or contains the one in
         * register b. */
        return passing(KB_OK, kb_text_test(run, step));
    case KB_OP_MATCHES:
        /* Opcode: MATCHES negated register count program
         * Continue if the regular expression, compiled to `count` words, matches anywhere in
         * the text. */
        status = kb_match_pattern(run, step, &passes);
        return passing(status, passes);
    case KB_OP_CAPTURE:
        /* Opcode: CAPTURE to register count program
         * Set register `to` to the part of the text in the register that the group of the
         * program marks in its first match; continue if there is one. */
        status = kb_capture(run, step, &passes);
        return passing(status, passes);
    case KB_OP_EQUAL:
        /* Opcode: EQUAL to from
         * For each text that is the same number as register `from`, or for that text alone if
         * it is not a number: load register `to`, continue. */
        return kb_equal(run, step, cursor, entering);
    case KB_OP_GENERATE:
        /* Opcode: GENERATE generator to count registers
         * For each value of a generator of `count` registers: load register `to`, continue. */
        return kb_generate(run, step, cursor, entering);
    case KB_OP_AGGREGATE:
        /* Opcode: AGGREGATE slot view columns count folds
         * For each group of rows of the view with equal LOAD columns: load them and the value
         * of each fold, continue. */
        return kb_aggregate(run, step, cursor, entering);
    default:
        /* Opcode: EMIT slot registers
         * Add the row made of the registers to the relation, unless it exists; go back for the
         * next. */
        return passing(kb_emit_one(run, step), 0);
    }
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

        if (step->op == KB_OP_SCAN || step->op == KB_OP_PROBE)
            status = work_loop(run, step, cursor, entering, &depth);
        else
            status = work_step(run, step, cursor, entering);
        if (status == KB_OK) {
            kb_count_step(run, step, 1);
            depth++;
            entering = 1;
            continue;
        }
        if (status == KB_PAUSED) {
            run->depth = depth;
            run->entering = 0;
        }
        if (status != KB_DONE)
            return status;
        entering = 0;
        if (step->back != KB_NONE) {
            depth = step->back;
        } else {
            if ((status = extend(run, rule)) != KB_OK)
                return status;
            depth = 0;
        }
    }
}

/* Opcode: INTERSECT slot view columns slot view columns
 * For each value that a PROBE of the first relation would load and that completes a row in the view
 * of the second: load it, continue. */
/* Opcode: COMPONENT recursive rule_count
 * The next rule_count rules are one component. If `recursive` is 1, its rounds repeat while they
 * make rows. */
/* Opcode: RULE rule_id word_count
 * The next word_count words are the steps of one version of a rule. */
/* Opcode: END
 * The end of the plan. */
