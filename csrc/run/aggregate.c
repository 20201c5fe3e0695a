/* aggregate.c - AGGREGATE: one row for each group of rows, with counts, sums and extremes.
 * Owns: the aggregates of the current group, so that a run can pause within it. Never: sees a row
 * twice: the planner makes relations whose rows are the distinct bindings, and each group is
 * complete when it first appears. The reference implementation in Python is aggregates.py. */
#include "run/machine.h"
#include <math.h>

#define PREFETCH_DISTANCE 16u         /* prefetch distance: rows of a group are not adjacent */

static const kb_pair *folds_of(const kb_run *run, const kb_step *step)
{
    return run->plan->pairs + step->b;
}

/* Set the cursor to the first group all of whose rows are new: groups are in the order of their
 * first rows. */
static void enter(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    uint32_t low = run->low[step->mark], first = 0, last;

    cursor->entry = 0;
    cursor->at = cursor->end = 0;
    run->folding = 0;
    if (step->loads == 0) {
        cursor->entry = low != 0;     /* one group, of all rows */
        return;
    }
    for (last = cursor->index->entry_count; first < last;) {
        uint32_t middle = first + (last - first) / 2;

        if (kb_index_list(cursor->index, middle)[0] < low)
            first = middle + 1;
        else
            last = middle;
    }
    cursor->entry = first;
}

/* Open the group at the cursor. Return 0 if no group is left. */
static int open_group(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_pair *loads = run->plan->pairs + step->pairs;
    uint32_t high = run->high[step->mark], first = 0;

    if (step->loads == 0) {
        if (cursor->entry != 0 || high == 0)
            return 0;
        cursor->end = high;
    } else {
        if (cursor->entry >= cursor->index->entry_count)
            return 0;
        first = kb_index_list(cursor->index, cursor->entry)[0];
        cursor->end = cursor->index->entries[cursor->entry].count;
    }
    for (uint32_t i = 0; i < step->loads; i++)
        run->registers[loads[i].with] = run->slots[step->slot]->cells[(size_t)first * step->arity + loads[i].column];
    memset(run->folds, 0, step->a * sizeof *run->folds);
    cursor->at = 0;
    run->folding = 1;
    return 1;
}

/* Add a value to MIN or MAX, which has a best number and a best instant. */
static void add_extreme(kb_run *run, int sign, kb_fold *fold, kb_sym sym)
{
    const kb_symbols *symbols = &run->engine->symbols;
    kb_arg value, best;
    kb_sym *known;

    kb_value_get(symbols, sym, &value);
    if (value.number.kind == KB_KIND_TEXT) {
        run->stats.warnings++;
        return;
    }
    known = value.number.kind == KB_KIND_INSTANT ? &fold->best_instant : &fold->best;
    fold->instants += value.number.kind == KB_KIND_INSTANT;
    if (*known != 0 && *known != sym) {
        kb_value_get(symbols, *known, &best);
        if (kb_value_text_order(&value, &best) * sign < 0)
            return;
    }
    *known = sym;
}

static void add_value(kb_run *run, uint32_t function, kb_fold *fold, kb_sym sym)
{
    const kb_symbols *symbols = &run->engine->symbols;
    kb_number number;
    const char *text;
    size_t len;

    switch (function) {
    case KB_FOLD_COUNT:
        fold->sum.count++;
        return;
    case KB_FOLD_MIN:
    case KB_FOLD_MAX:
        add_extreme(run, function == KB_FOLD_MIN ? -1 : 1, fold, sym);
        return;
    case KB_FOLD_FIRST:
        if (fold->best == 0 || kb_symbol_order(symbols, sym, fold->best) < 0)
            fold->best = sym;
        return;
    default:
        kb_symbol_get(symbols, sym, &text, &len, &number);
        if (number.kind == KB_KIND_TEXT)
            run->stats.warnings++;
        else
            kb_sum_add(&fold->sum, &number);
    }
}

/* Compute the sum or mean. Return 0 if it has no value: nothing was added, or it is out of
 * range. */
static int compute_sum(uint32_t function, kb_sum *sum, kb_number *out)
{
    int64_t whole = (int64_t)sum->low;
    int fits = !sum->reals && sum->high == (whole < 0 ? -1 : 0);

    if (sum->infinite || (function == KB_FOLD_AVG && sum->count == 0))
        return 0;
    out->kind = KB_KIND_INTEGER;
    out->integer = whole;
    if (function == KB_FOLD_SUM && !sum->reals)
        return fits;
    if (function == KB_FOLD_AVG && fits && sum->count <= INT64_MAX && whole % (int64_t)sum->count == 0) {
        out->integer = whole / (int64_t)sum->count;
        return 1;
    }
    out->kind = KB_KIND_POWER;
    out->real = kb_sum_real(sum);
    if (function == KB_FOLD_AVG)
        out->real /= (double)sum->count;
    return isfinite(out->real);
}

/* Load the registers of the folds. `*has_value` is 0 if one of them has no value: the group then
 * makes no row. */
static kb_status close_group(kb_run *run, const kb_step *step, int *has_value)
{
    const kb_pair *pairs = folds_of(run, step);
    kb_status status = KB_OK;

    *has_value = 1;
    for (uint32_t i = 0; i < step->a && *has_value && status == KB_OK; i++) {
        uint32_t function = pairs[2 * i].column;
        kb_fold *fold = run->folds + i;
        kb_sym *to = run->registers + pairs[2 * i + 1].with;
        char text[KB_NUMBER_TEXT];
        kb_number value;

        if (function == KB_FOLD_MIN || function == KB_FOLD_MAX || function == KB_FOLD_FIRST) {
            if (fold->best != 0)      /* a group with numbers leaves out instants */
                run->stats.warnings += fold->instants;
            *to = fold->best != 0 ? fold->best : fold->best_instant;
            *has_value = *to != 0;
            continue;
        }
        value.kind = KB_KIND_INTEGER;
        value.integer = (int64_t)fold->sum.count;
        if (function != KB_FOLD_COUNT && !compute_sum(function, &fold->sum, &value)) {
            run->stats.warnings += fold->sum.count != 0;
            *has_value = 0;
        } else {
            status = kb_symbol_make(run->engine, run, &run->heap, text, kb_number_text(&value, text), to);
        }
    }
    return status;
}

kb_status kb_aggregate(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering)
{
    const kb_pair *pairs = folds_of(run, step);
    const kb_relation *relation = run->slots[step->slot];

    if (entering)
        enter(run, step, cursor);
    for (;;) {
        const uint32_t *list;
        kb_status status;
        int has_value;

        if (!run->folding && !open_group(run, step, cursor))
            return KB_DONE;
        list = step->loads == 0 ? NULL : kb_index_list(cursor->index, cursor->entry);
        for (; cursor->at < cursor->end && run->left > 0; cursor->at++, run->left--) {
            uint32_t id = list == NULL ? cursor->at : list[cursor->at];
            const kb_sym *row = relation->cells + (size_t)id * step->arity;

            if (list != NULL && cursor->end - cursor->at > PREFETCH_DISTANCE)
                KB_PREFETCH(relation->cells + (size_t)list[cursor->at + PREFETCH_DISTANCE] * step->arity);
            for (uint32_t i = 0; i < step->a; i++)
                add_value(run, pairs[2 * i].column, run->folds + i, step->arity == 0 ? 0 : row[pairs[2 * i].with]);
        }
        if (cursor->at < cursor->end)
            return KB_PAUSED;
        run->folding = 0;
        cursor->entry++;
        if ((status = close_group(run, step, &has_value)) < 0 || has_value)
            return status;
    }
}
