/* equal.c - EQUAL: the texts that are the same number.
 * Owns: a table of numbers in a non-canonical form ("5.0", "1e3", "-0"). A whole number in plain
 * digits has one text, which the symbol table finds. The table is built when a plan first needs it
 * and follows the symbols from then on. Never: is incomplete for lack of memory; the run fails
 * instead. */
#include "machine.h"

static int is_noncanonical(const kb_symbols *symbols, kb_sym sym, kb_number *number)
{
    const char *text;
    size_t len;

    kb_symbol_get(symbols, sym, &text, &len, number);
    return number->kind == 2 || (number->kind == 1 && len == 2 && text[0] == '-' && text[1] == '0');
}

static uint32_t home_of(const kb_equals *equals, const kb_number *number)
{
    double value = number->real + 0.0;   /* -0 and 0 are one value */
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint32_t)kb_mix(bits) & (equals->size - 1);
}

/* Newer numbers are before older ones in their chain, also after the table has grown, so that an
 * iteration in progress continues correctly. */
static void link_from(kb_engine *engine, uint32_t first)
{
    kb_equals *equals = &engine->symbols.equals;
    kb_number number;

    for (uint32_t i = first; i < equals->count; i++) {
        uint32_t *slot;

        is_noncanonical(&engine->symbols, equals->items[i].symbol, &number);
        slot = equals->slots + home_of(equals, &number);
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
    kb_number number;

    if (equals->seen > symbols->count) {   /* some were rolled back */
        while (equals->count > 0 && equals->items[equals->count - 1].symbol > symbols->count)
            equals->count--;
        equals->seen = symbols->count;
        relink(engine);
    }
    for (; equals->seen < symbols->count; equals->seen++) {
        size_t have = equals->items == NULL ? 0 : kb_capacity(equals->items) / sizeof *equals->items;

        if (!is_noncanonical(symbols, equals->seen + 1, &number))
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

/* Return the symbol of the number in plain digits, or 0. */
static kb_sym find_plain_digits(const kb_symbols *symbols, const kb_number *number)
{
    kb_number integer = *number;
    char text[KB_NUMBER_TEXT];

    if (number->kind == 2) {
        if (!(number->real >= -9223372036854775808.0 && number->real < 9223372036854775808.0))
            return 0;
        integer.kind = 1;
        integer.integer = (int64_t)number->real;
        if ((double)integer.integer != number->real)
            return 0;
    }
    return kb_symbol_find(symbols, text, kb_number_text(&integer, text));
}

kb_status kb_equal(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering)
{
    kb_symbols *symbols = &run->engine->symbols;
    const kb_equals *equals = &symbols->equals;
    kb_sym from = run->registers[step->b], candidate;
    kb_number number, other;
    const char *text;
    size_t len;

    kb_symbol_get(symbols, from, &text, &len, &number);
    if (entering) {
        if (catch_up(run->engine) < 0)
            return KB_NOMEM;
        cursor->at = 0;               /* 0: at the first item, `entry`; otherwise past the item at -
                                       * 1 */
        cursor->entry = number.kind != 0 && equals->size != 0 ? equals->slots[home_of(equals, &number)] : 0;
        run->left--;
        run->stats.probes++;
        candidate = number.kind == 0 ? from : find_plain_digits(symbols, &number);
        if (candidate != 0) {
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
        is_noncanonical(symbols, candidate, &other);
        if (kb_number_order(&number, &other) == 0) {
            run->registers[step->a] = candidate;
            return KB_OK;
        }
    }
    return KB_DONE;
}
