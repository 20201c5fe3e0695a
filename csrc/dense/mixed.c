/* mixed.c - rules of any form in a component that is evaluated by rows of bits.
 * Owns: the rows of the relations that such rules share with rows of bits. Never: applies a rule;
 * that is run.c, between the rules of dense.c.
 * The rectangle of a shared relation is also its set, and the bits that a round finds are written
 * as rows, so the rules read its views and add heads as ever. The heads of a round become new bits
 * at its end. No head can be outside the rectangle, because it spans all values that can get there:
 * those in the columns that the heads come from, followed back through the rules. */
#include "dense/dense.h"

kb_rectangles *kb_rectangles_of(kb_dense *dense, uint32_t slot)
{
    for (uint32_t i = 0; i < dense->count; i++)
        if (dense->relations[i].slot == slot)
            return dense->relations + i;
    return NULL;
}

void kb_widen(const kb_relation *relation, uint32_t first, uint32_t end, uint32_t *low, uint32_t *high)
{
    for (uint32_t id = 0; id < relation->rows; id++)
        for (uint32_t column = first; column < end; column++) {
            kb_sym value = kb_row(relation, id)[column];

            *low = value < *low ? value : *low;
            *high = value > *high ? value : *high;
        }
}

/* Return 1 if the rule is evaluated in later rounds, but not by bits. */
static int is_other(const kb_plan *plan, const kb_component *component, const kb_rule *rule)
{
    return !rule->by_bits && kb_reads_new_rows(plan, component, rule);
}

void kb_mixed_mark(const kb_run *run, const kb_component *component, kb_dense *dense)
{
    const kb_plan *plan = run->plan;

    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++) {
        const kb_rule *rule = plan->rules + r;

        for (uint32_t i = 0; is_other(plan, component, rule) && i < rule->count; i++) {
            const kb_step *step = plan->steps + rule->first + i;
            kb_rectangles *each = kb_step_reads(step) || step->op == KB_OP_EMIT ? kb_rectangles_of(dense, step->slot) : NULL;

            if (each != NULL)
                each->shared = each->used[0] = 1;
        }
    }
}

/* Note the column that a register of a rule is loaded from, or widen the range to its value if it
 * is a parameter. Return 1 if the column was not noted before. */
static int trace(const kb_run *run, const kb_rule *rule, uint32_t with, uint64_t *columns, uint32_t *low, uint32_t *high)
{
    const kb_step *steps = run->plan->steps + rule->first;

    for (uint32_t i = rule->count; i-- > 0 && with >= run->plan->param_count;) {
        const kb_pair *loads = run->plan->pairs + steps[i].pairs + steps[i].keys;

        if (steps[i].op == KB_OP_COPY && steps[i].a == with)
            with = steps[i].b;
        for (uint32_t j = 0; kb_step_reads_view(steps + i) && j < steps[i].loads; j++)
            if (loads[j].with == with) {
                uint64_t bit = UINT64_C(1) << loads[j].column;
                int is_new = !(columns[steps[i].slot] & bit);

                columns[steps[i].slot] |= bit;
                return is_new;
            }
    }
    if (with < run->plan->param_count) {
        *low = run->registers[with] < *low ? run->registers[with] : *low;
        *high = run->registers[with] > *high ? run->registers[with] : *high;
    }
    return 0;
}

/* Follow the columns of the heads that are noted back through the rules. Return 1 if a column was
 * added. */
static int trace_heads(const kb_run *run, const kb_component *component, uint64_t *columns, uint32_t *low, uint32_t *high)
{
    const kb_plan *plan = run->plan;
    int added = 0;

    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++) {
        const kb_rule *rule = plan->rules + r;
        const kb_step *emit = plan->steps + rule->first + rule->count - 1;
        const kb_pair *heads = plan->pairs + emit->pairs;

        for (uint32_t i = 0; is_other(plan, component, rule) && i < emit->arity; i++)
            if (columns[emit->slot] >> heads[i].column & 1)
                added |= trace(run, rule, heads[i].with, columns, low, high);
    }
    return added;
}

