/* generate.c - GENERATE: the elements of a list, the numbers of a range, the parts of a text; and
 * the functions that test whether a value is one of them.
 * Owns: the place of a generator, in its cursor. Never: makes a value before it is needed, so that
 * a range of any length is stopped by the budget of the run. The reference implementation in Python
 * is conditions.py. */
#include "run/machine.h"

static const struct { uint8_t least, most; } arities[KB_GENERATORS] = {
    [KB_GENERATOR_MEMBER] = { 1, KB_MAX_ARITY },
    [KB_GENERATOR_RANGE] = { 2, 2 },
    [KB_GENERATOR_SPLIT] = { 2, 2 },
};

int kb_generator_takes(uint32_t generator, uint32_t count)
{
    return count >= arities[generator].least && count <= arities[generator].most;
}

static void read_arg(const kb_run *run, const kb_step *step, uint32_t index, kb_arg *out)
{
    kb_sym sym = run->registers[run->plan->pairs[step->pairs + index].with];

    kb_symbol_get(&run->engine->symbols, sym, &out->text.bytes, &out->text.len, &out->number);
}

/* Return 0 if the generator has no meaning for its arguments. */
static int start(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    kb_arg first, second;
    int64_t end;

    cursor->at = 0;                   /* the place in the list or the text */
    cursor->end = 0;                  /* 1: the last part of the text was made */
    if (step->compare == KB_GENERATOR_MEMBER)
        return 1;
    read_arg(run, step, 0, &first);
    read_arg(run, step, 1, &second);
    if (step->compare == KB_GENERATOR_SPLIT)
        return second.text.len != 0;
    return kb_number_whole(&first, &cursor->value) && kb_number_whole(&second, &end);
}

static kb_status next_number(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    kb_number number = { KB_KIND_INTEGER, cursor->value, 0.0 };
    char text[KB_NUMBER_TEXT];
    kb_arg end;
    int64_t last = 0;

    read_arg(run, step, 1, &end);
    kb_number_whole(&end, &last);
    if (cursor->value >= last)
        return KB_DONE;
    cursor->value++;
    return kb_symbol_make(run->engine, run, &run->heap, text, kb_number_text(&number, text), run->registers + step->a);
}

/* A part that is too long for a text is left out. */
static kb_status next_part(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    int has_value = 0;

    while (!has_value) {
        kb_arg whole, separator;
        kb_text part;
        const char *end, *found;
        kb_status status;

        if (cursor->end)
            return KB_DONE;
        read_arg(run, step, 0, &whole);
        read_arg(run, step, 1, &separator);
        part.bytes = whole.text.bytes + cursor->at;
        end = whole.text.bytes + whole.text.len;
        found = kb_find_part(part.bytes, end, &separator.text);
        cursor->end = found == NULL;
        part.len = (size_t)((found == NULL ? end : found) - part.bytes);
        cursor->at += (uint32_t)(part.len + separator.text.len);
        if ((status = kb_make_text(run, step->a, &part, &has_value)) < 0)
            return status;
    }
    return KB_OK;
}

kb_status kb_generate(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering)
{
    if (entering) {
        run->stats.probes++;
        if (!start(run, step, cursor)) {
            run->stats.warnings++;
            return KB_DONE;
        }
    }
    if (run->left <= 0)
        return KB_PAUSED;
    run->left--;
    if (step->compare == KB_GENERATOR_RANGE)
        return next_number(run, step, cursor);
    if (step->compare == KB_GENERATOR_SPLIT)
        return next_part(run, step, cursor);
    if (cursor->at == step->keys)
        return KB_DONE;
    run->registers[step->a] = run->registers[run->plan->pairs[step->pairs + cursor->at++].with];
    return KB_OK;
}

static kb_status truth(int value, kb_text *out)
{
    out->bytes = value ? "true" : "false";
    out->len = value ? 4 : 5;
    return KB_OK;
}

static int is_same(const kb_text *a, const kb_text *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

kb_status kb_test_member(const kb_call *call, kb_text *out)
{
    int is_member = 0;

    for (uint32_t i = 1; i < call->count; i++)
        is_member |= is_same(&call->args[0].text, &call->args[i].text);
    return truth(is_member, out);
}

/* A number of a range is written as the range writes it. */
kb_status kb_test_range(const kb_call *call, kb_text *out)
{
    const kb_number *value = &call->args[0].number;
    int64_t from, to;
    char text[KB_NUMBER_TEXT];
    kb_text plain = { text, 0 };

    if (!kb_number_whole(call->args + 1, &from) || !kb_number_whole(call->args + 2, &to))
        return KB_DONE;
    if (value->kind != KB_KIND_INTEGER || value->integer < from || value->integer >= to)
        return truth(0, out);
    plain.len = kb_number_text(value, text);
    return truth(is_same(&plain, &call->args[0].text), out);
}

kb_status kb_test_part(const kb_call *call, kb_text *out)
{
    const kb_text *whole = &call->args[1].text, *separator = &call->args[2].text;
    const char *end = whole->bytes + whole->len, *found;
    kb_text part = { whole->bytes, 0 };

    if (separator->len == 0)
        return KB_DONE;
    do {
        found = kb_find_part(part.bytes, end, separator);
        part.len = (size_t)((found == NULL ? end : found) - part.bytes);
        if (is_same(&part, &call->args[0].text))
            return truth(1, out);
        part.bytes += part.len + separator->len;
    } while (found != NULL);
    return truth(0, out);
}
