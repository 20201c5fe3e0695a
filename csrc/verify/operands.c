/* operands.c - decodes the words of one step and checks each of them.
 * Owns: the layout of every instruction inside a rule, and each fault of one word or one rule.
 * Never: trusts a word, or checks what only the whole plan shows; that is plan.c. */
#include "verify/reader.h"

static int is_param(const kb_reader *reader, uint32_t reg)
{
    return reg < reader->plan->param_count;
}

/* Return 1 if the register has a value: set by an earlier step of this rule, or a parameter. */
static int has_value(const kb_reader *reader, uint32_t reg)
{
    const kb_written *written = reader->written + reg;

    return is_param(reader, reg)
           || (written->rule == reader->plan->rule_count && written->step != reader->plan->step_count);
}

static int readable(kb_reader *reader, uint32_t *out)
{
    return kb_read_below(reader, reader->plan->register_count, out)
           && (has_value(reader, *out) || kb_read_refuse(reader, reader->at - 1));
}

/* Record that the step sets this register, the word read last. Refuse a parameter, and a second
 * value in one rule. */
static int write_register(kb_reader *reader, uint32_t reg, uint32_t column)
{
    const kb_plan *plan = reader->plan;

    if (is_param(reader, reg) || reader->written[reg].rule == plan->rule_count)
        return kb_read_refuse(reader, reader->at - 1);
    reader->written[reg].rule = plan->rule_count;
    reader->written[reg].step = plan->step_count;
    reader->written[reg].column = (uint16_t)column;
    return 1;
}

static int add_pair(kb_reader *reader, uint32_t column, uint32_t with)
{
    kb_pair *pair = kb_read_push(&reader->plan->pairs, &reader->plan->pair_count, sizeof *pair);

    if (pair == NULL)
        return kb_read_out_of_memory(reader);
    pair->column = (uint16_t)column;
    pair->with = (uint16_t)with;
    return 1;
}

/* Return 1 if a step of this opcode may have a column word of this kind. */
static int takes_column(uint32_t op, uint32_t kind)
{
    switch (op) {
    case KB_OP_MEMBER:
        return kind == KB_COLUMN_KEY;
    case KB_OP_AGGREGATE:
        return kind == KB_COLUMN_ANY || kind == KB_COLUMN_LOAD;
    case KB_OP_ABSENT:
        return kind == KB_COLUMN_ANY || kind == KB_COLUMN_KEY;
    default:
        return 1;
    }
}

/* Read one column word of a step, and count it. */
static int read_column(kb_reader *reader, kb_step *step, uint32_t column)
{
    const kb_plan *plan = reader->plan;
    kb_word word;
    uint32_t kind, operand;

    if (!kb_read_next(reader, &word))
        return 0;
    kind = word >> 30;
    operand = word & 0x3FFFFFFFu;
    if (kind == KB_COLUMN_ANY ? operand != 0 : operand >= plan->register_count)
        return kb_read_refuse(reader, reader->at - 1);
    if (kind == KB_COLUMN_LOAD) {
        if (!write_register(reader, operand, column))
            return 0;
        step->loads++;
    } else if (kind == KB_COLUMN_KEY) {
        if (!has_value(reader, operand))
            return kb_read_refuse(reader, reader->at - 1);
        step->keys++;
        step->mask |= UINT64_C(1) << column;
    } else if (kind == KB_COLUMN_SAME) {
        if (is_param(reader, operand) || reader->written[operand].rule != plan->rule_count
            || reader->written[operand].step != plan->step_count)
            return kb_read_refuse(reader, reader->at - 1);
        step->sames++;
    }
    return takes_column(step->op, kind) || kb_read_refuse(reader, reader->at - 1);
}

/* Read the column words of a step. Pairs are stored as keys, then loads, then sames. */
static int read_columns(kb_reader *reader, kb_step *step)
{
    static const uint32_t order[] = { KB_COLUMN_KEY, KB_COLUMN_LOAD, KB_COLUMN_SAME };
    size_t start = reader->at;

    for (uint32_t column = 0; column < step->arity; column++)
        if (!read_column(reader, step, column))
            return 0;
    if (step->op == KB_OP_PROBE && step->keys == 0)
        return kb_read_refuse(reader, start);
    step->pairs = reader->plan->pair_count;
    for (uint32_t i = 0; i < sizeof order / sizeof *order; i++)
        for (uint32_t column = 0; column < step->arity; column++) {
            kb_word word = reader->code[start + column];
            uint32_t operand = word & 0x3FFFFFFFu;

            if (word >> 30 == order[i]
                && !add_pair(reader, column, order[i] == KB_COLUMN_SAME ? reader->written[operand].column : operand))
                return 0;
        }
    return 1;
}

