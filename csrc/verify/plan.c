/* plan.c - loads and frees plans, and checks what only the whole plan shows.
 * Owns: the opcode table, the order of components, which slots must not grow under a run. Never:
 * runs anything. What passes here and in decode.c is run without bounds checks. */
#include "run/machine.h"

static const struct { const char *name; int32_t operands; } opcodes[KB_OPCODES] = {
    { "END", 0 }, { "COMPONENT", 2 }, { "RULE", 2 }, { "SCAN", -1 }, { "PROBE", -1 }, { "MEMBER", -1 },
    { "ABSENT", -1 }, { "COMPARE", 3 }, { "COPY", 2 }, { "EMIT", -1 }, { "CALL", -1 }, { "AGGREGATE", -1 },
    { "TEST", 3 }, { "MATCHES", -1 }, { "EQUAL", 2 }, { "INTERSECT", -1 },
    { "CAPTURE", -1 }, { "GENERATE", -1 },
};

/* Return 1 if the step reads only what is complete by then; components count from 1. */
static int in_order(const kb_plan *plan, const kb_component *component, uint32_t number, const kb_step *step)
{
    const kb_slot *slot = plan->slots + step->slot;

    if (!kb_step_reads(step))
        return 1;
    if (step->op == KB_OP_ABSENT || step->op == KB_OP_AGGREGATE)
        return !slot->derived || (slot->component != 0 && slot->component < number);
    return slot->component < number || (slot->component == number && component->recursive);
}

static int check_order(const kb_plan *plan, size_t *bad_word)
{
    for (uint32_t c = 0; c < plan->component_count; c++) {
        const kb_component *component = plan->components + c;

        for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++)
            for (uint32_t s = plan->rules[r].first; s < plan->rules[r].first + plan->rules[r].count; s++)
                if (!in_order(plan, component, c + 1, plan->steps + s)) {
                    *bad_word = plan->steps[s].word;
                    return 0;
                }
    }
    return 1;
}

/* Return 1 if better rows replace others. */
int kb_keeps_best(const kb_slot *slot)
{
    return slot->best == KB_BEST_LEAST || slot->best == KB_BEST_GREATEST;
}

/* Mark the slots with best rows that a rule outside of their own recursion reads: conclusions from
 * a replaced row would stay there. In the recursion each better row replaces what was concluded
 * from the old one, or is no better; the planner accepts no other rules. */
static void mark_outside(kb_plan *plan)
{
    for (uint32_t r = 0; r < plan->rule_count; r++) {
        const kb_step *steps = plan->steps + plan->rules[r].first;
        const kb_slot *head = plan->slots + steps[plan->rules[r].count - 1].slot;

        for (uint32_t s = 0; s < plan->rules[r].count; s++) {
            kb_slot *slot = plan->slots + steps[s].slot;

            if (kb_step_reads(steps + s) && kb_keeps_best(slot) && !(kb_keeps_best(head) && head->component == slot->component))
                slot->outside = 1;
        }
    }
}

/* Make one pass over a component, from heads to bodies. Return 1 if a slot was marked that an
 * earlier rule may derive from. */
static int mark_sensitive_once(kb_plan *plan, const kb_component *component, int everything)
{
    int marked = 0;

    for (uint32_t r = component->first_rule + component->rules; r-- > component->first_rule;) {
        const kb_rule *rule = plan->rules + r;
        const kb_step *steps = plan->steps + rule->first;
        const kb_slot *head = plan->slots + steps[rule->count - 1].slot;
        int is_sensitive = everything || head->sensitive || head->outside;

        for (uint32_t s = 0; s < rule->count; s++) {
            kb_slot *slot = plan->slots + steps[s].slot;

            if (kb_step_reads(steps + s) && !slot->sensitive && (is_sensitive || steps[s].op == KB_OP_ABSENT || steps[s].op == KB_OP_AGGREGATE)) {
                slot->sensitive = 1;
                marked = 1;
            }
        }
    }
    return marked;
}

/* Mark each slot read by ABSENT or AGGREGATE, and each from which such a slot, or a slot with best
 * rows that is read outside of its recursion, is derived. Slots are read only in the component that
 * emits to them and later, so one pass from the last component to the first is enough. A recursive
 * component is repeated until nothing changes or, after 32 passes, marked as a whole. */
static void mark_sensitive(kb_plan *plan)
{
    for (uint32_t c = plan->component_count; c-- > 0;) {
        const kb_component *component = plan->components + c;
        uint32_t passes = 0;

        while (mark_sensitive_once(plan, component, passes > 32) && component->recursive && passes <= 32)
            passes++;
    }
}

/* Two combinations of a rule differ in a value they load, so if the head has all these values, no
 * two heads are equal. */
