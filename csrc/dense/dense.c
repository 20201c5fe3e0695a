/* dense.c - recursion over relations of two columns, whole rows of bits at a time.
 * Owns: the rectangles of a component while it is evaluated this way. Never: runs the first round
 * of a pass, or a rule of another form.
 *
 * In `h(x, z) :- b(y, x), p(y, z)` the second column of p passes through. So for each y and each x
 * that b has for it, the row of x in h receives the row of y in p: 64 pairs with one OR. Every rule
 * of the component has this form, or the mirrored one, which works on columns instead of rows, or
 * copies a relation. A round reads the bits that are new in the last round and collects heads; its
 * end finds the bits among them that are new. The cells of the relation are written when they are
 * first read (kb_relation_write), so a result that is only counted stays a rectangle. */
#include "dense/dense.h"

#define MIN_ROWS 4096u                /* with fewer rows the rectangles do not pay */
#define MAX_WORDS_PER_ROW 32u         /* words of a rectangle for each new row at the start */
#define FEW_RELATIONS 8u              /* with more, the rows must pay for more rectangles */
#define MAX_SIZE 16384u               /* values of a column; a round then ends within
                                       * milliseconds */
#define MIN_PARALLEL_WORDS 200000u    /* of a rectangle: with fewer, one thread is as fast */
#define MIN_BATCH_ROWS 64u
#define BATCH_STEPS 500000u           /* steps of a team between two tests of the budgets */
#define MAX_WORDS_PER_RESULT_ROW 3u   /* of a rectangle that is kept: cells and a table would take
                                       * as much memory */

/* Set the size of the rectangles. Return 0 if there are too few new rows for it. */
static int fits(kb_dense *dense, uint64_t rows, uint32_t low, uint32_t high)
{
    dense->first = low & ~63u;
    if (high - dense->first >= MAX_SIZE)
        return 0;
    dense->words = (high - dense->first) / 64 + 1;
    dense->size = dense->words * 64;
    return (uint64_t)dense->size * dense->words / MAX_WORDS_PER_ROW
        * ((dense->count + FEW_RELATIONS - 1) / FEW_RELATIONS) <= rows;
}

/* Return the first row of a relation that the rules have not read. */
static uint32_t first_new_row(const kb_run *run, const kb_component *component, uint32_t slot)
{
    for (uint32_t mark = component->first_mark; mark < component->first_mark + component->marks; mark++)
        if (run->plan->marks[mark] == slot)
            return run->low[mark];
    return 0;
}

/* Choose the relations and the symbols of the rectangles. Return 0 if they do not pay. */
static int measure(kb_run *run, const kb_component *component, kb_dense *dense)
{
    const kb_plan *plan = run->plan;
    uint32_t low = UINT32_MAX, high = 0;
    uint64_t rows = 0;
    kb_pair_rule rule;

    for (uint32_t slot = 0; slot < plan->slot_count; slot++)
        if (plan->slots[slot].bits && kb_emits_to(plan, component, slot)) {
            kb_relation *relation = run->slots[slot];

            if (kb_relation_write(relation) < 0)
                return 0;
            dense->relations[dense->count].slot = slot;
            dense->relations[dense->count++].relation = relation;
            rows += relation->rows - first_new_row(run, component, slot);
        }
    if (rows < MIN_ROWS || rows < run->dense_retry)
        return 0;
    run->dense_retry = rows * 2;
    for (uint32_t i = 0; i < dense->count; i++)
        kb_widen(dense->relations[i].relation, 0, 2, &low, &high);
    if (!fits(dense, rows, low, high))
        return 0;
    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++) {
        kb_relation *with;

        if (!plan->rules[r].by_bits)
            continue;
        kb_pair_rule_read(plan, plan->rules + r, &rule);
        if (rule.with == KB_NONE || kb_rectangles_of(dense, rule.with) != NULL)
            continue;
        with = run->slots[rule.with];
        if (kb_relation_write(with) < 0)
            return 0;
        kb_widen(with, 1 - rule.key, 2 - rule.key, &low, &high);
    }
    if (component->mixed && !kb_mixed_widen(run, component, &low, &high))
        return 0;
    return fits(dense, rows, low, high);
}

