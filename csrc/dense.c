/* dense.c - recursion over relations of two columns, whole rows of bits at a time.
 * Owns: the rectangles of a component while it is evaluated this way. Never: runs the first round of
 * a pass, or a rule of another form.
 *
 * In `h(x, z) :- b(y, x), p(y, z)` the second column of p passes through. So for each y and each x
 * that b has for it, the row of x in h receives the row of y in p: 64 pairs with one OR. Every rule of
 * the component has this form, or the mirrored one, which works on columns instead of rows, or copies
 * a relation. A round reads the bits that are new in the last round and collects heads; its end finds
 * the bits among them that are new. The cells of the relation are written when they are first read
 * (kb_relation_write), so a result that is only counted stays a rectangle. */
#include "cursor.h"

#define MIN_ROWS 4096u                /* with fewer rows the rectangles do not pay */
#define MAX_WORDS_PER_ROW 32u         /* words of a rectangle for each new row at the start */
#define MAX_SIZE 16384u               /* values of a column; a round then ends within milliseconds */
#define MAX_RELATIONS 8u
#define WORDS_PER_STEP 8u             /* words processed for one step of fuel */
#define PROBED 2u                     /* number of the value that a rule's probe loads */
#define VALUES 3u                     /* of a rule that can be tested */
#define CHECK_ROWS 16u                /* rows joined between two tests whether a head row is complete */

/* A rule: rows of `from` that are new, joined by their column `join` with `with`. The other column of
 * `from` is column `keep` of the head. Without a join the columns are copied, or exchanged if keep is
 * 0 and join 0. */
typedef struct dense_rule {
    uint32_t from, head, join, keep;
    uint32_t with, key;               /* KB_NONE: no join; the column of `with` that is looked up */
    const kb_step *probe;
} dense_rule;

/* The rectangles of a relation by orientation: 0 as it is, 1 with the columns exchanged. */
typedef struct dense_relation {
    kb_relation *relation;
    uint32_t slot, primary;           /* primary: the orientation in which new bits are found */
    uint8_t used[2];
    uint64_t *full[2], *fresh[2], *next[2];
    uint32_t *ranges[2];              /* of a row of `fresh`: first word << 16 | end, 0: empty */
    uint64_t bits, fresh_bits;
} dense_relation;

struct kb_dense {
    dense_relation relations[MAX_RELATIONS];
    uint32_t count, first, size, words;   /* first: the symbol of bit 0, a multiple of 64 */
    uint32_t row;                     /* of the current rule: the next row of `fresh` */
    uint64_t *masks[VALUES];          /* by value of a rule: those that pass the guards */
    uint64_t *passed, *joined;        /* the words of a row that pass; those that are joined to a head
                                       * row */
    uint64_t *reachable, *missing;    /* bits that a rule can add to any head row; to the current one */
    uint8_t is_masked[VALUES];
    uint8_t in_rule, by_pairs;        /* by_pairs: one OR for each new pair, not for each pair of
                                       * `with` */
};

/* Return 1 if the step tests one value of a rule, in `value`: 0 and 1 are the columns of the scanned
 * row, PROBED is the value that the probe loads, KB_FIXED none of them. */
static int is_guard(const kb_plan *plan, const kb_step *scan, const kb_step *probe, const kb_step *step, uint32_t *value)
{
    const kb_pair *loads = plan->pairs + scan->pairs, *keys = plan->pairs + step->pairs;
    uint32_t registers[2] = { step->a, step->b }, count = 2, shared = 0;

    *value = KB_FIXED;
    if (step->op == KB_OP_SCAN)
        return step->arity == 0 && step->view != KB_VIEW_DELTA;
    if (step->op != KB_OP_COMPARE && (step->keys != step->arity || step->arity > 2
                                      || (step->op != KB_OP_ABSENT && (step->op != KB_OP_MEMBER || step->view == KB_VIEW_DELTA))))
        return 0;
    for (uint32_t i = 0; step->op != KB_OP_COMPARE && i < step->keys; i++)
        registers[i] = keys[i].with;
    if (step->op != KB_OP_COMPARE)
        count = step->keys;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = registers[i] == loads[0].with ? loads[0].column : registers[i] == loads[1].with ? loads[1].column : KB_FIXED;

        if (probe != NULL && registers[i] == plan->pairs[probe->pairs + probe->keys].with)
            from = PROBED;
        if (from == KB_FIXED && registers[i] >= plan->param_count)
            return 0;
        shared |= from != KB_FIXED && *value != KB_FIXED && from != *value;
        *value = from == KB_FIXED ? *value : from;
    }
    return !shared;
}

