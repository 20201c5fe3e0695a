/* decode.c - bytecode to steps, each word checked where it stands.
 * Owns: the layout of the bytecode and every rule that one word, or one rule of the plan, can break.
 * Never: trusts a word, or looks at what only the whole plan shows; that is plan.c. */
#include "machine.h"

#define MAGIC 0x4B425031u
#define VERSION 1u
#define MAX_REGISTERS 0x10000u        /* so that one fits a kb_pair */
#define MAX_WORDS 0x10000000u

typedef struct kb_written { uint32_t rule, step; uint16_t column; } kb_written;   /* where a register got its value */

typedef struct kb_reader {
    const kb_word *code;
    size_t words, at, bad;
    kb_plan *plan;
    kb_written *written;              /* by register; `rule` and `step` count from 1 */
    uint32_t *mark_of;                /* by slot: its mark in this component, if not below first_mark */
    kb_status status;
} kb_reader;

static int refuse(kb_reader *reader, size_t word)
{
    reader->status = KB_BADPLAN;
    reader->bad = word;
    return 0;
}

static int no_room(kb_reader *reader)
{
    reader->status = KB_NOMEM;
    return 0;
}

static int next(kb_reader *reader, kb_word *out)
{
    if (reader->at >= reader->words)
        return refuse(reader, reader->words);
    *out = reader->code[reader->at++];
    return 1;
}

/* A word that has to lie below `bound`. */
static int below(kb_reader *reader, uint32_t bound, uint32_t *out)
{
    return next(reader, out) && (*out < bound || refuse(reader, reader->at - 1));
}

/* Room for one more item at the end of a growing array; NULL when there is none. */
static void *push(void *array, uint32_t *count, size_t size)
{
    char **items = array;
    size_t have = *items == NULL ? 0 : kb_capacity(*items) / size;

    if (*count >= have) {
        char *block = kb_resize(NULL, *items, (size_t)kb_grown(have, *count + 1u, 4), size);

        if (block == NULL)
            return NULL;
        *items = block;
    }
    memset(*items + *count * size, 0, size);
    return *items + size * (*count)++;
}

static int is_param(const kb_reader *reader, uint32_t reg)
{
    return reg < reader->plan->param_count;
}

/* A register that got its value in an earlier step of this rule, or is a parameter. */
static int has_value(const kb_reader *reader, uint32_t reg)
{
    const kb_written *written = reader->written + reg;

    return is_param(reader, reg)
           || (written->rule == reader->plan->rule_count && written->step != reader->plan->step_count);
}

static int readable(kb_reader *reader, uint32_t *out)
{
    return below(reader, reader->plan->register_count, out)
           && (has_value(reader, *out) || refuse(reader, reader->at - 1));
}

/* A register that gets its value here, the word read last: no parameter, and only one value in a rule. */
static int write_register(kb_reader *reader, uint32_t reg, uint32_t column)
{
    const kb_plan *plan = reader->plan;

    if (is_param(reader, reg) || reader->written[reg].rule == plan->rule_count)
        return refuse(reader, reader->at - 1);
    reader->written[reg].rule = plan->rule_count;
    reader->written[reg].step = plan->step_count;
    reader->written[reg].column = (uint16_t)column;
    return 1;
}

static int add_pair(kb_reader *reader, uint32_t column, uint32_t with)
{
    kb_pair *pair = push(&reader->plan->pairs, &reader->plan->pair_count, sizeof *pair);

    if (pair == NULL)
        return no_room(reader);
    pair->column = (uint16_t)column;
    pair->with = (uint16_t)with;
    return 1;
}

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
    if (before == NULL || (before->op != KB_OP_SCAN && before->op != KB_OP_PROBE))
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

static int read_call(kb_reader *reader, kb_step *step)
{
    uint32_t function, count, reg;

    if (!below(reader, KB_FUNCTIONS, &function) || !below(reader, reader->plan->register_count, &step->a)
        || !write_register(reader, step->a, 0) || !below(reader, KB_MAX_ARITY + 1, &count))
        return 0;
    if (!kb_function_takes(function, count))
        return refuse(reader, reader->at - 1);
    step->compare = (uint8_t)function;
    step->keys = (uint8_t)count;
    step->pairs = reader->plan->pair_count;
    for (uint32_t i = 0; i < count; i++)
        if (!readable(reader, &reg) || !add_pair(reader, i, reg))
            return 0;
    return 1;
}

static int read_step(kb_reader *reader, kb_rule *rule, uint32_t *back, int *ended)
{
    kb_plan *plan = reader->plan;
    kb_step *step = push(&plan->steps, &plan->step_count, sizeof *step);
    uint32_t op, value;

    if (step == NULL)
        return no_room(reader);
    if (!next(reader, &op))
        return 0;
    if (op < KB_OP_SCAN || op >= KB_OPCODES)
        return refuse(reader, reader->at - 1);
    step->op = (uint8_t)op;
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
    if (op == KB_OP_CALL)
        return read_call(reader, step);
    if (!below(reader, plan->slot_count, &step->slot))
        return 0;
    step->arity = (uint8_t)plan->slots[step->slot].arity;
    if (op == KB_OP_EMIT) {
        *ended = 1;
        return read_emit(reader, step, plan->step_count - rule->first > 1 ? step - 1 : NULL);
    }
    if (op != KB_OP_ABSENT && !read_view(reader, step, rule))
        return 0;
    if (op == KB_OP_SCAN || op == KB_OP_PROBE)
        *back = plan->step_count - 1 - rule->first;
    return read_columns(reader, step);
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
        if (!below(reader, KB_MAX_ARITY + 1, &plan->slots[i].arity) || !below(reader, 2, &plan->slots[i].derived))
            return 0;
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