/* Return the orientation of the relation of a row guard whose rows have the scanned row's first
 * column. */
static uint32_t guard_side(const kb_plan *plan, const kb_rule *rule, const kb_step *guard)
{
    const kb_pair *loads = plan->pairs + plan->steps[rule->first].pairs, *keys = plan->pairs + guard->pairs;
    uint32_t first = loads[loads[0].column != 0].with;

    return keys[keys[0].column != 0].with != first;
}

/* Note the orientations that the rules use. */
static void choose_orientations(const kb_run *run, const kb_component *component, kb_dense *dense)
{
    kb_pair_rule rule;

    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++) {
        const kb_rule *steps = run->plan->rules + r;
        kb_rectangles *from, *head, *with;

        if (!steps->by_bits)
            continue;
        for (uint32_t i = 1; i + 1 < steps->count; i++) {
            const kb_step *step = run->plan->steps + steps->first + i;

            if (kb_is_row_guard(run->plan, steps, step))
                kb_rectangles_of(dense, step->slot)->used[guard_side(run->plan, steps, step)] = 1;
        }
        kb_pair_rule_read(run->plan, run->plan->rules + r, &rule);
        from = kb_rectangles_of(dense, rule.from);
        head = kb_rectangles_of(dense, rule.head);
        from->used[rule.join] = 1;
        head->used[1 - rule.keep] = 1;
        if (rule.with == KB_NONE || (with = kb_rectangles_of(dense, rule.with)) == NULL)
            continue;
        with->used[rule.key] = 1;
        from->used[1 - rule.join] = 1;
        head->used[rule.keep] = 1;
    }
    for (uint32_t i = 0; i < dense->count; i++) {
        dense->relations[i].primary = !dense->relations[i].used[0];
        dense->relations[i].used[dense->relations[i].primary] = 1;
    }
}

/* Return 0 if out of memory. */
static int allocate(kb_run *run, kb_dense *dense)
{
    size_t words = (size_t)dense->size * dense->words;
    uint64_t *at;

    dense->worker_count = words < MIN_PARALLEL_WORDS ? 1 : run->engine->threads;
    dense->workers = kb_alloc(&run->heap, dense->worker_count, sizeof *dense->workers);
    dense->rows = at = kb_alloc(&run->heap, (size_t)dense->words * (1 + KB_RULE_VALUES + 3 * dense->worker_count), sizeof *at);
    if (dense->workers == NULL || at == NULL)
        return 0;
    dense->reachable = at;
    for (uint32_t value = 0; value < KB_RULE_VALUES; value++)
        dense->masks[value] = at += dense->words;
    for (uint32_t i = 0; i < dense->worker_count; i++) {
        dense->workers[i].passed = at += dense->words;
        dense->workers[i].joined = at += dense->words;
        dense->workers[i].missing = at += dense->words;
    }
    for (uint32_t i = 0; i < dense->count; i++)
        for (uint32_t side = 0; side < 2; side++) {
            kb_rectangles *each = dense->relations + i;

            if (!each->used[side])
                continue;
            each->full[side] = kb_alloc(&run->heap, words, sizeof **each->full);
            each->fresh[side] = kb_alloc(&run->heap, words, sizeof **each->fresh);
            each->next[side] = kb_alloc(&run->heap, words, sizeof **each->next);
            each->ranges[side] = kb_alloc(&run->heap, dense->size, sizeof **each->ranges);
            if (each->full[side] == NULL || each->fresh[side] == NULL || each->next[side] == NULL || each->ranges[side] == NULL)
                return 0;
        }
    return 1;
}

void kb_dense_end(kb_run *run)
{
    kb_dense *dense = run->dense;

    for (uint32_t i = 0; dense != NULL && i < dense->count; i++)
        for (uint32_t side = 0; side < 2; side++) {
            if (dense->relations[i].full[side] != dense->relations[i].relation->matrix.words)
                kb_release(&run->heap, dense->relations[i].full[side]);
            kb_release(&run->heap, dense->relations[i].fresh[side]);
            kb_release(&run->heap, dense->relations[i].next[side]);
            kb_release(&run->heap, dense->relations[i].ranges[side]);
        }
    if (dense != NULL) {
        kb_release(&run->heap, dense->rows);
        kb_release(&run->heap, dense->workers);
    }
    kb_release(&run->heap, dense);
    run->dense = NULL;
}

