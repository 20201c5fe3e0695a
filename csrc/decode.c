/* decode.c - bytecode to steps, each word checked where it stands.
 * Owns: the layout of the bytecode and every rule that one word, or one rule of the plan, can break.
 * Never: trusts a word, or looks at what only the whole plan shows; that is plan.c. */
#include "reader.h"

#define MAGIC 0x4B425031u
#define VERSION 1u
#define MAX_REGISTERS 0x10000u        /* so that one fits a kb_pair */
#define MAX_WORDS 0x10000000u

/* The column words of a step; pairs come out as keys, then loads, then sames. */
static int read_columns(kb_reader *reader, kb_step *step)
{
    kb_plan *plan = reader->plan;
    size_t start = reader->at;

    for (uint32_t column = 0; column < step->arity; column++) {
        kb_word word;
        uint32_t kind, operand;

        if (!next(reader, &word))
            return 0;
        kind = word >> 30;
        operand = word & 0x3FFFFFFFu;
        if (kind == KB_COLUMN_ANY ? operand != 0 : operand >= plan->register_count)
            return refuse(reader, reader->at - 1);
        if (kind == KB_COLUMN_LOAD) {
            if (!write_register(reader, operand, column))
                return 0;
            step->loads++;
        } else if (kind == KB_COLUMN_KEY) {
            if (!has_value(reader, operand))
                return refuse(reader, reader->at - 1);
            step->keys++;
            step->mask |= UINT64_C(1) << column;
        } else if (kind == KB_COLUMN_SAME) {
            if (is_param(reader, operand) || reader->written[operand].rule != plan->rule_count
                || reader->written[operand].step != plan->step_count)
                return refuse(reader, reader->at - 1);
            step->sames++;
        }
        if (step->op == KB_OP_MEMBER && kind != KB_COLUMN_KEY)
            return refuse(reader, reader->at - 1);
        if (step->op == KB_OP_ABSENT && (kind == KB_COLUMN_LOAD || kind == KB_COLUMN_SAME))
            return refuse(reader, reader->at - 1);
    }
    if (step->op == KB_OP_PROBE && step->keys == 0)
        return refuse(reader, start);
    step->pairs = plan->pair_count;
    for (uint32_t kind = KB_COLUMN_LOAD; kind <= KB_COLUMN_SAME; kind++) {
        uint32_t wanted = kind == KB_COLUMN_LOAD ? KB_COLUMN_KEY : kind == KB_COLUMN_KEY ? KB_COLUMN_LOAD : kind;

        for (uint32_t column = 0; column < step->arity; column++) {
            kb_word word = reader->code[start + column];
            uint32_t operand = word & 0x3FFFFFFFu;

            if (word >> 30 == wanted
                && !add_pair(reader, column, wanted == KB_COLUMN_SAME ? reader->written[operand].column : operand))
                return 0;
        }
    }
    return 1;
}

static int read_view(kb_reader *reader, kb_step *step, kb_rule *rule)
{
    kb_plan *plan = reader->plan;
    kb_component *component = plan->components + plan->component_count - 1;
    uint32_t view;

    if (!below(reader, KB_VIEWS, &view))
        return 0;
    step->view = (uint8_t)view;
    rule->viewed = 1;
    if (reader->mark_of[step->slot] < component->first_mark || reader->mark_of[step->slot] == KB_NONE) {
        uint32_t *mark = push(&plan->marks, &plan->mark_count, sizeof *mark);

        if (mark == NULL)
            return no_room(reader);
        *mark = step->slot;
        reader->mark_of[step->slot] = plan->mark_count - 1;
        component->marks++;
    }
    step->mark = reader->mark_of[step->slot];
    return 1;
}

/* The deepest loop that the head of the rule depends on: those inside it can only make the same head again. */
static uint32_t deepest(const kb_reader *reader, const kb_step *emit, size_t start)
{
    const kb_plan *plan = reader->plan;
    uint32_t first = plan->rules[plan->rule_count - 1].first, found = KB_NONE;

    for (uint32_t column = 0; column < emit->arity; column++) {
        uint32_t reg = reader->code[start + column], at;

        if (is_param(reader, reg))
            continue;
        at = reader->written[reg].step - 1;
        if (plan->steps[at].op != KB_OP_SCAN && plan->steps[at].op != KB_OP_PROBE)
            return emit->back;
        if (found == KB_NONE || at - first > found)
            found = at - first;
    }
    return found;
}

