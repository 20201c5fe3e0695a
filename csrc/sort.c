/* sort.c - the order of symbols, and sorting rows in answer order.
 * Owns: answer order (numbers before text, numbers by value then text, text by bytes) and the tests
 * of COMPARE. Never: changes rows before it has all the memory it needs. */
#include "internal.h"

static int text_order(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

    return order != 0 ? order : a_len < b_len ? -1 : a_len > b_len;
}

int kb_symbol_order(const kb_symbols *symbols, kb_sym a, kb_sym b)
{
    const char *a_text, *b_text;
    size_t a_len, b_len;
    kb_number x, y;
    int order;

    if (a == b)
        return 0;
    kb_symbol_get(symbols, a, &a_text, &a_len, &x);
    kb_symbol_get(symbols, b, &b_text, &b_len, &y);
    if ((x.kind == 0) != (y.kind == 0))
        return x.kind == 0 ? 1 : -1;
    if (x.kind != 0 && (order = kb_number_order(&x, &y)) != 0)
        return order;
    return text_order(a_text, a_len, b_text, b_len);
}

int kb_symbol_test(const kb_symbols *symbols, uint32_t op, kb_sym a, kb_sym b)
{
    const char *a_text, *b_text;
    size_t a_len, b_len;
    kb_number x, y;
    int order, outcome;

    if ((op & 7) == 2 || (op & 7) == 3) {
        outcome = (a == b) == ((op & 7) == 2);
        return outcome != (op >= 8);
    }
    kb_symbol_get(symbols, a, &a_text, &a_len, &x);
    kb_symbol_get(symbols, b, &b_text, &b_len, &y);
    if (x.kind != 0 && y.kind != 0) {
        order = kb_number_order(&x, &y);
        outcome = 1;
    } else if ((op & 7) < 2) {
        order = a != b;
        outcome = 1;
    } else {
        order = text_order(a_text, a_len, b_text, b_len);
        outcome = x.kind == 0 && y.kind == 0;   /* a number and a text are not ordered */
    }
    switch (op & 7) {
    case 0: outcome &= order == 0; break;
    case 1: outcome &= order != 0; break;
    case 4: outcome &= order < 0; break;
    case 5: outcome &= order <= 0; break;
    case 6: outcome &= order > 0; break;
    default: outcome &= order >= 0; break;
    }
    return outcome != (op >= 8);
}

/* A row with a prefix of its sort key: prefixes that differ decide without reading the symbols. */
typedef struct kb_item { uint64_t prefix; size_t row; } kb_item;

typedef struct kb_sorting {
    const kb_symbols *symbols;
    const kb_sym *rows;
    uint32_t arity, first;            /* the first column in which rows differ */
} kb_sorting;

static uint64_t prefix_of(const kb_symbols *symbols, kb_sym sym)
{
    const char *text;
    size_t len;
    kb_number number;
    uint64_t prefix = 0;

    kb_symbol_get(symbols, sym, &text, &len, &number);
    if (number.kind == 0) {
        for (size_t i = 0; i < 8; i++)
            prefix = prefix << 8 | (i < len ? (uint8_t)text[i] : 0);
        return prefix >> 1 | UINT64_C(1) << 63;
    }
    number.real += 0.0;               /* -0 and 0 are one value */
    memcpy(&prefix, &number.real, sizeof prefix);
    prefix = prefix >> 63 ? ~prefix : prefix | UINT64_C(1) << 63;
    return prefix >> 1;
}

static int item_order(const kb_sorting *sorting, const kb_item *a, const kb_item *b)
{
    const kb_sym *x = sorting->rows + a->row * sorting->arity, *y = sorting->rows + b->row * sorting->arity;
    int order = 0;

    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    for (uint32_t i = sorting->first; i < sorting->arity && order == 0; i++)
        order = kb_symbol_order(sorting->symbols, x[i], y[i]);
    return order;
}

/* Bottom-up merge sort: no recursion, no bad case. Returns the array that holds the result. */
static kb_item *sort_items(const kb_sorting *sorting, kb_item *items, kb_item *other, size_t count)
{
    for (size_t width = 1; width < count; width *= 2) {
        kb_item *swap = items;

        for (size_t start = 0; start < count; start += 2 * width) {
            size_t middle = start + width < count ? start + width : count;
            size_t end = start + 2 * width < count ? start + 2 * width : count;
            size_t left = start, right = middle, out = start;

            while (left < middle && right < end)
                other[out++] = item_order(sorting, items + right, items + left) < 0 ? items[right++] : items[left++];
            while (left < middle)
                other[out++] = items[left++];
            while (right < end)
                other[out++] = items[right++];
        }
        items = other;
        other = swap;
    }
    return items;
}

kb_status kb_sort_rows(kb_engine *engine, kb_sym *rows, uint32_t arity, size_t count)
{
    kb_sorting sorting;
    kb_item *items, *sorted;
    kb_sym *copy;

    if (engine == NULL || arity > KB_MAX_ARITY || (rows == NULL && arity != 0 && count != 0))
        return KB_MISUSE;
    if (!kb_symbols_exist(engine, rows, count * arity))
        return KB_MISUSE;
    sorting.symbols = &engine->symbols;
    sorting.rows = rows;
    sorting.arity = arity;
    for (sorting.first = 0; sorting.first < arity; sorting.first++) {
        size_t i = 1;

        while (i < count && rows[i * arity + sorting.first] == rows[sorting.first])
            i++;
        if (i < count)
            break;
    }
    if (count < 2 || sorting.first == arity)
        return KB_OK;
    items = kb_alloc(&engine->heap, count, 2 * sizeof *items);
    copy = kb_alloc(&engine->heap, count, arity * sizeof *copy);
    if (items == NULL || copy == NULL) {
        kb_release(&engine->heap, items);
        kb_release(&engine->heap, copy);
        return KB_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        items[i].prefix = prefix_of(&engine->symbols, rows[i * arity + sorting.first]);
        items[i].row = i;
    }
    sorted = sort_items(&sorting, items, items + count, count);
    memcpy(copy, rows, count * arity * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        memcpy(rows + i * arity, copy + sorted[i].row * arity, arity * sizeof *rows);
    kb_release(&engine->heap, items);
    kb_release(&engine->heap, copy);
    return KB_OK;
}