static int read_view(kb_reader *reader, kb_step *step, kb_rule *rule)
{
    kb_plan *plan = reader->plan;
    kb_component *component = plan->components + plan->component_count - 1;
    uint32_t view;

    if (!kb_read_below(reader, KB_VIEWS, &view))
        return 0;
    step->view = (uint8_t)view;
    rule->viewed = 1;
    if (reader->mark_of[step->slot] < component->first_mark || reader->mark_of[step->slot] == KB_NONE) {
        uint32_t *mark = kb_read_push(&plan->marks, &plan->mark_count, sizeof *mark);

        if (mark == NULL)
            return kb_read_out_of_memory(reader);
        *mark = step->slot;
        reader->mark_of[step->slot] = plan->mark_count - 1;
        component->marks++;
    }
    step->mark = reader->mark_of[step->slot];
    return 1;
}

/* Return the deepest loop that the head depends on: loops inside it can only make the same head
 * again. */
static uint32_t head_loop(const kb_reader *reader, const kb_step *emit, size_t start)
{
    const kb_plan *plan = reader->plan;
    uint32_t first = plan->rules[plan->rule_count - 1].first, deepest_loop = KB_NONE;

    for (uint32_t column = 0; column < emit->arity; column++) {
        uint32_t reg = reader->code[start + column], at;

        if (is_param(reader, reg))
            continue;
        at = reader->written[reg].step - 1;
        if (plan->steps[at].op != KB_OP_SCAN && plan->steps[at].op != KB_OP_PROBE)
            return emit->back;
        if (deepest_loop == KB_NONE || at - first > deepest_loop)
            deepest_loop = at - first;
    }
    return deepest_loop;
}

/* Read the head. For the loop just before it, also record which columns come directly from its
 * row. */
static int read_emit(kb_reader *reader, kb_step *step, kb_step *before)
{
    kb_plan *plan = reader->plan;
    kb_slot *slot = plan->slots + step->slot;
    size_t start = reader->at;
    uint32_t reg, component = plan->component_count;

    if (!slot->derived || (slot->component != 0 && slot->component != component))
        return kb_read_refuse(reader, reader->at - 1);
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
    step->back = head_loop(reader, step, start);
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
        if (column + 1u == slot->key)
            step->row_last = (uint8_t)reader->written[reg].column;
        else if (column == 0)
            step->row_first = (uint8_t)reader->written[reg].column;
        step->loads++;
    }
    return 1;
}

/* Read CALL or GENERATE. */
static int read_call(kb_reader *reader, kb_step *step)
{
    uint32_t function, count, reg;
    int generates = step->op == KB_OP_GENERATE;

    if (!kb_read_below(reader, generates ? KB_GENERATORS : KB_FUNCTIONS, &function) || !kb_read_below(reader, reader->plan->register_count, &step->a)
        || !write_register(reader, step->a, 0) || !kb_read_below(reader, KB_MAX_CALL + 1, &count))
        return 0;
    if (!(generates ? kb_generator_takes : kb_function_takes)(function, count))
        return kb_read_refuse(reader, reader->at - 1);
    step->compare = (uint8_t)function;
    step->keys = (uint8_t)count;
    step->pairs = reader->plan->pair_count;
    for (uint32_t i = 0; i < count; i++)
        if (!readable(reader, &reg) || !add_pair(reader, i, reg))
            return 0;
    return 1;
}