int kb_mixed_widen(kb_run *run, const kb_component *component, uint32_t *low, uint32_t *high)
{
    const kb_plan *plan = run->plan;
    uint64_t *columns = kb_alloc(&run->heap, plan->slot_count, sizeof *columns);

    if (columns == NULL)
        return 0;
    for (uint32_t slot = 0; slot < plan->slot_count; slot++)
        columns[slot] = plan->slots[slot].bits && kb_emits_to(plan, component, slot) ? 3 : 0;
    while (trace_heads(run, component, columns, low, high))
        ;
    for (uint32_t slot = 0; slot < plan->slot_count; slot++)
        for (uint32_t column = 0; column < plan->slots[slot].arity; column++)
            if (columns[slot] >> column & 1) {
                if (kb_relation_write(run->slots[slot]) < 0) {
                    kb_release(&run->heap, columns);
                    return 0;
                }
                kb_widen(run->slots[slot], column, column + 1, low, high);
            }
    kb_release(&run->heap, columns);
    return 1;
}

void kb_mixed_share(const kb_dense *dense, kb_rectangles *each)
{
    kb_relation *relation = each->relation;

    kb_release(relation->heap, relation->slots);
    relation->slots = NULL;
    relation->slot_mask = relation->placed = 0;
    kb_bits_free(relation);
    relation->matrix.words = each->full[0];
    relation->matrix.top = dense->first;
    relation->matrix.height = dense->size;
    relation->matrix.left = dense->first / 64;
    relation->matrix.width = dense->words;
    each->written = relation->rows;
}

void kb_mixed_take_heads(const kb_dense *dense, kb_rectangles *each)
{
    const kb_relation *relation = each->relation;

    for (uint32_t id = each->written; id < relation->rows; id++) {
        const kb_sym *cells = kb_row(relation, id);
        uint32_t bit = cells[1] - dense->first;
        size_t word = (size_t)(cells[0] - dense->first) * dense->words + (bit >> 6);

        each->full[0][word] &= ~(UINT64_C(1) << (bit & 63));
        each->next[0][word] |= UINT64_C(1) << (bit & 63);
    }
}

/* Remove the heads of the round from the new bits, or add them again. */
static void change_fresh(const kb_dense *dense, kb_rectangles *each, uint32_t heads)
{
    for (uint32_t id = each->written; id < heads; id++) {
        const kb_sym *cells = kb_row(each->relation, id);
        uint32_t bit = cells[1] - dense->first;

        kb_bit_row(dense, each->fresh[0], cells[0] - dense->first)[bit >> 6] ^= UINT64_C(1) << (bit & 63);
    }
}

kb_status kb_mixed_write(const kb_dense *dense, kb_rectangles *each)
{
    kb_relation *relation = each->relation;
    uint32_t heads = relation->rows;
    uint64_t bits = each->fresh_bits - (heads - each->written);

    if (bits > KB_MAX_ROWS || kb_relation_reserve(relation, (uint32_t)bits) < 0)
        return KB_NOMEM;
    change_fresh(dense, each, heads);
    for (uint32_t row = 0; row < dense->size && bits != 0; row++) {
        const uint64_t *fresh = kb_bit_row(dense, each->fresh[0], row);
        uint32_t range = each->ranges[0][row];

        for (uint32_t i = range >> 16; i < (range & 0xFFFF); i++)
            for (uint64_t left = fresh[i]; left != 0; left &= left - 1) {
                kb_sym *cells = kb_row(relation, relation->rows++);

                cells[0] = dense->first + row;
                cells[1] = dense->first + i * 64 + KB_LOWEST_BIT(left);
            }
    }
    change_fresh(dense, each, heads);
    each->written = relation->rows;
    return kb_indexes_extend(relation, heads);
}

int kb_mixed_end_round(kb_run *run, const kb_component *component)
{
    int any = 0;

    for (uint32_t mark = component->first_mark; mark < component->first_mark + component->marks; mark++) {
        uint32_t slot = run->plan->marks[mark], rows = run->slots[slot]->rows;

        if (!kb_emits_to(run->plan, component, slot))
            continue;
        any |= !run->plan->slots[slot].bits && rows != run->high[mark];
        run->low[mark] = run->high[mark];
        run->high[mark] = rows;
    }
    return any;
}
