/* intern.c - interns bytes as symbols.
 * Owns: the text of every symbol, the table that finds it, the number of a numeric text. Never:
 * removes a symbol, except when a batch that failed is rolled back.
 * A symbol takes the bytes of its text, 8 for its start, about 16 in the table, and 8 more if it is
 * a number. */
#include "internal.h"

static uint64_t load_64(const char *bytes)
{
    uint64_t value;

    memcpy(&value, bytes, sizeof value);
    return value;
}

/* Hash to 32 bits. A slot is never 0, because its other half is a symbol and those start at 1. */
static uint32_t hash_text(const kb_symbols *symbols, const char *text, size_t len)
{
    uint64_t hash = symbols->seed ^ len;
    size_t at = 0;
    uint64_t tail = 0;

    for (; len - at >= 8; at += 8)
        hash = kb_mix(hash ^ load_64(text + at));
    memcpy(&tail, text + at, len - at);
    return (uint32_t)(kb_mix(hash ^ tail) >> 32);
}

static uint64_t start_of(const kb_symbols *symbols, kb_sym sym)
{
    return symbols->starts[sym] & KB_START_MASK;
}

static size_t length_of(const kb_symbols *symbols, kb_sym sym)
{
    uint64_t room = start_of(symbols, sym + 1) - start_of(symbols, sym);

    return (size_t)(symbols->starts[sym] >> KB_KIND_SHIFT ? room - 8 : room);
}

static kb_sym find_text(const kb_symbols *symbols, const char *text, size_t len, uint32_t hash)
{
    uint64_t slot;

    if (symbols->mask == 0)
        return 0;
    for (uint32_t at = hash & symbols->mask; (slot = symbols->slots[at]) != 0; at = (at + 1) & symbols->mask) {
        kb_sym sym = (kb_sym)slot;

        if ((uint32_t)(slot >> 32) == hash && length_of(symbols, sym) == len
            && memcmp(symbols->bytes + start_of(symbols, sym), text, len) == 0)
            return sym;
    }
    return 0;
}

static void place(uint64_t *slots, uint32_t mask, uint64_t slot)
{
    uint32_t at = (uint32_t)(slot >> 32) & mask;

    while (slots[at] != 0)
        at = (at + 1) & mask;
    slots[at] = slot;
}

/* Reserve space for one more symbol of `len` bytes. */
static kb_status reserve_symbol(kb_engine *engine, kb_symbols *symbols, size_t len)
{
    void *block;
    size_t have;

    if (symbols->count >= KB_MAX_SYMBOLS - 1 || len > KB_START_MASK - symbols->used - 8)
        return KB_NOMEM;
    if (symbols->mask == 0 || symbols->count + 1 > symbols->mask / 4 * 3) {
        uint32_t mask = symbols->mask == 0 ? 63 : symbols->mask * 2 + 1;
        uint64_t *slots = kb_alloc(&engine->heap, (size_t)mask + 1, sizeof *slots);

        if (slots == NULL)
            return KB_NOMEM;
        if (symbols->mask != 0)
            for (size_t i = 0; i <= symbols->mask; i++)
                if (symbols->slots[i] != 0)
                    place(slots, mask, symbols->slots[i]);
        kb_release(&engine->heap, symbols->slots);
        symbols->slots = slots;
        symbols->mask = mask;
    }
    have = symbols->starts == NULL ? 0 : kb_capacity(symbols->starts) / sizeof *symbols->starts;
    if ((size_t)symbols->count + 3 > have) {
        block = kb_resize(&engine->heap, symbols->starts, kb_grow_capacity(have, symbols->count + 3u, 64), sizeof *symbols->starts);
        if (block == NULL)
            return KB_NOMEM;
        symbols->starts = block;
        symbols->starts[symbols->count + 1] = symbols->used;
    }
    have = symbols->bytes == NULL ? 0 : kb_capacity(symbols->bytes);
    if (symbols->used + len + 8 > have) {
        block = kb_resize(&engine->heap, symbols->bytes, kb_grow_capacity(have, symbols->used + len + 8, 512), 1);
        if (block == NULL)
            return KB_NOMEM;
        symbols->bytes = block;
    }
    return KB_OK;
}