/* The head; for the loop just before it also which of its columns come straight from that loop's row. */
static int read_emit(kb_reader *reader, kb_step *step, kb_step *before)
{
    kb_plan *plan = reader->plan;
    kb_slot *slot = plan->slots + step->slot;
    size_t start = reader->at;
    uint32_t reg, component = plan->component_count;

    if (!slot->derived || (slot->component != 0 && slot->component != component))
        return refuse(reader, reader->at - 1);
    slot->component = component;
    step->pairs = plan->pair_count;
    for (uint32_t column = 0; column < step->arity; column++) {
        if (!readable(reader, &reg) || !add_pair(reader, column, reg))
            return 0;
        step->keys++;
    }
    if (plan->width < step->arity)
        plan->width = step->arity;
    step->row_first = step->row_last = KB_FIXED;
    step->back = deepest(reader, step, start);
    if (before == NULL || (before->op != KB_OP_SCAN && before->op != KB_OP_PROBE)
        || step->back + 2 != plan->step_count - plan->rules[plan->rule_count - 1].first)
        return 1;
    before->emits = 1;
    for (uint32_t column = 0; column < step->arity; column++) {
        reg = reader->code[start + column];
        if (is_param(reader, reg) || reader->written[reg].step != plan->step_count - 1)
            continue;
        if (!add_pair(reader, column, reader->written[reg].column))
            return 0;
        if (column + 1u == step->arity)
            step->row_last = (uint8_t)reader->written[reg].column;
        else if (column == 0)
            step->row_first = (uint8_t)reader->written[reg].column;
        step->loads++;
    }
    return 1;
}

/* INTERSECT becomes two steps: a PROBE that loads one value, and a MEMBER that the row with this value has to be. */
static int read_intersect(kb_reader *reader, kb_rule *rule, uint32_t first)
{
    kb_plan *plan = reader->plan;
    kb_step *probe = plan->steps + first, *other;
    uint32_t value;

    if (probe->keys + 1u != probe->arity || probe->loads != 1 || probe->keys == 0)
        return refuse(reader, probe->word);
    value = plan->pairs[probe->pairs + probe->keys].with;
    if ((other = push(&plan->steps, &plan->step_count, sizeof *other)) == NULL)
        return no_room(reader);
    plan->steps[first].meets = 1;
    other->op = KB_OP_MEMBER;
    other->back = first - rule->first;
    other->word = (uint32_t)reader->at;
    if (!below(reader, plan->slot_count, &other->slot))
        return 0;
    other->arity = (uint8_t)plan->slots[other->slot].arity;
    other->row_first = KB_FIXED;
    if (!read_view(reader, other, rule))
        return 0;
    other->pairs = plan->pair_count;
    for (uint32_t column = 0; column < other->arity; column++) {
        kb_written *written;
        kb_word word;
        uint32_t reg;

        if (!next(reader, &word))
            return 0;
        reg = word & 0x3FFFFFFFu;
        if (word >> 30 == KB_COLUMN_SAME && reg == value && other->row_first == KB_FIXED)
            other->row_first = (uint8_t)column;
        else if (word >> 30 != KB_COLUMN_KEY || reg >= plan->register_count || reg == value || !has_value(reader, reg))
            return refuse(reader, reader->at - 1);
        if (!add_pair(reader, column, reg))
            return 0;
        other->keys++;
        other->mask |= UINT64_C(1) << column;
        written = reader->written + reg;
        if (reg != value && !is_param(reader, reg) && plan->steps[written->step - 1].op == KB_OP_SCAN)
            plan->steps[written->step - 1].sorts = (uint8_t)(written->column + 1);
    }
    return (other->row_first != KB_FIXED && other->keys > 1) || refuse(reader, other->word);
}

static int read_step(kb_reader *reader, kb_rule *rule, uint32_t *back, int *ended)
{
    kb_plan *plan = reader->plan;
    kb_step *step = push(&plan->steps, &plan->step_count, sizeof *step);
    uint32_t op, value, first = plan->step_count - 1;

    if (step == NULL)
        return no_room(reader);
    if (!next(reader, &op))
        return 0;
    if (op < KB_OP_SCAN || op >= KB_OPCODES)
        return refuse(reader, reader->at - 1);
    step->op = (uint8_t)(op == KB_OP_INTERSECT ? KB_OP_PROBE : op);
    step->back = *back;
    step->word = (uint32_t)reader->at;
    if (op == KB_OP_COMPARE) {
        if (!below(reader, 16, &value))
            return 0;
        step->compare = (uint8_t)value;
        return readable(reader, &step->a) && readable(reader, &step->b);
    }
    if (op == KB_OP_COPY)
        return below(reader, plan->register_count, &step->a) && write_register(reader, step->a, 0)
               && readable(reader, &step->b);
    if (!below(reader, plan->slot_count, &step->slot))
        return 0;
    step->arity = (uint8_t)plan->slots[step->slot].arity;
    if (op == KB_OP_EMIT) {
        *ended = 1;
        return read_emit(reader, step, plan->step_count - rule->first > 1 ? step - 1 : NULL);
    }
    if (op != KB_OP_ABSENT && !read_view(reader, step, rule))
        return 0;
    if (op == KB_OP_SCAN || op == KB_OP_PROBE || op == KB_OP_INTERSECT)
        *back = first - rule->first;
    return read_columns(reader, step) && (op != KB_OP_INTERSECT || read_intersect(reader, rule, first));
}

