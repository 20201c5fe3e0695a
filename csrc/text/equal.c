/* equal.c - EQUAL: the texts that have the same value for `=`.
 * Owns: a table of the constants whose value has other texts too: decimals ("5.0"), "-0", and
 * instants. A whole number in plain digits has one text, which the symbol table finds; a number
 * with an exponent is a text here. The table is built when a plan first needs it and follows the
 * symbols from then on. Never: is incomplete for lack of memory; the run fails instead. */
#include "run/machine.h"

static int is_negative_zero(const kb_text *text)
{
    return text->len == 2 && text->bytes[0] == '-' && text->bytes[1] == '0';
}

/* Return 1 if the table has the symbol. Symbols that kb_symbol_reuse changes are in no table. */
static int is_listed(const kb_symbols *symbols, kb_sym sym, kb_arg *value)
{
    kb_value_get(symbols, sym, value);
    switch (value->number.kind) {
    case KB_KIND_DECIMAL: return 1;
    case KB_KIND_INTEGER: return is_negative_zero(&value->text);
    case KB_KIND_INSTANT: return kb_symbol_find(symbols, value->text.bytes, value->text.len) == sym;
    default: return 0;
    }
}

static uint32_t home_of(const kb_equals *equals, const kb_number *number)
{
    double value = number->real + 0.0;   /* -0 and 0 are one value */
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint32_t)kb_mix(bits) & (equals->size - 1);
}

/* Newer symbols are before older ones in their chain, also after the table has grown, so that an
 * iteration in progress continues correctly. */
static void link_from(kb_engine *engine, uint32_t first)
{
    kb_equals *equals = &engine->symbols.equals;
    kb_arg value;

    for (uint32_t i = first; i < equals->count; i++) {
        uint32_t *slot;

        kb_value_get(&engine->symbols, equals->items[i].symbol, &value);
        slot = equals->slots + home_of(equals, &value.number);
        equals->items[i].next = *slot;
        *slot = i + 1;
    }
}

static void relink(kb_engine *engine)
{
    kb_equals *equals = &engine->symbols.equals;

    if (equals->size != 0)
        memset(equals->slots, 0, (size_t)equals->size * sizeof *equals->slots);
    link_from(engine, 0);
}

/* Add the symbols interned since the last call. */
static kb_status catch_up(kb_engine *engine)
{
    kb_symbols *symbols = &engine->symbols;
    kb_equals *equals = &symbols->equals;
    kb_arg value;

    if (equals->seen > symbols->count) {   /* some were rolled back */
        while (equals->count > 0 && equals->items[equals->count - 1].symbol > symbols->count)
            equals->count--;
        equals->seen = symbols->count;
        relink(engine);
    }
    for (; equals->seen < symbols->count; equals->seen++) {
        size_t have = equals->items == NULL ? 0 : kb_capacity(equals->items) / sizeof *equals->items;

        if (!is_listed(symbols, equals->seen + 1, &value))
            continue;
        if (equals->count >= have) {
            void *block = kb_resize(&engine->heap, equals->items, kb_grow_capacity(have, equals->count + 1u, 16), sizeof *equals->items);

            if (block == NULL)
                return KB_NOMEM;
            equals->items = block;
        }
        if (equals->count >= equals->size) {
            uint32_t size = equals->size == 0 ? 16 : equals->size * 2;
            void *block = kb_resize(&engine->heap, equals->slots, size, sizeof *equals->slots);

            if (block == NULL)
                return KB_NOMEM;
            equals->slots = block;
            equals->size = size;
            relink(engine);
        }
        equals->items[equals->count++].symbol = equals->seen + 1;
        link_from(engine, equals->count - 1);
    }
    return KB_OK;
}

/* Return the symbol of a number in plain digits without a fraction, or 0. */
static kb_sym find_plain_digits(const kb_symbols *symbols, const kb_text *text)
{
    const char *point = memchr(text->bytes, '.', text->len);
    kb_text whole = { text->bytes, point == NULL ? text->len : (size_t)(point - text->bytes) };

    for (const char *at = point; at != NULL && at < text->bytes + text->len; at++)
        if (*at != '.' && *at != '0')
            return 0;
    if (is_negative_zero(&whole)) {
        whole.bytes++;
        whole.len--;
    }
    return kb_symbol_find(symbols, whole.bytes, whole.len);
}

static int is_same(const kb_arg *a, const kb_arg *b)
{
    return (a->number.kind == KB_KIND_INSTANT) == (b->number.kind == KB_KIND_INSTANT) && kb_value_order(a, b) == 0;
}

/* Return the first symbol with the value of `from`, or 0. */
static kb_sym first_of(const kb_symbols *symbols, kb_sym from, const kb_arg *value)
{
    const kb_number *number = &value->number;

    return number->kind == KB_KIND_INTEGER || number->kind == KB_KIND_DECIMAL ? find_plain_digits(symbols, &value->text) : from;
}

kb_status kb_equal(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering)
{
    kb_symbols *symbols = &run->engine->symbols;
    const kb_equals *equals = &symbols->equals;
    kb_sym from = run->registers[step->b], candidate;
    kb_arg value, other;

    kb_value_get(symbols, from, &value);
    if (entering) {
        int has_others = value.number.kind != KB_KIND_TEXT && value.number.kind != KB_KIND_POWER;

        if (catch_up(run->engine) < 0)
            return KB_NOMEM;
        cursor->at = 0;               /* 0: at the first item, `entry`; otherwise past the item at -
                                       * 1 */
        cursor->entry = has_others && equals->size != 0 ? equals->slots[home_of(equals, &value.number)] : 0;
        run->left--;
        run->stats.probes++;
        if ((candidate = first_of(symbols, from, &value)) != 0) {
            kb_symbol_publish(symbols, run, candidate);
            run->registers[step->a] = candidate;
            return KB_OK;
        }
    }
    for (;;) {
        cursor->at = cursor->at == 0 ? cursor->entry : equals->items[cursor->at - 1].next;
        if (cursor->at == 0)
            break;
        run->left--;
        candidate = equals->items[cursor->at - 1].symbol;
        kb_symbol_publish(symbols, run, candidate);
        kb_value_get(symbols, candidate, &other);
        if (!(candidate == from && value.number.kind == KB_KIND_INSTANT) && is_same(&value, &other)) {
            run->registers[step->a] = candidate;
            return KB_OK;
        }
    }
    return KB_DONE;
}