void kb_dense_begin(kb_run *run, const kb_component *component)
{
    kb_dense dense;
    kb_team alone;

    if (!component->dense || run->fresh || run->profile.rules != NULL)
        return;
    memset(&dense, 0, sizeof dense);
    if (!measure(run, component, &dense))
        return;
    if (component->mixed)
        kb_mixed_mark(run, component, &dense);
    choose_orientations(run, component, &dense);
    if ((run->dense = kb_alloc(&run->heap, 1, sizeof dense)) != NULL)
        *run->dense = dense;
    if (run->dense == NULL || !allocate(run, run->dense)) {
        kb_dense_end(run);
        run->heap.refused = 0;        /* the other evaluation may need less */
        run->dense_retry = UINT64_MAX;
        return;
    }
    kb_team_start(&alone, 1);
    for (uint32_t i = 0; i < dense.count; i++) {
        kb_rectangles *each = run->dense->relations + i;
        uint32_t first = first_new_row(run, component, each->slot);

        for (uint32_t side = 0; side < 2; side++)
            if (each->used[side])
                kb_add_cells(&dense, each->relation, 0, first, side, each->full[side]);
        kb_add_cells(&dense, each->relation, first, each->relation->rows, each->primary, each->next[each->primary]);
        each->bits = first;
        kb_find_new_bits(run->dense, &alone, each);
        if (each->shared)
            kb_mixed_share(run->dense, each);
    }
}

/* Evaluate the guards of a rule: `masks` receives those of each value that pass, where a guard
 * tests it. Return KB_DONE if no row passes. */
static kb_status test_guards(kb_run *run, const kb_rule *rule, const kb_pair_rule *form)
{
    kb_dense *dense = run->dense;
    const kb_step *steps = run->plan->steps + rule->first;
    const kb_pair *loads = run->plan->pairs + steps->pairs;
    uint32_t value;

    memset(dense->is_masked, 0, sizeof dense->is_masked);
    for (uint32_t i = 1; i + 1 < rule->count; i++) {
        uint64_t *mask;
        uint32_t to;

        if (steps + i == form->probe || !kb_is_guard(run->plan, steps, form->probe, steps + i, &value)
            || kb_is_row_guard(run->plan, rule, steps + i))
            continue;
        if (kb_step_start(run, steps + i, run->cursors + i) < 0)
            return KB_NOMEM;
        if (value == KB_FIXED) {
            if (!kb_step_holds(run, steps + i, run->cursors + i))
                return KB_DONE;
            continue;
        }
        if (value == KB_BOTH)         /* evaluated for each new pair */
            continue;
        to = value == KB_PROBED ? run->plan->pairs[form->probe->pairs + 1].with : loads[loads[0].column != value].with;
        mask = dense->masks[value];
        if (!dense->is_masked[value])
            memset(mask, 0xFF, dense->words * sizeof *mask);
        dense->is_masked[value] = 1;
        for (uint32_t bit = 0; bit < dense->size; bit++) {
            kb_sym symbol = dense->first + bit;

            if (!(mask[bit >> 6] >> (bit & 63) & 1) || symbol == 0 || symbol > run->engine->symbols.count)
                continue;
            run->registers[to] = symbol;
            if (!kb_step_holds(run, steps + i, run->cursors + i))
                mask[bit >> 6] &= ~(UINT64_C(1) << (bit & 63));
        }
    }
    return KB_OK;
}

/* Set `reachable` to the values that the probe of the current rule can load. */
static void find_reachable(kb_dense *dense, const uint64_t *words)
{
    memset(dense->reachable, 0, dense->words * sizeof *dense->reachable);
    for (uint32_t row = 0; row < dense->size; row++)
        for (uint32_t i = 0; i < dense->words; i++)
            dense->reachable[i] |= words[(size_t)row * dense->words + i];
    for (uint32_t i = 0; dense->is_masked[KB_PROBED] && i < dense->words; i++)
        dense->reachable[i] &= dense->masks[KB_PROBED][i];
}

