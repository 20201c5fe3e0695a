/* pairwise.c - recognises the rules that can be evaluated by whole rows of bits.
 * Owns: this analysis. Never: runs anything. */
#include "dense/dense.h"

/* Return 1 if a step is a test that rows of bits can make: a comparison, or a look-up of at most
 * two values in a view that does not change during a round. */
static int is_test(const kb_step *step)
{
    if (step->op == KB_OP_COMPARE)
        return 1;
    if (step->keys != step->arity || step->arity > 2)
        return 0;
    return step->op == KB_OP_ABSENT || (step->op == KB_OP_MEMBER && step->view != KB_VIEW_DELTA);
}

int kb_is_guard(const kb_plan *plan, const kb_step *scan, const kb_step *probe, const kb_step *step, uint32_t *value)
{
    const kb_pair *loads = plan->pairs + scan->pairs, *keys = plan->pairs + step->pairs;
    uint32_t registers[2] = { step->a, step->b }, count = 2, both = 0;

    *value = KB_FIXED;
    if (step->op == KB_OP_SCAN)
        return step->arity == 0 && step->view != KB_VIEW_DELTA;
    if (!is_test(step))
        return 0;
    if (step->op != KB_OP_COMPARE) {
        count = step->keys;
        for (uint32_t i = 0; i < count; i++)
            registers[i] = keys[i].with;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = registers[i] == loads[0].with ? loads[0].column : registers[i] == loads[1].with ? loads[1].column : KB_FIXED;

        if (probe != NULL && registers[i] == plan->pairs[probe->pairs + probe->keys].with)
            from = KB_PROBED;
        if (from == KB_FIXED && registers[i] >= plan->param_count)
            return 0;
        if (from != KB_FIXED && *value != KB_FIXED && from != *value)
            both = 1;
        *value = from == KB_FIXED ? *value : from;
    }
    if (!both)
        return 1;
    *value = KB_BOTH;                 /* only without a probe, whose value may not be one of them */
    return probe == NULL;
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

int kb_pair_rule_read(const kb_plan *plan, const kb_rule *rule, kb_pair_rule *out)
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
    for (const kb_step *step = scan + 1; step < emit; step++) {
        if (step != probe && !kb_is_guard(plan, scan, probe, step, &value))
            return 0;
        out->tests_pairs |= step != probe && value == KB_BOTH;
    }
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

int kb_emits_to(const kb_plan *plan, const kb_component *component, uint32_t slot)
{
    return plan->slots[slot].component == (uint32_t)(component - plan->components) + 1;
}

int kb_reads_new_rows(const kb_plan *plan, const kb_component *component, const kb_rule *rule)
{
    for (uint32_t i = 0; i < rule->count; i++) {
        const kb_step *step = plan->steps + rule->first + i;

        if (kb_step_reads_view(step) && step->view == KB_VIEW_DELTA && kb_emits_to(plan, component, step->slot))
            return 1;
    }
    return 0;
}

int kb_is_row_guard(const kb_plan *plan, const kb_rule *rule, const kb_step *step)
{
    const kb_step *emit = plan->steps + rule->first + rule->count - 1;
    uint32_t value;

    return step->op == KB_OP_MEMBER && plan->slots[step->slot].bits
           && plan->slots[step->slot].component == plan->slots[emit->slot].component && kb_is_guard(plan, plan->steps + rule->first, NULL, step, &value)
           && value == KB_BOTH;
}

/* Return 1 if the guards of the rule that read relations of the component, which change, test both
 * columns of its row. */
static int has_fixed_guards(const kb_plan *plan, const kb_component *component, const kb_rule *rule, const kb_pair_rule *form)
{
    const kb_step *scan = plan->steps + rule->first;
    uint32_t value;

    for (const kb_step *step = scan + 1; step < scan + rule->count - 1; step++)
        if (kb_step_reads(step) && step != form->probe && kb_emits_to(plan, component, step->slot)
            && (step->op != KB_OP_MEMBER || !kb_is_guard(plan, scan, form->probe, step, &value) || value != KB_BOTH))
            return 0;
    return 1;
}

/* Mark the relations of the component that a rule reads or writes by rows of bits. */
static void mark_relations(kb_plan *plan, const kb_component *component, const kb_rule *rule)
{
    for (uint32_t i = 0; i < rule->count; i++) {
        const kb_step *step = plan->steps + rule->first + i;

        if ((kb_step_reads(step) || step->op == KB_OP_EMIT) && kb_emits_to(plan, component, step->slot))
            plan->slots[step->slot].bits = 1;
    }
}

void kb_mark_dense(kb_plan *plan, kb_component *component)
{
    uint32_t relations = 0, joins = 0, others = 0, own = 0;
    kb_pair_rule form;

    if (!component->recursive)
        return;
    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++) {
        kb_rule *rule = plan->rules + r;

        if (!kb_reads_new_rows(plan, component, rule))
            continue;
        if (kb_rule_has_new_symbols(plan, rule) || plan->slots[plan->steps[rule->first + rule->count - 1].slot].best)
            return;
        rule->by_bits = kb_pair_rule_read(plan, rule, &form) && has_fixed_guards(plan, component, rule, &form);
        joins += rule->by_bits && form.with != KB_NONE;
        others += !rule->by_bits;
    }
    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++)
        if (plan->rules[r].by_bits)
            mark_relations(plan, component, plan->rules + r);
    for (uint32_t slot = 0; slot < plan->slot_count; slot++) {
        relations += plan->slots[slot].bits && kb_emits_to(plan, component, slot);
        own += kb_emits_to(plan, component, slot);
    }
    component->mixed = others != 0 || own != relations;
    component->dense = relations != 0 && relations <= KB_DENSE_RELATIONS && (joins != 0 || !component->mixed);
}
