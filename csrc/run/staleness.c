/* staleness.c - tests whether changes of base relations affect what a run has derived.
 * Owns: the test of one changed row against the rules of a plan. Never: derives anything, or
 * changes a base relation.
 *
 * A run that is DONE holds the least model of its rules over its demand. If no instance of a rule
 * contains both a changed row and, for everything else that it reads from the run's own relations,
 * existing rows, then that model is the least model with the row and without it. The test checks a
 * necessary condition that is cheap: with the values that the row gives to registers, is there a
 * row for each step over a relation of the run? For a goal on a large base there is usually not
 * even the demand. */
#include "run/machine.h"

#define MAX_KNOWN 96u                 /* registers whose value is recorded; others count as
                                       * unknown */
#define MAX_SCANNED 128u              /* rows that are scanned where there is no index */

typedef struct kb_known {
    kb_sym values[MAX_KNOWN];
    uint32_t registers[MAX_KNOWN];
    uint32_t count;
} kb_known;

/* Return the value of a register, 0 if it is unknown. */
static kb_sym value_of(const kb_run *run, const kb_known *known, uint32_t reg)
{
    if (reg < run->plan->param_count)
        return run->registers[reg];
    for (uint32_t i = 0; i < known->count; i++)
        if (known->registers[i] == reg)
            return known->values[i];
    return 0;
}

static void add_known(kb_known *known, uint32_t reg, kb_sym value)
{
    if (known->count == MAX_KNOWN)
        return;
    known->registers[known->count] = reg;
    known->values[known->count++] = value;
}

static int is_read(const kb_step *step)
{
    return step->op == KB_OP_SCAN || step->op == KB_OP_PROBE || step->op == KB_OP_MEMBER;
}

/* Set `known` to the registers of the rule after a step has read this row. Return 0 if the step
 * does not accept the row. */
static int reads_row(const kb_run *run, const kb_rule *rule, const kb_step *step, const kb_sym *row, kb_known *known)
{
    const kb_pair *pairs = run->plan->pairs + step->pairs, *sames = pairs + step->keys + step->loads;
    const kb_step *steps = run->plan->steps + rule->first;

    known->count = 0;
    for (uint32_t i = 0; i < step->sames; i++)
        if (row[sames[i].column] != row[sames[i].with])
            return 0;
    for (uint32_t i = 0; i < step->keys + (uint32_t)step->loads; i++) {
        kb_sym value = value_of(run, known, pairs[i].with);

        if (value != 0 && value != row[pairs[i].column])
            return 0;
        if (value == 0)
            add_known(known, pairs[i].with, row[pairs[i].column]);
    }
    /* backwards: from the copy to its source, an earlier step */
    for (uint32_t s = rule->count; s-- > 0;)
        if (steps[s].op == KB_OP_COPY) {
            kb_sym to = value_of(run, known, steps[s].a), from = value_of(run, known, steps[s].b);

            if (to != 0 && from != 0 && to != from)
                return 0;
            if (to != 0 && from == 0)
                add_known(known, steps[s].b, to);
        }
    for (uint32_t s = 0; s < rule->count; s++)
        if (steps[s].op == KB_OP_COPY && value_of(run, known, steps[s].a) == 0 && value_of(run, known, steps[s].b) != 0)
            add_known(known, steps[s].a, value_of(run, known, steps[s].b));
    return 1;
}

static int row_matches(const kb_sym *row, const kb_sym *values, uint32_t arity)
{
    for (uint32_t i = 0; i < arity; i++)
        if (values[i] != 0 && values[i] != row[i])
            return 0;
    return 1;
}

/* Return 1 if there may be a row with the known values. */
static int may_find(kb_run *run, const kb_step *step, const kb_known *known)
{
    kb_relation *relation = run->slots[step->slot];
    const kb_pair *pairs = run->plan->pairs + step->pairs;
    kb_sym values[KB_MAX_ARITY] = { 0 }, key[KB_MAX_ARITY];
    uint32_t known_columns = 0;
    uint64_t mask = 0;

    for (uint32_t i = 0; i < step->keys + (uint32_t)step->loads; i++)
        if ((values[pairs[i].column] = value_of(run, known, pairs[i].with)) != 0) {
            mask |= UINT64_C(1) << pairs[i].column;
            known_columns++;
        }
    if (relation->rows == 0 || known_columns == 0)
        return relation->rows != 0;
    if (relation->unwritten != 0)     /* the matrix has all rows */
        return kb_matrix_may_have(&relation->matrix, values);
    if (known_columns == relation->arity)
        return kb_relation_ready(relation) < 0 || kb_relation_has(relation, values);
    for (const kb_lookup *index = relation->indexes; index != NULL; index = index->next) {
        const uint32_t *list;
        uint32_t entry, count;

        if (index->mask & ~mask)
            continue;
        for (uint32_t i = 0; i < index->width; i++)
            key[i] = values[index->columns[i]];
        if ((entry = kb_index_find(index, relation, key)) == KB_NONE)
            return 0;
        if (index->mask == mask)
            return 1;
        list = kb_index_list(index, entry);
        count = index->entries[entry].count;
        for (uint32_t i = 0; i < count && i < MAX_SCANNED; i++)
            if (row_matches(kb_row(relation, list[i]), values, relation->arity))
                return 1;
        return count > MAX_SCANNED;
    }
    for (uint32_t id = 0; id < relation->rows && id < MAX_SCANNED; id++)
        if (row_matches(kb_row(relation, id), values, relation->arity))
            return 1;
    return relation->rows > MAX_SCANNED;
}

/* Return 1 if some rule may have an instance with this row of a base slot. */
static int affects(kb_run *run, uint32_t slot, const kb_sym *row)
{
    const kb_plan *plan = run->plan;
    kb_known known;

    for (uint32_t r = 0; r < plan->rule_count; r++) {
        const kb_rule *rule = plan->rules + r;
        const kb_step *steps = plan->steps + rule->first;

        for (uint32_t s = 0; s < rule->count; s++) {
            uint32_t t = 0;

            if (steps[s].slot != slot || !(is_read(steps + s) || steps[s].op == KB_OP_ABSENT)
                || !reads_row(run, rule, steps + s, row, &known))
                continue;
            while (t < rule->count
                   && (!is_read(steps + t) || !plan->slots[steps[t].slot].derived || may_find(run, steps + t, &known)))
                t++;
            if (t == rule->count)
                return 1;
        }
    }
    return 0;
}

int kb_rows_are_unaffected(kb_run *run, kb_source *source, const kb_relation *relation)
{
    if (relation->rows - source->tested > KB_CHANGES)
        return 0;
    for (; source->tested < relation->rows; source->tested++)
        if (affects(run, source->slot, kb_row(relation, source->tested)))
            return 0;
    return 1;
}

int kb_run_is_unaffected(kb_run *run, kb_source *source, const kb_relation *relation)
{
    if (relation->moved != source->moved || relation->changed - source->changed > KB_CHANGES)
        return 0;
    for (; source->changed < relation->changed; source->changed++)
        if (affects(run, source->slot, relation->changes + (source->changed % KB_CHANGES) * relation->arity))
            return 0;
    source->epoch = relation->epoch;
    return !run->plan->slots[source->slot].sensitive || kb_rows_are_unaffected(run, source, relation);
}