static void mark_distinct(const kb_plan *plan, kb_rule *rule)
{
    const kb_step *steps = plan->steps + rule->first, *emit = steps + rule->count - 1;

    if (plan->slots[emit->slot].best)
        return;
    rule->distinct = 1;
    for (uint32_t s = 0; s + 1 < rule->count; s++) {
        const kb_pair *loads = plan->pairs + steps[s].pairs + steps[s].keys;

        /* these load registers without pairs */
        rule->distinct &= steps[s].op != KB_OP_EQUAL && steps[s].op != KB_OP_AGGREGATE && steps[s].op != KB_OP_GENERATE;
        if (steps[s].op != KB_OP_SCAN && steps[s].op != KB_OP_PROBE)
            continue;
        rule->distinct &= steps[s].keys + steps[s].loads + steps[s].sames == steps[s].arity;
        for (uint32_t i = 0; i < steps[s].loads; i++) {
            uint32_t column = 0;

            while (column < emit->arity && plan->pairs[emit->pairs + column].with != loads[i].with)
                column++;
            rule->distinct &= column < emit->arity;
        }
    }
}

/* Mark the loop of a rule that ends with PROBE or SCAN, CALL and EMIT of the value to best rows. */
static void mark_relaxes(kb_plan *plan, const kb_rule *rule)
{
    kb_step *steps = plan->steps + rule->first, *emit = steps + rule->count - 1, *call = emit - 1, *loop = emit - 2;
    const kb_pair *heads = plan->pairs + emit->pairs;

    if (rule->count < 3 || !kb_keeps_best(plan->slots + emit->slot) || call->op != KB_OP_CALL || call->keys != 2
        || call->compare >= KB_FUNCTION_CONCAT || call->compare == KB_FUNCTION_ROUND || loop->intersects || (loop->op != KB_OP_PROBE && loop->op != KB_OP_SCAN))
        return;
    for (uint32_t i = 0; i < emit->arity; i++)
        if ((heads[i].with == call->a) != (i + 1u == emit->arity))
            return;
    loop->relaxes = 1;
}

int kb_rule_has_new_symbols(const kb_plan *plan, const kb_rule *rule)
{
    for (uint32_t i = 0; i < rule->count; i++) {
        uint8_t op = plan->steps[rule->first + i].op;

        if (op == KB_OP_CALL || op == KB_OP_CAPTURE || op == KB_OP_GENERATE || op == KB_OP_EQUAL || op == KB_OP_AGGREGATE)
            return 1;
    }
    return 0;
}

/* Mark a rule whose head has two columns, one of them loaded by a SCAN that is the outermost of
 * several loops: with its rows sorted by that column, the heads come in groups. The bitmap of a
 * group has the symbols that exist when the rule begins. */
static void mark_outer(const kb_plan *plan, kb_rule *rule)
{
    const kb_step *steps = plan->steps + rule->first, *emit = steps + rule->count - 1, *scan = steps;
    const kb_pair *loads, *heads = plan->pairs + emit->pairs;

    while (scan->op == KB_OP_SCAN && scan->arity == 0)
        scan++;
    if (plan->slots[emit->slot].best || scan->op != KB_OP_SCAN || scan->emits || emit->arity != 2
        || kb_rule_has_new_symbols(plan, rule))
        return;
    loads = plan->pairs + scan->pairs + scan->keys;
    for (uint32_t i = 0; i < scan->loads; i++)
        for (uint32_t column = 0; column < 2; column++)
            if (heads[column].with == loads[i].with && !rule->outer && (!scan->sort_column || scan->sort_column == loads[i].column + 1u)) {
                rule->outer = column + 1;
                rule->outer_from = loads[i].column;
                rule->scan = (uint32_t)(scan - plan->steps);
            }
}

void kb_plan_free(kb_plan *plan)
{
    if (plan == NULL)
        return;
    kb_release(NULL, plan->slots);
    kb_release(NULL, plan->components);
    kb_release(NULL, plan->rules);
    kb_release(NULL, plan->steps);
    kb_release(NULL, plan->pairs);
    kb_release(NULL, plan->marks);
    kb_release(NULL, plan->patterns);
    kb_release(NULL, plan);
}

kb_status kb_plan_load(const kb_word *code, size_t words, kb_plan **out, size_t *bad_word)
{
    kb_plan *plan;
    kb_status status;

    if (code == NULL || out == NULL || bad_word == NULL)
        return KB_MISUSE;
    if ((plan = kb_alloc(NULL, 1, sizeof *plan)) == NULL)
        return KB_NOMEM;
    status = kb_plan_decode(code, words, plan, bad_word);
    if (status >= 0 && !check_order(plan, bad_word))
        status = KB_BADPLAN;
    if (status < 0) {
        kb_plan_free(plan);
        return status;
    }
    mark_outside(plan);
    mark_sensitive(plan);
    for (uint32_t i = 0; i < plan->rule_count; i++) {
        mark_distinct(plan, plan->rules + i);
        mark_outer(plan, plan->rules + i);
        mark_relaxes(plan, plan->rules + i);
    }
    for (uint32_t i = 0; i < plan->component_count; i++) {
        kb_mark_linear(plan, plan->components + i);
        kb_mark_dense(plan, plan->components + i);
    }
    *out = plan;
    return KB_OK;
}

kb_status kb_opcode(uint32_t number, const char **name, int32_t *operands)
{
    if (number >= KB_OPCODES || name == NULL || operands == NULL)
        return KB_MISUSE;
    *name = opcodes[number].name;
    *operands = opcodes[number].operands;
    return KB_OK;
}