/* Read the folds of AGGREGATE; its column words define the groups. */
static int read_folds(kb_reader *reader, kb_step *step)
{
    kb_plan *plan = reader->plan;
    uint32_t function, column, reg;

    for (uint32_t i = 0; i < step->loads; i++)
        step->mask |= UINT64_C(1) << plan->pairs[step->pairs + i].column;
    if (!kb_read_below(reader, KB_MAX_ARITY + 1, &step->a))
        return 0;
    step->b = plan->pair_count;
    if (plan->folds < step->a)
        plan->folds = step->a;
    for (uint32_t i = 0; i < step->a; i++)   /* rows without columns can only be counted */
        if (!kb_read_below(reader, step->arity == 0 ? KB_FOLD_COUNT + 1 : KB_FOLDS, &function) || !kb_read_below(reader, step->arity == 0 ? 1 : step->arity, &column)
            || !kb_read_below(reader, plan->register_count, &reg) || !write_register(reader, reg, 0)
            || !add_pair(reader, function, column) || !add_pair(reader, 0, reg))
            return 0;
    return 1;
}

/* Read the text and the program of MATCHES or CAPTURE; the program is stored whole. */
static int read_pattern(kb_reader *reader, kb_step *step)
{
    kb_plan *plan = reader->plan;
    uint32_t count, bad;

    if (!readable(reader, &step->a) || !kb_read_next(reader, &count))
        return 0;
    if (count == 0 || count > KB_MAX_PATTERN_WORDS || count > reader->words - reader->at)
        return kb_read_refuse(reader, reader->at - 1);
    step->b = plan->pattern_words;
    step->mark = count;
    bad = kb_pattern_check(reader->code + reader->at, count);
    if (bad != count)
        return kb_read_refuse(reader, reader->at + bad);
    for (uint32_t i = 0; i < count; i++) {
        kb_word *word = kb_read_push(&plan->patterns, &plan->pattern_words, sizeof *word);

        if (word == NULL)
            return kb_read_out_of_memory(reader);
        *word = reader->code[reader->at++];
    }
    return 1;
}

static int read_matches(kb_reader *reader, kb_step *step)
{
    uint32_t negated;

    if (!kb_read_below(reader, 2, &negated))
        return 0;
    step->compare = (uint8_t)negated;
    return read_pattern(reader, step);
}

static int read_capture(kb_reader *reader, kb_step *step)
{
    uint32_t to;

    step->pairs = reader->plan->pair_count;
    return kb_read_below(reader, reader->plan->register_count, &to) && write_register(reader, to, 0)
           && add_pair(reader, 0, to) && read_pattern(reader, step);
}

/* Read the column words of the second relation of an INTERSECT: KEY columns, and once SAME of the
 * register `value`. */
static int read_common_columns(kb_reader *reader, kb_step *step, uint32_t value)
{
    const kb_plan *plan = reader->plan;

    for (uint32_t column = 0; column < step->arity; column++) {
        kb_written *written;
        kb_word word;
        uint32_t reg;

        if (!kb_read_next(reader, &word))
            return 0;
        reg = word & 0x3FFFFFFFu;
        if (word >> 30 == KB_COLUMN_SAME && reg == value && step->row_first == KB_FIXED)
            step->row_first = (uint8_t)column;
        else if (word >> 30 != KB_COLUMN_KEY || reg >= plan->register_count || reg == value || !has_value(reader, reg))
            return kb_read_refuse(reader, reader->at - 1);
        if (!add_pair(reader, column, reg))
            return 0;
        step->keys++;
        step->mask |= UINT64_C(1) << column;
        written = reader->written + reg;
        if (reg != value && !is_param(reader, reg) && plan->steps[written->step - 1].op == KB_OP_SCAN)
            plan->steps[written->step - 1].sort_column = (uint8_t)(written->column + 1);
    }
    return (step->row_first != KB_FIXED && step->keys > 1) || kb_read_refuse(reader, step->word);
}

/* Read INTERSECT as two steps: a PROBE that loads one value, and a MEMBER for the row with this
 * value. */
static int read_intersect(kb_reader *reader, kb_rule *rule, uint32_t first)
{
    kb_plan *plan = reader->plan;
    kb_step *probe = plan->steps + first, *other;
    uint32_t value;

    if (probe->keys + 1u != probe->arity || probe->loads != 1 || probe->keys == 0)
        return kb_read_refuse(reader, probe->word);
    value = plan->pairs[probe->pairs + probe->keys].with;
    if ((other = kb_read_push(&plan->steps, &plan->step_count, sizeof *other)) == NULL)
        return kb_read_out_of_memory(reader);
    plan->steps[first].intersects = 1;
    other->op = KB_OP_MEMBER;
    other->back = first - rule->first;
    other->word = (uint32_t)reader->at;
    if (!kb_read_below(reader, plan->slot_count, &other->slot))
        return 0;
    if (plan->slots[other->slot].best)
        return kb_read_refuse(reader, reader->at - 1);
    other->arity = (uint8_t)plan->slots[other->slot].arity;
    other->row_first = KB_FIXED;
    if (!read_view(reader, other, rule))
        return 0;
    other->pairs = plan->pair_count;
    return read_common_columns(reader, other, value);
}