/* Prepare a rule. For a join with a relation of the component, choose the way with fewer ORs. */
static kb_status start_rule(kb_run *run, const kb_pair_rule *rule, kb_cursor *cursor)
{
    kb_dense *dense = run->dense;
    kb_rectangles *from = kb_rectangles_of(dense, rule->from), *with;
    uint64_t ors = 0;

    dense->row = 0;
    dense->batch = dense->worker_count == 1 ? 1 : MIN_BATCH_ROWS;
    dense->by_pairs = 0;
    dense->in_rule = 1;
    if (rule->with == KB_NONE)
        return KB_OK;
    with = kb_rectangles_of(dense, rule->with);
    if (with == NULL)
        return kb_step_start(run, rule->probe, cursor);
    for (uint32_t row = 0; row < dense->size && ors < from->fresh_bits; row++)
        for (uint32_t i = 0; from->ranges[rule->join][row] != 0 && i < dense->words; i++)
            ors += kb_count_bits(kb_bit_row(dense, with->full[rule->key], row)[i]);
    dense->by_pairs = ors >= from->fresh_bits;
    if (dense->by_pairs)
        find_reachable(dense, with->full[rule->key]);
    return KB_OK;
}

/* Return 1 if a pair passes the guards of a rule that test both of its values. */
static int pair_passes(kb_run *run, const kb_rule *rule, kb_sym first, kb_sym second)
{
    const kb_step *steps = run->plan->steps + rule->first;
    const kb_pair *loads = run->plan->pairs + steps->pairs;
    uint32_t value;

    run->registers[loads[loads[0].column != 0].with] = first;
    run->registers[loads[loads[0].column == 0].with] = second;
    for (uint32_t i = 1; i + 1 < rule->count; i++)
        if (kb_is_guard(run->plan, steps, NULL, steps + i, &value) && value == KB_BOTH
            && !kb_is_row_guard(run->plan, rule, steps + i) && !kb_step_holds(run, steps + i, run->cursors + i))
            return 0;
    return 1;
}

/* Remove the bits of a row that relations with rows of bits do not have: 64 tests with one AND.
 * Return 1 if other guards test both columns of each pair. */
static int intersect_row(const kb_run *run, const kb_rule *rule, uint32_t row, uint32_t range, uint64_t *words)
{
    kb_dense *dense = run->dense;
    const kb_step *scan = run->plan->steps + rule->first;
    uint32_t value;
    int tests_pairs = 0;

    for (uint32_t i = 1; i + 1 < rule->count; i++) {
        const uint64_t *other;

        if (!kb_is_guard(run->plan, scan, NULL, scan + i, &value) || value != KB_BOTH)
            continue;
        if (!kb_is_row_guard(run->plan, rule, scan + i)) {
            tests_pairs = 1;
            continue;
        }
        other = kb_bit_row(dense, kb_rectangles_of(dense, scan[i].slot)->full[guard_side(run->plan, rule, scan + i)], row);
        for (uint32_t j = range >> 16; j < (range & 0xFFFF); j++)
            words[j] &= other[j];
    }
    return tests_pairs;
}

/* Evaluate a rule without a join that tests both columns together, over the new rows of its
 * relation. */