static int read_rule(kb_reader *reader)
{
    kb_plan *plan = reader->plan;
    kb_rule *rule = push(&plan->rules, &plan->rule_count, sizeof *rule);
    uint32_t op, count, back = KB_NONE;
    size_t start;
    int ended = 0;

    if (rule == NULL)
        return no_room(reader);
    if (!next(reader, &op) || (op != KB_OP_RULE && !refuse(reader, reader->at - 1)))
        return 0;
    if (!next(reader, &rule->id) || !next(reader, &count))
        return 0;
    start = reader->at;
    if (count > reader->words - start)
        return refuse(reader, start - 1);
    rule->first = plan->step_count;
    while (!ended)
        if (!read_step(reader, rule, &back, &ended))
            return 0;
    if (reader->at - start != count)
        return refuse(reader, start - 1);
    rule->count = plan->step_count - rule->first;
    if (plan->depth < rule->count)
        plan->depth = rule->count;
    return 1;
}

static int read_component(kb_reader *reader)
{
    kb_plan *plan = reader->plan;
    kb_component *component = push(&plan->components, &plan->component_count, sizeof *component);
    uint32_t op, rules;

    if (component == NULL)
        return no_room(reader);
    component->first_rule = plan->rule_count;
    component->first_mark = plan->mark_count;
    if (!next(reader, &op) || (op != KB_OP_COMPONENT && !refuse(reader, reader->at - 1)))
        return 0;
    if (!below(reader, 2, &component->recursive) || !below(reader, MAX_WORDS, &rules))
        return 0;
    while (component->rules < rules) {
        if (!read_rule(reader))
            return 0;
        component->rules++;
    }
    return 1;
}

static int read_all(kb_reader *reader)
{
    kb_plan *plan = reader->plan;
    uint32_t word, components;

    if (!next(reader, &word) || (word != MAGIC && !refuse(reader, 0)))
        return 0;
    if (!next(reader, &word) || (word != VERSION && !refuse(reader, 1)))
        return 0;
    if (!below(reader, MAX_WORDS, &plan->slot_count) || !next(reader, &plan->param_count)
        || !below(reader, MAX_REGISTERS + 1, &plan->register_count))
        return 0;
    if (plan->param_count > plan->register_count)
        return refuse(reader, 3);
    if (!below(reader, MAX_WORDS, &components))
        return 0;
    if (!next(reader, &plan->seed_slot) || !below(reader, plan->slot_count, &plan->answer_slot))
        return 0;
    if (plan->seed_slot != KB_NONE && plan->seed_slot >= plan->slot_count)
        return refuse(reader, 6);
    if (plan->slot_count > (reader->words - reader->at) / 2)
        return refuse(reader, 2);
    plan->slots = kb_alloc(NULL, plan->slot_count, sizeof *plan->slots);
    reader->mark_of = kb_alloc(NULL, plan->slot_count, sizeof *reader->mark_of);
    reader->written = kb_alloc(NULL, plan->register_count, sizeof *reader->written);
    if (plan->slots == NULL || reader->mark_of == NULL || reader->written == NULL)
        return no_room(reader);
    memset(reader->mark_of, 0xFF, plan->slot_count * sizeof *reader->mark_of);
    for (uint32_t i = 0; i < plan->slot_count; i++) {
        if (!below(reader, KB_MAX_ARITY + 1, &plan->slots[i].arity) || !below(reader, 3, &plan->slots[i].derived))
            return 0;
        plan->slots[i].demand = plan->slots[i].derived == 2;
        plan->slots[i].derived = plan->slots[i].derived != 0;
        plan->base_count += !plan->slots[i].derived;
    }
    if (plan->seed_slot != KB_NONE && !plan->slots[plan->seed_slot].derived)
        return refuse(reader, 6);
    if (!plan->slots[plan->answer_slot].derived)
        return refuse(reader, 7);
    for (uint32_t i = 0; i < components; i++)
        if (!read_component(reader))
            return 0;
    if (!next(reader, &word) || (word != KB_OP_END && !refuse(reader, reader->at - 1)))
        return 0;
    return reader->at == reader->words || refuse(reader, reader->at);
}

kb_status kb_plan_decode(const kb_word *code, size_t words, kb_plan *plan, size_t *bad_word)
{
    kb_reader reader;

    memset(&reader, 0, sizeof reader);
    reader.code = code;
    reader.words = words;
    reader.plan = plan;
    plan->width = 1;                  /* a head without columns still has a place to be written to */
    if (words > MAX_WORDS)
        refuse(&reader, MAX_WORDS);
    else
        read_all(&reader);
    kb_release(NULL, reader.mark_of);
    kb_release(NULL, reader.written);
    if (reader.status == KB_BADPLAN)
        *bad_word = reader.bad;
    return reader.status;
}