/* Return the step that reads rows by one column and loads the other; NULL if the rule has none. */
static const kb_step *find_probe(const kb_plan *plan, const kb_rule *rule)
{
    for (uint32_t i = 1; i + 1 < rule->count; i++) {
        const kb_step *step = plan->steps + rule->first + i;

        if (step->op == KB_OP_PROBE && step->arity == 2 && step->keys == 1 && step->loads == 1 && !step->intersects)
            return step;
    }
    return NULL;
}

/* Read the form of a rule. Return 0 if it has another one. */
static int read_rule(const kb_plan *plan, const kb_rule *rule, dense_rule *out)
{
    const kb_step *scan = plan->steps + rule->first, *emit = scan + rule->count - 1, *probe = find_probe(plan, rule);
    const kb_pair *loads = plan->pairs + scan->pairs, *heads = plan->pairs + emit->pairs;
    uint32_t registers[2] = { 0, 0 }, value, kept_register;

    if (rule->count < 2 || scan->op != KB_OP_SCAN || scan->view != KB_VIEW_DELTA || scan->arity != 2
        || scan->loads != 2 || emit->arity != 2)
        return 0;
    registers[loads[0].column] = loads[0].with;
    registers[loads[1].column] = loads[1].with;
    memset(out, 0, sizeof *out);
    out->from = scan->slot;
    out->head = emit->slot;
    out->with = KB_NONE;
    for (const kb_step *step = scan + 1; step < emit; step++)
        if (step != probe && !is_guard(plan, scan, probe, step, &value))
            return 0;
    if (probe == NULL) {
        out->keep = heads[0].with == registers[0];
        return (heads[0].with == registers[0] && heads[1].with == registers[1])
               || (heads[0].with == registers[1] && heads[1].with == registers[0]);
    }
    if (probe->view == KB_VIEW_DELTA)
        return 0;
    loads = plan->pairs + probe->pairs;
    if (loads[0].with != registers[0] && loads[0].with != registers[1])
        return 0;
    out->with = probe->slot;
    out->key = loads[0].column;
    out->join = loads[0].with == registers[1];
    out->probe = probe;
    value = loads[1].with;
    kept_register = registers[1 - out->join];
    out->keep = heads[1].with == kept_register;
    return heads[out->keep].with == kept_register && heads[1 - out->keep].with == value && kept_register != value;
}

/* Return 1 if the component emits to the slot. */
static int emits_to(const kb_plan *plan, const kb_component *component, uint32_t slot)
{
    return plan->slots[slot].component == (uint32_t)(component - plan->components) + 1;
}

/* Return 1 if the rule reads rows that a round of its component has made. */
static int reads_new_rows(const kb_plan *plan, const kb_component *component, const kb_rule *rule)
{
    for (uint32_t i = 0; i < rule->count; i++) {
        const kb_step *step = plan->steps + rule->first + i;

        if (kb_step_reads_view(step) && step->view == KB_VIEW_DELTA && emits_to(plan, component, step->slot))
            return 1;
    }
    return 0;
}

/* Return 1 if a guard of the rule reads a relation of the component, which changes. */
static int reads_target(const kb_plan *plan, const kb_component *component, const kb_rule *rule)
{
    for (uint32_t i = 1; i + 1 < rule->count; i++) {
        const kb_step *step = plan->steps + rule->first + i;

        if (kb_step_reads(step) && step->op != KB_OP_PROBE && emits_to(plan, component, step->slot))
            return 1;
    }
    return 0;
}

void kb_mark_dense(const kb_plan *plan, kb_component *component)
{
    uint32_t relations = 0;
    dense_rule form;

    if (!component->recursive)
        return;
    for (uint32_t slot = 0; slot < plan->slot_count; slot++)
        if (emits_to(plan, component, slot)) {
            relations++;
            if (plan->slots[slot].arity != 2)
                return;
        }
    if (relations == 0 || relations > MAX_RELATIONS)
        return;
    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++)
        if (reads_new_rows(plan, component, plan->rules + r)
            && (!read_rule(plan, plan->rules + r, &form) || reads_target(plan, component, plan->rules + r)))
            return;
    component->dense = 1;
}