/* Read COMPARE or TEST. */
static int read_test(kb_reader *reader, kb_step *step)
{
    uint32_t value;

    if (!kb_read_below(reader, 16, &value))
        return 0;
    if (step->op == KB_OP_TEST && (value & 7) >= KB_TESTS)
        return kb_read_refuse(reader, reader->at - 1);
    step->compare = (uint8_t)value;
    return readable(reader, &step->a) && readable(reader, &step->b);
}

/* Return 1 if an instruction may read its slot, in the view that it has. */
static int may_read(const kb_plan *plan, const kb_rule *rule, uint32_t op, const kb_step *step)
{
    const kb_slot *slot = plan->slots + step->slot;

    switch (op) {
    case KB_OP_AGGREGATE:
        return !slot->best && slot->derived && step->view == KB_VIEW_DELTA && plan->step_count - rule->first == 1;
    case KB_OP_INTERSECT:
        return !slot->best;
    case KB_OP_MEMBER:
    case KB_OP_ABSENT:
        return slot->best != KB_BEST_FIRST;
    default:
        return 1;
    }
}

/* Read a step that reads a relation or adds to one. */
static int read_relation(kb_reader *reader, kb_rule *rule, kb_step *step, uint32_t op, uint32_t *back, int *ended)
{
    kb_plan *plan = reader->plan;
    uint32_t first = plan->step_count - 1;

    if (!kb_read_below(reader, plan->slot_count, &step->slot))
        return 0;
    step->arity = (uint8_t)plan->slots[step->slot].arity;
    if (op == KB_OP_EMIT) {
        *ended = 1;
        return read_emit(reader, step, plan->step_count - rule->first > 1 ? step - 1 : NULL);
    }
    if (op != KB_OP_ABSENT && !read_view(reader, step, rule))
        return 0;
    if (!may_read(plan, rule, op, step))
        return kb_read_refuse(reader, step->word);
    if (op != KB_OP_MEMBER && op != KB_OP_ABSENT)
        *back = first - rule->first;
    return read_columns(reader, step) && (op != KB_OP_AGGREGATE || read_folds(reader, step))
           && (op != KB_OP_INTERSECT || read_intersect(reader, rule, first));
}

int kb_step_decode(kb_reader *reader, kb_rule *rule, uint32_t *back, int *ended)
{
    kb_plan *plan = reader->plan;
    kb_step *step = kb_read_push(&plan->steps, &plan->step_count, sizeof *step);
    uint32_t op;

    if (step == NULL)
        return kb_read_out_of_memory(reader);
    if (!kb_read_next(reader, &op))
        return 0;
    if (op < KB_OP_SCAN || op >= KB_OPCODES)
        return kb_read_refuse(reader, reader->at - 1);
    step->op = (uint8_t)(op == KB_OP_INTERSECT ? KB_OP_PROBE : op);
    step->back = *back;
    step->word = (uint32_t)reader->at;
    if (op == KB_OP_EQUAL || op == KB_OP_GENERATE)
        *back = plan->step_count - 1 - rule->first;
    switch (op) {
    case KB_OP_COMPARE:
    case KB_OP_TEST:
        return read_test(reader, step);
    case KB_OP_MATCHES:
        return read_matches(reader, step);
    case KB_OP_CAPTURE:
        return read_capture(reader, step);
    case KB_OP_COPY:
    case KB_OP_EQUAL:
        return kb_read_below(reader, plan->register_count, &step->a) && write_register(reader, step->a, 0)
               && readable(reader, &step->b);
    case KB_OP_CALL:
    case KB_OP_GENERATE:
        return read_call(reader, step);
    default:
        return read_relation(reader, rule, step, op, back, ended);
    }
}
