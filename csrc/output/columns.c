/* columns.c - answers as columns: for each column its distinct symbols and their texts.
 * Owns: the numbering of the symbols of a column. Never: the layout of a table; the caller puts the
 * arrays together. */
#include "internal.h"

#define MAX_SPAN 8u                   /* values of symbols for each cell: the table by symbol is an
                                       * array */

/* By hash of the symbol: its code + 1, 0: free. */
static kb_status number_by_hash(kb_engine *engine, const kb_sym *cells, size_t stride, size_t count,
                                uint32_t *codes, kb_sym *distinct, size_t *distinct_count)
{
    uint64_t mask = 63;
    uint32_t *slots, next = 0;

    while (mask < 2 * (uint64_t)count)
        mask = mask * 2 + 1;
    if ((slots = kb_alloc(&engine->heap, (size_t)mask + 1, sizeof *slots)) == NULL)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        kb_sym sym = cells[i * stride];
        uint64_t at = kb_mix(sym) & mask;

        while (slots[at] != 0 && distinct[slots[at] - 1] != sym)
            at = (at + 1) & mask;
        if (slots[at] == 0) {
            distinct[next] = sym;
            slots[at] = ++next;
        }
        codes[i] = slots[at] - 1;
    }
    kb_release(&engine->heap, slots);
    *distinct_count = next;
    return KB_OK;
}

kb_status kb_column_codes(kb_engine *engine, const kb_sym *cells, size_t stride, size_t count, uint32_t *codes,
                          kb_sym *distinct, size_t *distinct_count)
{
    kb_sym low = UINT32_MAX, high = 0;
    uint32_t *by_symbol, next = 0;

    if (engine == NULL || distinct_count == NULL || stride == 0 || count > KB_MAX_CODES
        || (count != 0 && (cells == NULL || codes == NULL || distinct == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++) {
        kb_sym sym = cells[i * stride];

        low = sym < low ? sym : low;
        high = sym > high ? sym : high;
    }
    if (count != 0 && (low == 0 || high > engine->symbols.count))
        return KB_MISUSE;
    if (count == 0 || (high - low) / MAX_SPAN > count)
        return number_by_hash(engine, cells, stride, count, codes, distinct, distinct_count);
    if ((by_symbol = kb_alloc(&engine->heap, high - low + 1, sizeof *by_symbol)) == NULL)
        return KB_NOMEM;
    for (size_t i = 0; i < count; i++) {
        kb_sym sym = cells[i * stride];
        uint32_t *code = by_symbol + (sym - low);

        if (*code == 0) {
            distinct[next] = sym;
            *code = ++next;
        }
        codes[i] = *code - 1;
    }
    kb_release(&engine->heap, by_symbol);
    *distinct_count = next;
    return KB_OK;
}

kb_status kb_text_offsets(const kb_engine *engine, const kb_sym *syms, size_t count, int32_t *offsets, size_t *filled)
{
    uint64_t used = 0;
    size_t i;

    if (engine == NULL || offsets == NULL || filled == NULL || !kb_symbols_exist(engine, syms, count))
        return KB_MISUSE;
    offsets[0] = 0;
    for (i = 0; i < count; i++) {
        const char *text;
        size_t len;

        kb_symbol_get(&engine->symbols, syms[i], &text, &len, NULL);
        used += len;
        if (used > INT32_MAX)
            break;
        offsets[i + 1] = (int32_t)used;
    }
    *filled = i;
    return KB_OK;
}

kb_status kb_texts(const kb_engine *engine, const kb_sym *syms, size_t count, char *bytes, size_t room)
{
    if (engine == NULL || (room != 0 && bytes == NULL) || !kb_symbols_exist(engine, syms, count))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++) {
        const char *text;
        size_t len;

        kb_symbol_get(&engine->symbols, syms[i], &text, &len, NULL);
        if (len > room)
            return KB_MISUSE;
        if (len != 0)
            memcpy(bytes, text, len);
        bytes += len;
        room -= len;
    }
    return KB_OK;
}