static dense_relation *find(kb_dense *dense, uint32_t slot)
{
    for (uint32_t i = 0; i < dense->count; i++)
        if (dense->relations[i].slot == slot)
            return dense->relations + i;
    return NULL;
}

static uint64_t *row_of(const kb_dense *dense, uint64_t *words, uint32_t row)
{
    return words + (size_t)row * dense->words;
}

/* Widen the range of symbols to those in some columns of a relation. */
static void widen(const kb_relation *relation, uint32_t first, uint32_t end, uint32_t *low, uint32_t *high)
{
    for (uint32_t id = 0; id < relation->rows; id++)
        for (uint32_t column = first; column < end; column++) {
            kb_sym value = kb_row(relation, id)[column];

            *low = value < *low ? value : *low;
            *high = value > *high ? value : *high;
        }
}

/* Set the size of the rectangles. Return 0 if there are too few new rows for it. */
static int fits(kb_dense *dense, uint64_t rows, uint32_t low, uint32_t high)
{
    dense->first = low & ~63u;
    if (high - dense->first >= MAX_SIZE)
        return 0;
    dense->words = (high - dense->first) / 64 + 1;
    dense->size = dense->words * 64;
    return (uint64_t)dense->size * dense->words / MAX_WORDS_PER_ROW <= rows;
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
    dense_rule rule;

    for (uint32_t slot = 0; slot < plan->slot_count; slot++)
        if (emits_to(plan, component, slot)) {
            kb_relation *relation = run->slots[slot];

            if (relation->by_id || kb_relation_write(relation) < 0)
                return 0;
            dense->relations[dense->count].slot = slot;
            dense->relations[dense->count++].relation = relation;
            rows += relation->rows - first_new_row(run, component, slot);
        }
    if (rows < MIN_ROWS || rows < run->dense_retry)
        return 0;
    run->dense_retry = rows * 2;
    for (uint32_t i = 0; i < dense->count; i++)
        widen(dense->relations[i].relation, 0, 2, &low, &high);
    if (!fits(dense, rows, low, high))
        return 0;
    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++) {
        kb_relation *with;

        if (!reads_new_rows(plan, component, plan->rules + r))
            continue;
        read_rule(plan, plan->rules + r, &rule);
        if (rule.with == KB_NONE || find(dense, rule.with) != NULL)
            continue;
        with = run->slots[rule.with];
        if (kb_relation_write(with) < 0)
            return 0;
        widen(with, 1 - rule.key, 2 - rule.key, &low, &high);
    }
    return fits(dense, rows, low, high);
}

/* Note the orientations that the rules use. */
static void choose_orientations(const kb_run *run, const kb_component *component, kb_dense *dense)
{
    dense_rule rule;

    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++) {
        dense_relation *from, *head, *with;

        if (!reads_new_rows(run->plan, component, run->plan->rules + r))
            continue;
        read_rule(run->plan, run->plan->rules + r, &rule);
        from = find(dense, rule.from);
        head = find(dense, rule.head);
        from->used[rule.join] = 1;
        head->used[1 - rule.keep] = 1;
        if (rule.with == KB_NONE || (with = find(dense, rule.with)) == NULL)
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

    if ((dense->passed = kb_alloc(&run->heap, (size_t)dense->words * (4 + VALUES), sizeof *dense->passed)) == NULL)
        return 0;
    for (uint32_t value = 0; value < VALUES; value++)
        dense->masks[value] = dense->passed + (size_t)dense->words * (4 + value);
    dense->joined = dense->passed + dense->words;
    dense->reachable = dense->joined + dense->words;
    dense->missing = dense->reachable + dense->words;
    for (uint32_t i = 0; i < dense->count; i++)
        for (uint32_t side = 0; side < 2; side++) {
            dense_relation *each = dense->relations + i;

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
            kb_release(&run->heap, dense->relations[i].full[side]);
            kb_release(&run->heap, dense->relations[i].fresh[side]);
            kb_release(&run->heap, dense->relations[i].next[side]);
            kb_release(&run->heap, dense->relations[i].ranges[side]);
        }
    if (dense != NULL)
        kb_release(&run->heap, dense->passed);
    kb_release(&run->heap, dense);
    run->dense = NULL;
}