static kb_status intern_hashed(kb_engine *engine, const char *text, size_t len, uint32_t hash, kb_sym *out)
{
    kb_symbols *symbols = &engine->symbols;
    kb_number number;
    kb_status status;
    kb_sym sym = find_text(symbols, text, len, hash);

    if (sym != 0) {
        *out = sym;
        return KB_OK;
    }
    if ((status = reserve_symbol(engine, symbols, len)) < 0)
        return status;
    sym = ++symbols->count;
    kb_number_parse(text, len, &number);
    symbols->starts[sym] = symbols->used | (uint64_t)number.kind << KB_KIND_SHIFT;
    if (len != 0)
        memcpy(symbols->bytes + symbols->used, text, len);
    symbols->used += len;
    if (number.kind != KB_KIND_TEXT) {
        memcpy(symbols->bytes + symbols->used, number.kind == KB_KIND_INTEGER ? (void *)&number.integer : (void *)&number.real, 8);
        symbols->used += 8;
    }
    symbols->starts[sym + 1] = symbols->used;
    place(symbols->slots, symbols->mask, (uint64_t)hash << 32 | sym);
    *out = sym;
    return KB_OK;
}

static kb_status intern(kb_engine *engine, const char *text, size_t len, kb_sym *out)
{
    return intern_hashed(engine, text, len, hash_text(&engine->symbols, text, len), out);
}

/* Remove the newest symbol. Later slots of the cluster move back into the gap, so that no probe
 * sequence ends too soon. */
static void forget_last(kb_symbols *symbols)
{
    kb_sym sym = symbols->count--;
    uint32_t hash = hash_text(symbols, symbols->bytes + start_of(symbols, sym), length_of(symbols, sym));
    uint32_t hole = hash & symbols->mask;

    while ((kb_sym)symbols->slots[hole] != sym)
        hole = (hole + 1) & symbols->mask;
    for (uint32_t at = (hole + 1) & symbols->mask; symbols->slots[at] != 0; at = (at + 1) & symbols->mask) {
        uint32_t home = (uint32_t)(symbols->slots[at] >> 32) & symbols->mask;

        if (((at - home) & symbols->mask) >= ((at - hole) & symbols->mask)) {
            symbols->slots[hole] = symbols->slots[at];
            hole = at;
        }
    }
    symbols->slots[hole] = 0;
    symbols->used = start_of(symbols, sym);
    symbols->starts[sym] = symbols->used;
}

void kb_symbols_free(kb_engine *engine)
{
    kb_release(&engine->heap, engine->symbols.bytes);
    kb_release(&engine->heap, engine->symbols.starts);
    kb_release(&engine->heap, engine->symbols.slots);
    kb_release(&engine->heap, engine->symbols.equals.items);
    kb_release(&engine->heap, engine->symbols.equals.slots);
}

/* `number` may be NULL; the symbol must exist. */
void kb_symbol_get(const kb_symbols *symbols, kb_sym sym, const char **text, size_t *len, kb_number *number)
{
    const char *start = symbols->bytes + start_of(symbols, sym);

    *text = start;
    *len = length_of(symbols, sym);
    if (number == NULL)
        return;
    number->kind = (uint32_t)(symbols->starts[sym] >> KB_KIND_SHIFT);
    number->integer = 0;
    number->real = 0.0;
    if (number->kind == KB_KIND_INTEGER) {
        memcpy(&number->integer, start + *len, 8);
        number->real = (double)number->integer;
    } else if (number->kind != KB_KIND_TEXT) {
        memcpy(&number->real, start + *len, 8);
    }
}

void kb_symbol_publish(kb_symbols *symbols, const void *maker, kb_sym sym)
{
    if (symbols->maker != maker && sym > symbols->made_from)
        symbols->maker = NULL;
}

kb_sym kb_symbol_find(const kb_symbols *symbols, const char *text, size_t len)
{
    return find_text(symbols, text, len, hash_text(symbols, text, len));
}

