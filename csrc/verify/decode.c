/* decode.c - decodes bytecode to a plan: its header, components and rules. operands.c decodes
 * steps.
 * Owns: the layout of the bytecode around the steps. Never: trusts a word, or checks what only the
 * whole plan shows; that is plan.c. */
#include "verify/reader.h"

#define MAGIC 0x4B425031u
#define VERSION 1u
#define MAX_REGISTERS 0x10000u        /* so that a register number fits a kb_pair */
#define KB_SLOT_FIRST 6u              /* FIRST with a key of no columns; then of one, and so on */
#define KB_SLOT_KINDS (KB_SLOT_FIRST + KB_MAX_ARITY + 1u)
#define MAX_WORDS 0x10000000u

static int read_rule(kb_reader *reader)
{
    kb_plan *plan = reader->plan;
    kb_rule *rule = kb_read_push(&plan->rules, &plan->rule_count, sizeof *rule);
    uint32_t op, count, back = KB_NONE;
    size_t start;
    int ended = 0;

    if (rule == NULL)
        return kb_read_out_of_memory(reader);
    if (!kb_read_next(reader, &op) || (op != KB_OP_RULE && !kb_read_refuse(reader, reader->at - 1)))
        return 0;
    if (!kb_read_next(reader, &rule->id) || !kb_read_next(reader, &count))
        return 0;
    start = reader->at;
    if (count > reader->words - start)
        return kb_read_refuse(reader, start - 1);
    rule->first = plan->step_count;
    while (!ended)
        if (!kb_step_decode(reader, rule, &back, &ended))
            return 0;
    if (reader->at - start != count)
        return kb_read_refuse(reader, start - 1);
    rule->count = plan->step_count - rule->first;
    if (plan->depth < rule->count)
        plan->depth = rule->count;
    return 1;
}

static int read_component(kb_reader *reader)
{
    kb_plan *plan = reader->plan;
    kb_component *component = kb_read_push(&plan->components, &plan->component_count, sizeof *component);
    uint32_t op, rules;

    if (component == NULL)
        return kb_read_out_of_memory(reader);
    component->first_rule = plan->rule_count;
    component->first_mark = plan->mark_count;
    if (!kb_read_next(reader, &op) || (op != KB_OP_COMPONENT && !kb_read_refuse(reader, reader->at - 1)))
        return 0;
    if (!kb_read_below(reader, 2, &component->recursive) || !kb_read_below(reader, MAX_WORDS, &rules))
        return 0;
    while (component->rules < rules) {
        if (!read_rule(reader))
            return 0;
        component->rules++;
    }
    return 1;
}

/* Read the arity and kind of a slot. */
static int read_slot(kb_reader *reader, kb_slot *slot)
{
    uint32_t kind;

    if (!kb_read_below(reader, KB_MAX_ARITY + 1, &slot->arity) || !kb_read_below(reader, KB_SLOT_KINDS, &kind))
        return 0;
    slot->derived = kind != 0;
    slot->demand = kind == 2;
    slot->key = slot->arity;
    if (kind <= 2)
        return 1;
    slot->best = kind < KB_SLOT_FIRST ? kind - 2 : KB_BEST_FIRST;
    if (slot->best == KB_BEST_FIRST)
        slot->key = kind - KB_SLOT_FIRST;
    if (slot->arity == 0 || slot->key > slot->arity || (slot->best == KB_BEST_CLASSES && slot->arity != 2))
        return kb_read_refuse(reader, reader->at - 2);
    return 1;
}

/* Read everything before the slots. */
static int read_header(kb_reader *reader, uint32_t *components)
{
    kb_plan *plan = reader->plan;
    uint32_t word;

    if (!kb_read_next(reader, &word) || (word != MAGIC && !kb_read_refuse(reader, 0)))
        return 0;
    if (!kb_read_next(reader, &word) || (word != VERSION && !kb_read_refuse(reader, 1)))
        return 0;
    if (!kb_read_below(reader, MAX_WORDS, &plan->slot_count) || !kb_read_next(reader, &plan->param_count)
        || !kb_read_below(reader, MAX_REGISTERS + 1, &plan->register_count))
        return 0;
    if (plan->param_count > plan->register_count)
        return kb_read_refuse(reader, 3);
    if (!kb_read_below(reader, MAX_WORDS, components))
        return 0;
    if (!kb_read_next(reader, &plan->seed_slot) || !kb_read_below(reader, plan->slot_count, &plan->answer_slot))
        return 0;
    if (plan->seed_slot != KB_NONE && plan->seed_slot >= plan->slot_count)
        return kb_read_refuse(reader, 6);
    if (plan->slot_count > (reader->words - reader->at) / 2)
        return kb_read_refuse(reader, 2);
    return 1;
}

static int read_slots(kb_reader *reader)
{
    kb_plan *plan = reader->plan;

    plan->slots = kb_alloc(NULL, plan->slot_count, sizeof *plan->slots);
    reader->mark_of = kb_alloc(NULL, plan->slot_count, sizeof *reader->mark_of);
    reader->written = kb_alloc(NULL, plan->register_count, sizeof *reader->written);
    if (plan->slots == NULL || reader->mark_of == NULL || reader->written == NULL)
        return kb_read_out_of_memory(reader);
    memset(reader->mark_of, 0xFF, plan->slot_count * sizeof *reader->mark_of);
    for (uint32_t i = 0; i < plan->slot_count; i++) {
        if (!read_slot(reader, plan->slots + i))
            return 0;
        plan->base_count += !plan->slots[i].derived;
    }
    if (plan->seed_slot != KB_NONE && (!plan->slots[plan->seed_slot].derived || plan->slots[plan->seed_slot].best))
        return kb_read_refuse(reader, 6);
    return plan->slots[plan->answer_slot].derived || kb_read_refuse(reader, 7);
}

static int read_all(kb_reader *reader)
{
    uint32_t word, components;

    if (!read_header(reader, &components) || !read_slots(reader))
        return 0;
    for (uint32_t i = 0; i < components; i++)
        if (!read_component(reader))
            return 0;
    if (!kb_read_next(reader, &word) || (word != KB_OP_END && !kb_read_refuse(reader, reader->at - 1)))
        return 0;
    return reader->at == reader->words || kb_read_refuse(reader, reader->at);
}

kb_status kb_plan_decode(const kb_word *code, size_t words, kb_plan *plan, size_t *bad_word)
{
    kb_reader reader;

    memset(&reader, 0, sizeof reader);
    reader.code = code;
    reader.words = words;
    reader.plan = plan;
    plan->width = 1;                  /* a head without columns still needs a buffer */
    if (words > MAX_WORDS)
        kb_read_refuse(&reader, MAX_WORDS);
    else
        read_all(&reader);
    kb_release(NULL, reader.mark_of);
    kb_release(NULL, reader.written);
    if (reader.status == KB_BADPLAN)
        *bad_word = reader.bad;
    return reader.status;
}