static uint32_t count_bits(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    return (uint32_t)(word * UINT64_C(0x0101010101010101) >> 56);
}

/* Exchange rows and columns of a square of 64 by 64 bits (Warren, "Hacker's Delight", 7-3). */
static void transpose_square(uint64_t square[64])
{
    uint64_t mask = UINT64_C(0x00000000FFFFFFFF);

    for (uint32_t step = 32; step != 0; step >>= 1, mask ^= mask << step)
        for (uint32_t i = 0; i < 64; i = ((i | step) + 1) & ~step) {
            uint64_t swap = (square[i] >> step ^ square[i | step]) & mask;

            square[i] ^= swap << step;
            square[i | step] ^= swap;
        }
}

/* Add the bits of a rectangle, with its columns exchanged, to another one. */
static void add_transposed(const kb_dense *dense, const uint64_t *from, uint64_t *to)
{
    uint64_t square[64];

    for (uint32_t top = 0; top < dense->words; top++)
        for (uint32_t left = 0; left < dense->words; left++) {
            const uint64_t *words = from + (size_t)top * 64 * dense->words + left;
            uint64_t any = 0;

            for (uint32_t i = 0; i < 64; i++)
                any |= square[i] = words[(size_t)i * dense->words];
            if (any == 0)
                continue;
            transpose_square(square);
            for (uint32_t i = 0; i < 64; i++)
                to[((size_t)left * 64 + i) * dense->words + top] |= square[i];
        }
}

/* Note which words of the rows of `fresh` are not 0. */
static void measure_rows(const kb_dense *dense, dense_relation *each, uint32_t side)
{
    for (uint32_t row = 0; row < dense->size; row++) {
        const uint64_t *words = row_of(dense, each->fresh[side], row);
        uint32_t first = 0, end = dense->words;

        while (first < end && words[first] == 0)
            first++;
        while (end > first && words[end - 1] == 0)
            end--;
        each->ranges[side][row] = first == end ? 0 : first << 16 | end;
    }
}

/* Find the bits of `next` that are new: they become `fresh` and part of `full`. */
static void find_new_bits(const kb_dense *dense, dense_relation *each)
{
    size_t words = (size_t)dense->size * dense->words;
    uint32_t side = each->primary, other = 1 - side;
    uint64_t *full = each->full[side], *fresh = each->fresh[side], *next = each->next[side];

    if (each->used[other]) {
        add_transposed(dense, each->next[other], next);
        memset(each->next[other], 0, words * sizeof *next);
        memset(each->fresh[other], 0, words * sizeof *next);
    }
    each->fresh_bits = 0;
    for (size_t i = 0; i < words; i++) {
        uint64_t bits = next[i] & ~full[i];

        fresh[i] = bits;
        full[i] |= bits;
        next[i] = 0;
        if (bits != 0)
            each->fresh_bits += count_bits(bits);
    }
    each->bits += each->fresh_bits;
    measure_rows(dense, each, side);
    if (each->used[other]) {
        add_transposed(dense, fresh, each->fresh[other]);
        for (size_t i = 0; i < words; i++)
            each->full[other][i] |= each->fresh[other][i];
        measure_rows(dense, each, other);
    }
}

/* Set the bits of some rows. */
static void add_cells(const kb_dense *dense, const kb_relation *relation, uint32_t id, uint32_t end, uint32_t side, uint64_t *words)
{
    for (; id < end; id++) {
        const kb_sym *cells = kb_row(relation, id);
        uint32_t bit = cells[1 - side] - dense->first;

        row_of(dense, words, cells[side] - dense->first)[bit >> 6] |= UINT64_C(1) << (bit & 63);
    }
}

