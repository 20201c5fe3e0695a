/* linear.c - recognises components that are linear recursion, whose rounds need not be separated.
 * Owns: this analysis, when a plan is loaded. Never: runs anything. */
#include "run/machine.h"

static int reads_slot(const kb_step *step, uint32_t slot)
{
    return kb_step_reads(step) && step->slot == slot;
}

/* Return 1 if the step tests one row of the recursion without a loop. */
static int is_guard(const kb_step *step)
{
    return (step->op == KB_OP_SCAN && step->arity == 0) || step->op == KB_OP_MEMBER || step->op == KB_OP_ABSENT
           || step->op == KB_OP_COMPARE;
}

/* Return 1 if the rule is SCAN target DELTA, steps that do not read the target, EMIT target. */
static int is_linear(const kb_plan *plan, const kb_rule *rule)
{
    const kb_step *steps = plan->steps + rule->first, *emit = steps + rule->count - 1;

    if (rule->count < 2 || steps->op != KB_OP_SCAN || steps->view != KB_VIEW_DELTA || steps->slot != emit->slot)
        return 0;
    for (uint32_t i = 1; i + 1 < rule->count; i++)
        if (reads_slot(steps + i, emit->slot) || (kb_step_reads_view(steps + i) && steps[i].view == KB_VIEW_DELTA))
            return 0;
    return 1;
}

/* For a linear rule of the form SCAN, guards, PROBE, EMIT: return the column that is carried over
 * unchanged, or KB_FIXED if there is only one column. KB_NONE: the rule has another form. */
static uint32_t carried_column(const kb_plan *plan, const kb_rule *rule)
{
    const kb_step *steps = plan->steps + rule->first, *emit = steps + rule->count - 1, *probe = emit - 1;
    const kb_pair *loads = plan->pairs + steps->pairs, *heads = plan->pairs + emit->pairs;

    if (rule->count < 3 || steps->loads != steps->arity || probe->op != KB_OP_PROBE || probe->sames != 0 || emit->loads != 1
        || emit->arity == 0 || emit->arity > 2)
        return KB_NONE;
    for (uint32_t i = 1; i + 2 < rule->count; i++)
        if (!is_guard(steps + i))
            return KB_NONE;
    if (emit->arity == 1)
        return KB_FIXED;
    for (uint32_t column = 0; column < 2; column++)
        for (uint32_t i = 0; i < steps->loads; i++)
            if (loads[i].column == column && heads[column].with == loads[i].with)
                return column;
    return KB_NONE;
}

/* Return 1 if the rule has nothing to do after the first round, since the component does not emit
 * to the relation whose DELTA it reads. */
static int runs_once(const kb_plan *plan, const kb_rule *rule, uint32_t target)
{
    for (uint32_t i = 0; i < rule->count; i++) {
        const kb_step *step = plan->steps + rule->first + i;

        if (kb_step_reads_view(step) && step->view == KB_VIEW_DELTA && step->slot != target)
            return 1;
    }
    return !rule->viewed;
}

void kb_mark_linear(kb_plan *plan, kb_component *component)
{
    uint32_t end = component->first_rule + component->rules, column = KB_NONE, linear = 0, grouped = 0;

    if (!component->recursive || component->rules == 0)
        return;
    component->target = plan->steps[plan->rules[end - 1].first + plan->rules[end - 1].count - 1].slot;
    for (uint32_t r = component->first_rule; r < end; r++) {
        kb_rule *rule = plan->rules + r;

        if (plan->steps[rule->first + rule->count - 1].slot != component->target)
            return;
        if (is_linear(plan, rule)) {
            uint32_t rule_column = carried_column(plan, rule);

            grouped += rule_column != KB_NONE && (linear == 0 || rule_column == column);
            column = rule_column;
            rule->linear = ++linear;
        } else if (!runs_once(plan, rule, component->target)) {
            return;
        }
    }
    if (plan->slots[component->target].best) {
        component->best_first = linear != 0 && kb_keeps_best(plan->slots + component->target);
        return;
    }
    component->live = linear == 1;
    component->linear = grouped == linear && linear <= KB_QUEUES ? linear : 0;
    component->carried = (uint8_t)column;
}