static kb_status test_pairs(kb_run *run, const kb_pair_rule *form)
{
    kb_dense *dense = run->dense;
    const kb_rule *rule = run->plan->rules + run->rule;
    const kb_rectangles *from = kb_rectangles_of(dense, form->from), *head = kb_rectangles_of(dense, form->head);
    uint64_t *words = dense->workers->passed;
    uint32_t side = form->join;

    for (; dense->row < dense->size; dense->row++) {
        const uint64_t *fresh = kb_bit_row(dense, from->fresh[side], dense->row);
        uint64_t *to = kb_bit_row(dense, head->next[1 - form->keep], dense->row);
        uint32_t range = from->ranges[side][dense->row], row = dense->first + dense->row;
        int tests_pairs;

        if (range == 0 || (dense->is_masked[side] && !(dense->masks[side][dense->row >> 6] >> (dense->row & 63) & 1)))
            continue;
        if (run->left <= 0)
            return KB_PAUSED;
        for (uint32_t i = range >> 16; i < (range & 0xFFFF); i++)
            words[i] = fresh[i] & (dense->is_masked[1 - side] ? dense->masks[1 - side][i] : UINT64_MAX);
        tests_pairs = intersect_row(run, rule, dense->row, range, words);
        run->left -= 1 + ((range & 0xFFFF) - (range >> 16)) / KB_WORDS_PER_STEP;
        for (uint32_t i = range >> 16; i < (range & 0xFFFF); i++) {
            if (!tests_pairs)
                to[i] |= words[i];
            for (uint64_t left = tests_pairs ? words[i] : 0; left != 0; left &= left - 1) {
                uint32_t value = dense->first + i * 64 + KB_LOWEST_BIT(left);

                run->left--;
                if (pair_passes(run, rule, side == 0 ? row : value, side == 0 ? value : row))
                    to[i] |= left & (~left + 1);
            }
        }
    }
    return KB_OK;
}

/* Evaluate one rule over the new rows of its relation. A team works on batches of rows, which grow
 * and shrink so that each takes about BATCH_STEPS. */
static kb_status work_rule(kb_run *run, const kb_pair_rule *rule, const kb_cursor *cursor, kb_team *team)
{
    kb_dense *dense = run->dense;
    const kb_rectangles *from = kb_rectangles_of(dense, rule->from);
    const uint32_t *ranges = from->ranges[dense->by_pairs ? 1 - rule->join : rule->join];
    kb_bit_join join = { .run = run, .rule = rule, .cursor = cursor, .from = from, .head = kb_rectangles_of(dense, rule->head) };

    if (rule->with != KB_NONE)
        join.with = kb_rectangles_of(dense, rule->with);
    while (dense->row < dense->size) {
        uint64_t steps;

        if (ranges[dense->row] == 0) {
            dense->row++;
            continue;
        }
        if (run->left <= 0)
            return KB_PAUSED;
        join.row = dense->row;
        join.end = dense->size - dense->row < dense->batch ? dense->size : dense->row + dense->batch;
        steps = kb_bit_join_rows(&join, team);
        run->left -= (int64_t)steps;
        dense->row = join.end;
        if (team->threads > 1 && steps < BATCH_STEPS / 2)
            dense->batch *= 2;
        else if (dense->batch > 1 && steps > BATCH_STEPS * 2)
            dense->batch /= 2;
    }
    return KB_OK;
}

/* End a round. Return KB_DONE if no row is new. */
static kb_status end_round(kb_run *run, const kb_component *component, kb_team *team)
{
    kb_dense *dense = run->dense;
    uint64_t rows = 0, rows_left = kb_rows_left(run);
    int any = 0;

    for (uint32_t i = 0; i < dense->count; i++) {
        kb_rectangles *each = dense->relations + i;
        uint32_t heads = each->shared ? each->relation->rows - each->written : 0;

        if (each->shared)
            kb_mixed_take_heads(dense, each);
        kb_find_new_bits(dense, team, each);
        any |= each->fresh_bits != 0;
        rows += each->fresh_bits - heads;     /* heads are counted */
        if (each->shared && rows <= rows_left && kb_mixed_write(dense, each) < 0)
            return KB_NOMEM;
    }
    if (component->mixed)
        any |= kb_mixed_end_round(run, component);
    run->left -= (int64_t)((uint64_t)dense->count * dense->size * dense->words / KB_WORDS_PER_STEP);
    run->stats.rows_made += rows < rows_left ? rows : rows_left;
    if (rows > rows_left) {
        run->stats.budget = KB_BUDGET_ROWS;
        return KB_LIMIT;
    }
    run->stats.rounds += any;
    return any ? KB_OK : KB_DONE;
}

/* Make the rectangle of a relation its set. Its new rows are counted, but their cells are not
 * written. */