void kb_dense_begin(kb_run *run, const kb_component *component)
{
    kb_dense dense;

    if (!component->dense || run->fresh || run->profile.rules != NULL)
        return;
    memset(&dense, 0, sizeof dense);
    if (!measure(run, component, &dense))
        return;
    choose_orientations(run, component, &dense);
    if ((run->dense = kb_alloc(&run->heap, 1, sizeof dense)) != NULL)
        *run->dense = dense;
    if (run->dense == NULL || !allocate(run, run->dense)) {
        kb_dense_end(run);
        run->heap.refused = 0;        /* the other evaluation may need less */
        run->dense_retry = UINT64_MAX;
        return;
    }
    for (uint32_t i = 0; i < dense.count; i++) {
        dense_relation *each = run->dense->relations + i;
        uint32_t first = first_new_row(run, component, each->slot);

        for (uint32_t side = 0; side < 2; side++)
            if (each->used[side])
                add_cells(&dense, each->relation, 0, first, side, each->full[side]);
        add_cells(&dense, each->relation, first, each->relation->rows, each->primary, each->next[each->primary]);
        each->bits = first;
        find_new_bits(&dense, each);
    }
}

/* Add words `range` of one row to another. */
static void add_row(kb_run *run, const uint64_t *from, uint64_t *to, uint32_t range)
{
    uint32_t first = range >> 16, end = range & 0xFFFF;

    for (uint32_t i = first; i < end; i++)
        to[i] |= from[i];
    run->left -= 1 + (end - first) / WORDS_PER_STEP;
    run->stats.probes++;
}

/* Return 1 if a value that the probe of the rule loads passes its guards. */
static int passes_probed(const kb_dense *dense, uint32_t bit)
{
    return !dense->is_masked[PROBED] || (dense->masks[PROBED][bit >> 6] >> (bit & 63) & 1);
}

/* Add a row of `from` to the head rows of all values that `with` has for it. */
static void join_row(kb_run *run, const dense_rule *rule, kb_cursor *cursor, const uint64_t *words, uint32_t row)
{
    kb_dense *dense = run->dense;
    dense_relation *from = find(dense, rule->from), *head = find(dense, rule->head), *with = find(dense, rule->with);
    uint64_t *heads = head->next[1 - rule->keep];
    uint32_t range = from->ranges[rule->join][row];

    if (with != NULL) {
        const uint64_t *values = row_of(dense, with->full[rule->key], row);

        for (uint32_t i = 0; i < dense->words; i++)
            for (uint64_t left = values[i]; left != 0; left &= left - 1) {
                uint32_t bit = i * 64 + KB_LOWEST_BIT(left);

                if (passes_probed(dense, bit))
                    add_row(run, words, row_of(dense, heads, bit), range);
            }
    } else {
        const kb_relation *relation = run->slots[rule->with];
        const uint32_t *list;

        run->registers[run->plan->pairs[rule->probe->pairs].with] = dense->first + row;
        kb_cursor_seek(run, rule->probe, cursor);
        list = cursor->at < cursor->end ? kb_index_list(cursor->index, cursor->entry) : NULL;
        for (; cursor->at < cursor->end; cursor->at++) {
            uint32_t bit = kb_row(relation, list[cursor->at])[1 - rule->key] - dense->first;

            if (kb_visible(relation, list[cursor->at]) && passes_probed(dense, bit))
                add_row(run, words, row_of(dense, heads, bit), range);
        }
    }
    run->left--;
}

/* Set `missing` to the bits that a rule can add to a head row. Return 0 if there are none. */
static int find_missing(kb_run *run, const dense_rule *rule, const dense_relation *head, uint32_t row)
{
    kb_dense *dense = run->dense;
    const uint64_t *full = row_of(dense, head->full[rule->keep], row), *next = row_of(dense, head->next[rule->keep], row);
    uint64_t any = 0;

    for (uint32_t i = 0; i < dense->words; i++)
        any |= dense->missing[i] = dense->reachable[i] & ~full[i] & ~next[i];
    run->left -= dense->words / WORDS_PER_STEP;
    return any != 0;
}

/* Return 1 if no bit is missing in a row. */
static int is_complete(kb_run *run, const uint64_t *words)
{
    const kb_dense *dense = run->dense;
    uint64_t any = 0;

    for (uint32_t i = 0; i < dense->words; i++)
        any |= dense->missing[i] & ~words[i];
    run->left -= dense->words / WORDS_PER_STEP;
    return any == 0;
}

/* Add to a head row the rows that `with` has for its new values, until no bit is missing: rows of a
 * dense result are complete after a few of them. */