kb_status kb_symbol_make(kb_engine *engine, const void *maker, kb_heap *heap, const char *text, size_t len, kb_sym *out)
{
    kb_symbols *symbols = &engine->symbols;
    kb_sym sym = kb_symbol_find(symbols, text, len);
    kb_status status;

    if (sym != 0) {
        kb_symbol_publish(symbols, maker, sym);
        *out = sym;
        return KB_OK;
    }
    if (!kb_heap_charge(heap, len + 32))   /* what a symbol costs in addition to its text */
        return KB_NOMEM;
    if (symbols->maker != maker) {
        symbols->maker = maker;
        symbols->made_from = symbols->count;
    }
    if ((status = intern(engine, text, len, out)) < 0)
        heap->used -= len + 32;
    return status;
}

void kb_symbols_end_run(kb_engine *engine, const void *maker, int forget)
{
    kb_symbols *symbols = &engine->symbols;

    if (symbols->maker != maker)
        return;
    while (forget && symbols->count > symbols->made_from)
        forget_last(symbols);
    symbols->maker = NULL;
}

kb_status kb_intern(kb_engine *engine, const char *bytes, size_t len, kb_sym *out)
{
    kb_status status;

    if (engine == NULL || out == NULL || (bytes == NULL && len != 0))
        return KB_MISUSE;
    if ((status = intern(engine, bytes == NULL ? "" : bytes, len, out)) == KB_OK)
        kb_symbol_publish(&engine->symbols, NULL, *out);
    return status;
}

/* Intern at most GROUP texts. Each step prefetches what the next one reads, so that the cache
 * misses of a group overlap: slots, then starts, then texts. */
#define GROUP 32u
static kb_status intern_group(kb_engine *engine, const char *bytes, uint64_t start, const uint64_t *ends, size_t count, kb_sym *out)
{
    const kb_symbols *symbols = &engine->symbols;
    uint32_t hashes[GROUP];
    uint64_t at = start;

    for (size_t i = 0; i < count; at = ends[i++]) {
        hashes[i] = hash_text(symbols, bytes + at, (size_t)(ends[i] - at));
        if (symbols->mask != 0)
            KB_PREFETCH(symbols->slots + (hashes[i] & symbols->mask));
    }
    for (size_t i = 0; i < count && symbols->mask != 0; i++)
        KB_PREFETCH(symbols->starts + (kb_sym)symbols->slots[hashes[i] & symbols->mask]);
    for (size_t i = 0; i < count && symbols->mask != 0; i++) {
        kb_sym sym = (kb_sym)symbols->slots[hashes[i] & symbols->mask];

        if (sym != 0)
            KB_PREFETCH(symbols->bytes + start_of(symbols, sym));
    }
    for (size_t i = 0; i < count; start = ends[i++]) {
        kb_status status = intern_hashed(engine, bytes + start, (size_t)(ends[i] - start), hashes[i], out + i);

        if (status < 0)
            return status;
    }
    return KB_OK;
}