static kb_status keep(kb_run *run, const kb_component *component, kb_rectangles *each, kb_team *team)
{
    kb_dense *dense = run->dense;
    kb_relation *relation = each->relation;
    uint64_t **words = each->full;
    size_t size = (size_t)dense->size * dense->words;
    uint64_t cells = each->bits * 2 * sizeof *relation->cells;

    if (!each->shared && run->heap.max != 0 && run->heap.used + cells > run->heap.max) {
        run->heap.refused = 1;        /* the rows could not be read */
        return KB_NOMEM;
    }
    if (each->primary == 1) {
        kb_add_exchanged(dense, team, each->full[1], each->next[1]);
        words = each->next;
    }
    kb_release(relation->heap, relation->slots);
    relation->slots = NULL;
    relation->slot_mask = relation->placed = 0;
    if (each->shared)
        relation->matrix.words = NULL;        /* the same memory */
    kb_bits_free(relation);
    kb_index_free_all(relation);
    relation->matrix.words = words[each->primary];
    words[each->primary] = NULL;
    relation->matrix.top = dense->first;
    relation->matrix.height = dense->size;
    relation->matrix.left = dense->first / 64;
    relation->matrix.width = dense->words;
    relation->matrix.filled = 0;
    for (size_t i = 0; i < size; i++)
        relation->matrix.filled += relation->matrix.words[i] != 0;
    relation->unwritten = (uint32_t)each->bits - relation->rows;
    relation->rows = (uint32_t)each->bits;
    for (uint32_t mark = component->first_mark; mark < component->first_mark + component->marks; mark++)
        if (run->plan->marks[mark] == each->slot)
            run->high[mark] = relation->rows;
    if (size / MAX_WORDS_PER_RESULT_ROW <= each->bits)
        return KB_OK;
    if (kb_relation_write(relation) < 0)   /* cells and a table take less memory */
        return KB_NOMEM;
    kb_matrix_free(relation);
    return KB_OK;
}

/* Evaluate a rule by rows of bits, from where it was paused. Return KB_DONE at its end. */
static kb_status work_bits(kb_run *run, const kb_rule *rule, kb_team *team)
{
    kb_dense *dense = run->dense;
    kb_cursor *cursor;
    kb_status status;
    kb_pair_rule form;

    kb_pair_rule_read(run->plan, rule, &form);
    if (!dense->in_rule && (status = test_guards(run, rule, &form)) != KB_OK)
        return status;
    cursor = run->cursors + (form.probe == NULL ? 0 : form.probe - (run->plan->steps + rule->first));
    if (!dense->in_rule && (status = start_rule(run, &form, cursor)) < 0)
        return status;
    status = form.tests_pairs ? test_pairs(run, &form) : work_rule(run, &form, cursor, team);
    if (status != KB_OK)
        return status;
    dense->in_rule = 0;
    return KB_DONE;
}

static kb_status run_rounds(kb_run *run, const kb_component *component, kb_team *team)
{
    kb_dense *dense = run->dense;
    kb_status status = KB_OK;

    for (uint32_t last = run->rule;; run->rule = component->first_rule) {
        for (; run->rule < component->first_rule + component->rules; run->rule++) {
            const kb_rule *rule = run->plan->rules + run->rule;

            if (!kb_reads_new_rows(run->plan, component, rule))
                continue;
            status = rule->by_bits ? work_bits(run, rule, team) : kb_rule_evaluate(run, rule);
            if (status != KB_DONE)
                return status;
            last = run->rule;
        }
        run->rule = last;             /* which is reported if a budget is spent */
        if ((status = end_round(run, component, team)) != KB_OK)
            break;
    }
    for (uint32_t i = 0; i < dense->count && status == KB_DONE; i++)
        if (keep(run, component, dense->relations + i, team) < 0)
            status = KB_NOMEM;
    return status;
}

kb_status kb_dense_run(kb_run *run, const kb_component *component)
{
    kb_team team;
    kb_status status;

    kb_team_start(&team, run->dense->worker_count);
    status = run_rounds(run, component, &team);
    kb_team_stop(&team);
    if (status == KB_DONE || status == KB_LIMIT || status == KB_NOMEM)
        kb_dense_end(run);
    return status;
}