static void join_pairs(kb_run *run, const dense_rule *rule, const uint64_t *words, uint32_t row)
{
    kb_dense *dense = run->dense;
    const dense_relation *from = find(dense, rule->from), *head = find(dense, rule->head), *with = find(dense, rule->with);
    uint64_t *to = row_of(dense, head->next[rule->keep], row), *joined = dense->joined;
    uint32_t range = from->ranges[1 - rule->join][row], count = 0, done = 0;

    if (!find_missing(run, rule, head, row))
        return;
    memset(joined, 0, dense->words * sizeof *joined);
    for (uint32_t i = range >> 16; i < (range & 0xFFFF) && !done; i++)
        for (uint64_t left = words[i]; left != 0 && !done; left &= left - 1) {
            add_row(run, row_of(dense, with->full[rule->key], i * 64 + KB_LOWEST_BIT(left)), joined, dense->words);
            done = (++count % CHECK_ROWS == 0 || (count & (count - 1)) == 0) && is_complete(run, joined);
        }
    for (uint32_t i = 0; i < dense->words; i++)
        to[i] |= joined[i] & dense->missing[i];
}

/* Evaluate the guards of a rule: `masks` receives those of each value that pass, where a guard tests
 * it. Return KB_DONE if no row passes. */
static kb_status test_guards(kb_run *run, const kb_rule *rule, const dense_rule *form)
{
    kb_dense *dense = run->dense;
    const kb_step *steps = run->plan->steps + rule->first;
    const kb_pair *loads = run->plan->pairs + steps->pairs;
    uint32_t value;

    memset(dense->is_masked, 0, sizeof dense->is_masked);
    for (uint32_t i = 1; i + 1 < rule->count; i++) {
        uint64_t *mask;
        uint32_t to;

        if (steps + i == form->probe || !is_guard(run->plan, steps, form->probe, steps + i, &value))
            continue;
        if (kb_step_start(run, steps + i, run->cursors + i) < 0)
            return KB_NOMEM;
        if (value == KB_FIXED) {
            if (!kb_step_holds(run, steps + i, run->cursors + i))
                return KB_DONE;
            continue;
        }
        to = value == PROBED ? run->plan->pairs[form->probe->pairs + 1].with : loads[loads[0].column != value].with;
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

/* Return the new bits of a row of `from` that pass the guards, NULL if the row itself does not. */
static const uint64_t *guarded_row(kb_dense *dense, const dense_relation *from, uint32_t side, uint32_t row)
{
    const uint64_t *words = row_of(dense, from->fresh[side], row), *mask = dense->masks[1 - side];
    uint32_t range = from->ranges[side][row];

    if (dense->is_masked[side] && !(dense->masks[side][row >> 6] >> (row & 63) & 1))
        return NULL;
    if (!dense->is_masked[1 - side])
        return words;
    for (uint32_t i = range >> 16; i < (range & 0xFFFF); i++)
        dense->passed[i] = words[i] & mask[i];
    return dense->passed;
}

/* Set `reachable` to the values that the probe of the current rule can load. */
static void find_reachable(kb_dense *dense, const uint64_t *words)
{
    memset(dense->reachable, 0, dense->words * sizeof *dense->reachable);
    for (uint32_t row = 0; row < dense->size; row++)
        for (uint32_t i = 0; i < dense->words; i++)
            dense->reachable[i] |= words[(size_t)row * dense->words + i];
    for (uint32_t i = 0; dense->is_masked[PROBED] && i < dense->words; i++)
        dense->reachable[i] &= dense->masks[PROBED][i];
}

/* Prepare a rule. For a join with a relation of the component, choose the way with fewer ORs. */
static kb_status start_rule(kb_run *run, const dense_rule *rule, kb_cursor *cursor)
{
    kb_dense *dense = run->dense;
    dense_relation *from = find(dense, rule->from), *with;
    uint64_t ors = 0;

    dense->row = 0;
    dense->by_pairs = 0;
    dense->in_rule = 1;
    if (rule->with == KB_NONE)
        return KB_OK;
    with = find(dense, rule->with);
    if (with == NULL)
        return kb_step_start(run, rule->probe, cursor);
    for (uint32_t row = 0; row < dense->size && ors < from->fresh_bits; row++)
        for (uint32_t i = 0; from->ranges[rule->join][row] != 0 && i < dense->words; i++)
            ors += count_bits(row_of(dense, with->full[rule->key], row)[i]);
    dense->by_pairs = ors >= from->fresh_bits;
    if (dense->by_pairs)
        find_reachable(dense, with->full[rule->key]);
    return KB_OK;
}

/* Evaluate one rule over the new rows of its relation. */
static kb_status work_rule(kb_run *run, const dense_rule *rule, kb_cursor *cursor)
{
    kb_dense *dense = run->dense;
    dense_relation *from = find(dense, rule->from), *head = find(dense, rule->head);
    uint32_t side = dense->by_pairs ? 1 - rule->join : rule->join;

    for (; dense->row < dense->size; dense->row++) {
        uint32_t range = from->ranges[side][dense->row];
        const uint64_t *words;

        if (range == 0)
            continue;
        if (run->left <= 0)
            return KB_PAUSED;
        if ((words = guarded_row(dense, from, side, dense->row)) == NULL)
            continue;
        if (rule->with == KB_NONE)
            add_row(run, words, row_of(dense, head->next[1 - rule->keep], dense->row), range);
        else if (dense->by_pairs)
            join_pairs(run, rule, words, dense->row);
        else
            join_row(run, rule, cursor, words, dense->row);
    }
    return KB_OK;
}

/* End a round. Return KB_DONE if no row is new. */
static kb_status end_round(kb_run *run)
{
    kb_dense *dense = run->dense;
    uint64_t rows = 0, rows_left = kb_rows_left(run);

    for (uint32_t i = 0; i < dense->count; i++) {
        find_new_bits(dense, dense->relations + i);
        rows += dense->relations[i].fresh_bits;
    }
    run->left -= (int64_t)((uint64_t)dense->count * dense->size * dense->words / WORDS_PER_STEP);
    run->stats.rows_made += rows < rows_left ? rows : rows_left;
    if (rows > rows_left) {
        run->stats.budget = KB_BUDGET_ROWS;
        return KB_LIMIT;
    }
    run->stats.rounds += rows != 0;
    return rows == 0 ? KB_DONE : KB_OK;
}

/* Make the rectangle of a relation its set. Its new rows are counted, but their cells are not
 * written. */
static kb_status keep(kb_run *run, const kb_component *component, dense_relation *each)
{
    kb_dense *dense = run->dense;
    kb_relation *relation = each->relation;
    uint64_t **words = each->full;
    size_t size = (size_t)dense->size * dense->words;
    uint64_t cells = each->bits * 2 * sizeof *relation->cells;

    if (run->heap.max != 0 && run->heap.used + cells > run->heap.max) {
        run->heap.refused = 1;        /* the rows could not be read */
        return KB_NOMEM;
    }
    if (each->primary == 1) {
        add_transposed(dense, each->full[1], each->next[1]);
        words = each->next;
    }
    kb_release(relation->heap, relation->slots);
    relation->slots = NULL;
    relation->slot_mask = relation->placed = 0;
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
    return KB_OK;
}

kb_status kb_dense_run(kb_run *run, const kb_component *component)
{
    kb_dense *dense = run->dense;
    kb_cursor *cursor;
    kb_status status = KB_OK;
    dense_rule form;

    for (uint32_t last = run->rule;; run->rule = component->first_rule) {
        for (; run->rule < component->first_rule + component->rules; run->rule++) {
            const kb_rule *rule = run->plan->rules + run->rule;

            if (!reads_new_rows(run->plan, component, rule))
                continue;
            read_rule(run->plan, rule, &form);
            if (!dense->in_rule && (status = test_guards(run, rule, &form)) < 0)
                return status;
            if (!dense->in_rule && status == KB_DONE)
                continue;
            cursor = run->cursors + (form.probe == NULL ? 0 : form.probe - (run->plan->steps + rule->first));
            if (!dense->in_rule && (status = start_rule(run, &form, cursor)) < 0)
                return status;
            if ((status = work_rule(run, &form, cursor)) != KB_OK)
                return status;
            dense->in_rule = 0;
            last = run->rule;
        }
        run->rule = last;             /* which is reported if a budget is spent */
        if ((status = end_round(run)) != KB_OK)
            break;
    }
    for (uint32_t i = 0; i < dense->count && status == KB_DONE; i++)
        if (keep(run, component, dense->relations + i) < 0)
            status = KB_NOMEM;
    kb_dense_end(run);
    return status;
}