kb_status kb_intern_many(kb_engine *engine, const char *bytes, const uint64_t *ends, size_t count, kb_sym *out)
{
    uint32_t before;
    uint64_t start = 0;

    if (engine == NULL || (count != 0 && (bytes == NULL || ends == NULL || out == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; start = ends[i++])
        if (ends[i] < start)
            return KB_MISUSE;
    before = engine->symbols.count;
    for (size_t i = 0; i < count; i += GROUP) {
        size_t size = count - i < GROUP ? count - i : GROUP;
        kb_status status = intern_group(engine, bytes, i == 0 ? 0 : ends[i - 1], ends + i, size, out + i);

        if (status < 0) {
            while (engine->symbols.count > before)
                forget_last(&engine->symbols);
            return status;
        }
    }
    for (size_t i = 0; i < count; i++)
        kb_symbol_publish(&engine->symbols, NULL, out[i]);
    return KB_OK;
}

/* The symbol is in no table, so that equal texts get symbols of their own. */
kb_status kb_symbol_reuse(kb_engine *engine, kb_sym symbol, const char *bytes, size_t len, kb_sym *out)
{
    kb_symbols *symbols;
    kb_number number;

    if (engine == NULL || out == NULL || bytes == NULL || len == 0)
        return KB_MISUSE;
    symbols = &engine->symbols;
    kb_number_parse(bytes, len, &number);
    if (number.kind != KB_KIND_TEXT)
        return KB_MISUSE;
    if (symbol == 0) {
        if (reserve_symbol(engine, symbols, len) < 0)
            return KB_NOMEM;
        symbol = ++symbols->count;
        symbols->starts[symbol] = symbols->used;
        symbols->used += len;
        symbols->starts[symbol + 1] = symbols->used;
        symbols->maker = NULL;   /* no run may roll it back */
    } else if (symbol > symbols->count || symbols->starts[symbol] >> KB_KIND_SHIFT != 0 || length_of(symbols, symbol) != len
               || kb_symbol_find(symbols, symbols->bytes + start_of(symbols, symbol), len) == symbol) {
        return KB_MISUSE;
    }
    memcpy(symbols->bytes + start_of(symbols, symbol), bytes, len);
    *out = symbol;
    return KB_OK;
}

kb_status kb_find(kb_engine *engine, const char *bytes, size_t len, kb_sym *out)
{
    if (engine == NULL || out == NULL || (bytes == NULL && len != 0))
        return KB_MISUSE;
    bytes = bytes == NULL ? "" : bytes;
    *out = kb_symbol_find(&engine->symbols, bytes, len);
    kb_symbol_publish(&engine->symbols, NULL, *out);
    return KB_OK;
}

kb_status kb_find_many(kb_engine *engine, const char *bytes, const uint64_t *ends, size_t count, kb_sym *out)
{
    uint64_t start = 0;

    if (engine == NULL || (count != 0 && (bytes == NULL || ends == NULL || out == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; start = ends[i++]) {
        if (ends[i] < start)
            return KB_MISUSE;
        out[i] = kb_symbol_find(&engine->symbols, bytes + start, (size_t)(ends[i] - start));
        kb_symbol_publish(&engine->symbols, NULL, out[i]);
    }
    return KB_OK;
}

static int is_symbol(const kb_engine *engine, kb_sym sym)
{
    return engine != NULL && sym != 0 && sym <= engine->symbols.count;
}

kb_status kb_symbol(const kb_engine *engine, kb_sym sym, const char **bytes, size_t *len)
{
    if (!is_symbol(engine, sym) || bytes == NULL || len == NULL)
        return KB_MISUSE;
    kb_symbol_get(&engine->symbols, sym, bytes, len, NULL);
    return KB_OK;
}

kb_status kb_symbols_text(const kb_engine *engine, const kb_sym *syms, size_t count, char *bytes, size_t room,
                          uint64_t *ends, size_t *filled)
{
    uint64_t used = 0;
    size_t i;

    if (engine == NULL || filled == NULL || (count != 0 && (syms == NULL || ends == NULL))
        || (room != 0 && bytes == NULL))
        return KB_MISUSE;
    for (i = 0; i < count; i++)
        if (!is_symbol(engine, syms[i]))
            return KB_MISUSE;
    for (i = 0; i < count; i++) {
        const char *text;
        size_t len;

        kb_symbol_get(&engine->symbols, syms[i], &text, &len, NULL);
        if (len > room - used)
            break;
        if (len != 0)
            memcpy(bytes + used, text, len);
        used += len;
        ends[i] = used;
    }
    *filled = i;
    return KB_OK;
}

uint32_t kb_symbol_count(const kb_engine *engine)
{
    return engine == NULL ? 0 : engine->symbols.count;
}

kb_status kb_symbol_number(const kb_engine *engine, kb_sym sym, uint32_t *kind, int64_t *integer, double *real)
{
    const char *text;
    size_t len;
    kb_number number;

    if (!is_symbol(engine, sym) || kind == NULL || integer == NULL || real == NULL)
        return KB_MISUSE;
    kb_symbol_get(&engine->symbols, sym, &text, &len, &number);
    *kind = number.kind;
    *integer = number.integer;
    *real = number.real;
    return KB_OK;
}
