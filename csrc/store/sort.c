/* sort.c - the order of symbols, and sorting rows in answer order.
 * Owns: answer order (numbers before text, numbers by value then text, text by bytes) and the tests
 * of COMPARE (numbers by value, instants by time, others as texts). Never: changes rows before it
 * has all the memory it needs. */
#include "internal.h"

#define DATE_CHARS 10u                /* of yyyy-mm-dd */
#define SECOND_CHARS 19u              /* of yyyy-mm-ddThh:mm:ss */

static int text_order(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

    return order != 0 ? order : a_len < b_len ? -1 : a_len > b_len;
}

static void get(const kb_symbols *symbols, kb_sym sym, kb_arg *out)
{
    kb_symbol_get(symbols, sym, &out->text.bytes, &out->text.len, &out->number);
}

int kb_symbol_order(const kb_symbols *symbols, kb_sym a, kb_sym b)
{
    kb_arg x, y;

    if (a == b)
        return 0;
    get(symbols, a, &x);
    get(symbols, b, &y);
    if ((x.number.kind == KB_KIND_TEXT) != (y.number.kind == KB_KIND_TEXT))
        return x.number.kind == KB_KIND_TEXT ? 1 : -1;
    return kb_value_text_order(&x, &y);
}

int kb_value_text_order(const kb_arg *a, const kb_arg *b)
{
    int order = a->number.kind == KB_KIND_TEXT ? 0 : kb_value_order(a, b);

    return order != 0 ? order : text_order(a->text.bytes, a->text.len, b->text.bytes, b->text.len);
}

static int looks_like_instant(const kb_text *text)
{
    return text->len >= DATE_CHARS && text->bytes[4] == '-' && text->bytes[7] == '-';
}

void kb_value_get(const kb_symbols *symbols, kb_sym sym, kb_arg *out)
{
    get(symbols, sym, out);
    if (out->number.kind == KB_KIND_TEXT && looks_like_instant(&out->text))
        kb_instant_read(&out->text, &out->number);
}

/* Return 1 if two texts are in the order of time if they are instants: dates, or times in UTC that
 * are written in the same way. */
static int are_alike(const kb_text *a, const kb_text *b)
{
    if (a->len != b->len)
        return 0;
    return a->len == DATE_CHARS
           || (a->bytes[a->len - 1] == 'Z' && b->bytes[a->len - 1] == 'Z' && a->bytes[DATE_CHARS] == b->bytes[DATE_CHARS]
               && (a->len <= SECOND_CHARS || a->bytes[SECOND_CHARS] == b->bytes[SECOND_CHARS]));
}

/* The order of two different texts: instants by time, all others by code point. */
static int time_order(const kb_text *a, const kb_text *b)
{
    kb_number x, y;

    if (looks_like_instant(a) && looks_like_instant(b) && !are_alike(a, b) && kb_instant_read(a, &x) && kb_instant_read(b, &y)) {
        kb_arg first = { *a, x }, second = { *b, y };

        return kb_value_order(&first, &second);
    }
    return text_order(a->bytes, a->len, b->bytes, b->len);
}

/* Compare two different constants. Return 0 if they are not ordered: a number and a text, and for
 * an equation two numbers of which one has an exponent. */
static int value_order(const kb_symbols *symbols, kb_sym a, kb_sym b, int is_equation, int *order)
{
    kb_arg x, y;

    get(symbols, a, &x);
    get(symbols, b, &y);
    if (x.number.kind == KB_KIND_TEXT && y.number.kind == KB_KIND_TEXT) {
        *order = time_order(&x.text, &y.text);
        return 1;
    }
    if (x.number.kind == KB_KIND_TEXT || y.number.kind == KB_KIND_TEXT
        || (is_equation && (x.number.kind == KB_KIND_POWER || y.number.kind == KB_KIND_POWER)))
        return 0;
    *order = kb_value_order(&x, &y);
    return 1;
}

int kb_symbol_test(const kb_symbols *symbols, uint32_t op, kb_sym a, kb_sym b)
{
    uint32_t test = op & 7;
    int order = 0, outcome, ordered = 1;

    if (test == 2 || test == 3) {
        outcome = (a == b) == (test == 2);
        return outcome != (op >= 8);
    }
    if (a != b)
        ordered = value_order(symbols, a, b, test < 2, &order);
    switch (test) {
    case 0: outcome = ordered && order == 0; break;
    case 1: outcome = !ordered || order != 0; break;
    case 4: outcome = ordered && order < 0; break;
    case 5: outcome = ordered && order <= 0; break;
    case 6: outcome = ordered && order > 0; break;
    default: outcome = ordered && order >= 0; break;
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

/* `skip` is the number of bytes with which all texts begin. */
static uint64_t prefix_of(const kb_symbols *symbols, kb_sym sym, size_t skip)
{
    const char *text;
    size_t len;
    kb_number number;
    uint64_t prefix = 0;

    kb_symbol_get(symbols, sym, &text, &len, &number);
    if (number.kind == 0) {
        for (size_t i = skip; i < skip + 8; i++)
            prefix = prefix << 8 | (i < len ? (uint8_t)text[i] : 0);
        return prefix >> 1 | UINT64_C(1) << 63;
    }
    number.real += 0.0;               /* -0 and 0 are one value */
    memcpy(&prefix, &number.real, sizeof prefix);
    prefix = prefix >> 63 ? ~prefix : prefix | UINT64_C(1) << 63;
    return prefix >> 1;
}

/* The number of bytes with which all texts of a column that are not numbers begin. */
static size_t common_prefix(const kb_symbols *symbols, const kb_sym *column, size_t stride, size_t count)
{
    const char *first = NULL, *text;
    size_t common = 0, len;
    kb_number number;

    for (size_t i = 0; i < count && (first == NULL || common != 0); i++) {
        kb_symbol_get(symbols, column[i * stride], &text, &len, &number);
        if (number.kind != 0)
            continue;
        if (first == NULL) {
            first = text;
            common = len;
        }
        if (common > len)
            common = len;
        for (size_t at = 0; at < common; at++)
            if (text[at] != first[at])
                common = at;
    }
    return common;
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

            if (middle == end || item_order(sorting, items + middle - 1, items + middle) <= 0) {
                memcpy(other + start, items + start, (end - start) * sizeof *items);
                continue;
            }
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

/* The items of `count` rows in order; NULL: out of memory. The caller releases `*block`. */
static kb_item *sorted_items(kb_engine *engine, const kb_sorting *sorting, size_t count, kb_item **block)
{
    const kb_sym *column = sorting->rows + sorting->first;
    kb_item *items = *block = kb_alloc(&engine->heap, count, 2 * sizeof *items);
    size_t skip;

    if (items == NULL)
        return NULL;
    skip = common_prefix(sorting->symbols, column, sorting->arity, count);
    for (size_t i = 0; i < count; i++) {
        items[i].prefix = prefix_of(sorting->symbols, column[i * sorting->arity], skip);
        items[i].row = i;
    }
    return sort_items(sorting, items, items + count, count);
}

static kb_status sort_by_text(kb_engine *engine, kb_sym *rows, uint32_t arity, uint32_t first, size_t count)
{
    kb_sorting sorting = {&engine->symbols, rows, arity, first};
    kb_item *items = NULL, *sorted = NULL;
    kb_sym *copy = kb_alloc(&engine->heap, count, arity * sizeof *copy);

    if (copy != NULL)
        sorted = sorted_items(engine, &sorting, count, &items);
    if (sorted != NULL) {
        memcpy(copy, rows, count * arity * sizeof *copy);
        for (size_t i = 0; i < count; i++)
            memcpy(rows + i * arity, copy + sorted[i].row * arity, arity * sizeof *rows);
    }
    kb_release(&engine->heap, items);
    kb_release(&engine->heap, copy);
    return sorted == NULL ? KB_NOMEM : KB_OK;
}

/* Many rows are sorted by the ranks of their symbols: the distinct symbols are sorted once, the
 * ranks of a row form a key of at most 64 bits, and the keys go through a radix sort. */
#define MIN_RANKED_ROWS 128u
#define MAX_SPAN 8u                   /* values of symbols for each cell: the table by symbol is an
                                       * array */
#define DIGIT_BITS 8u                 /* of a digit of the radix sort */
#define LARGE_DIGIT_BITS 11u
#define LARGE_ROWS 4096u              /* rows for which larger digits pay */

typedef struct kb_ranks {
    kb_sym low, span;                 /* the symbols low .. low + span - 1 */
    uint32_t count, bits;             /* of distinct symbols; of a rank */
    uint32_t width;                   /* columns in which rows differ */
    uint8_t columns[KB_MAX_ARITY];
    uint32_t *by_symbol;              /* from `low` on */
    kb_sym *by_rank;
} kb_ranks;

static uint32_t bits_of(uint64_t value)
{
    uint32_t bits = 0;

    for (; value != 0; value >>= 1)
        bits++;
    return bits;
}

/* Find the columns in which rows differ and the range of their symbols. */
static void find_range(kb_ranks *ranks, const kb_sym *rows, uint32_t arity, uint32_t first, size_t count)
{
    kb_sym low = UINT32_MAX, high = 0;

    ranks->width = 0;
    for (uint32_t column = first; column < arity; column++) {
        kb_sym least = rows[column], most = rows[column];

        for (size_t i = 1; i < count; i++) {
            kb_sym sym = rows[i * arity + column];

            least = sym < least ? sym : least;
            most = sym > most ? sym : most;
        }
        if (least == most)
            continue;
        ranks->columns[ranks->width++] = (uint8_t)column;
        low = least < low ? least : low;
        high = most > high ? most : high;
    }
    ranks->low = low;
    ranks->span = high - low + 1;
}

/* Give each distinct symbol its rank. Returns: OK, NOMEM; DONE, with nothing done, if the ranks of
 * a row do not fit in a key. */
static kb_status rank_symbols(kb_engine *engine, kb_ranks *ranks, const kb_sym *rows, uint32_t arity, size_t count)
{
    kb_sorting sorting = {&engine->symbols, NULL, 1, 0};
    kb_item *items, *sorted;
    kb_sym *distinct;
    uint32_t at = 0;

    ranks->by_symbol = kb_alloc(&engine->heap, ranks->span, sizeof *ranks->by_symbol);
    if (ranks->by_symbol == NULL)
        return KB_NOMEM;
    for (uint32_t column = 0; column < ranks->width; column++)
        for (size_t i = 0; i < count; i++)
            ranks->by_symbol[rows[i * arity + ranks->columns[column]] - ranks->low] = 1;
    ranks->count = 0;
    for (uint32_t i = 0; i < ranks->span; i++)
        ranks->count += ranks->by_symbol[i];
    ranks->bits = bits_of(ranks->count - 1);
    if (ranks->bits * ranks->width > 64)
        return KB_DONE;
    distinct = ranks->by_rank = kb_alloc(&engine->heap, ranks->count, 2 * sizeof *distinct);
    if (distinct == NULL)
        return KB_NOMEM;
    distinct += ranks->count;         /* unordered, behind those in order */
    for (uint32_t i = 0; i < ranks->span; i++)
        if (ranks->by_symbol[i] != 0)
            distinct[at++] = ranks->low + i;
    sorting.rows = distinct;
    sorted = sorted_items(engine, &sorting, ranks->count, &items);
    for (uint32_t i = 0; sorted != NULL && i < ranks->count; i++) {
        ranks->by_rank[i] = distinct[sorted[i].row];
        ranks->by_symbol[ranks->by_rank[i] - ranks->low] = i;
    }
    kb_release(&engine->heap, items);
    return sorted == NULL ? KB_NOMEM : KB_OK;
}

/* Keys are 32 bits wide if they fit: fresh memory is a large part of the time. `is_wide` is a
 * constant in all calls, so that each width has loops of its own. */
static KB_ALWAYS_INLINE uint64_t key_at(const void *keys, size_t i, int is_wide)
{
    return is_wide ? ((const uint64_t *)keys)[i] : ((const uint32_t *)keys)[i];
}

static KB_ALWAYS_INLINE void set_key(void *keys, size_t i, uint64_t key, int is_wide)
{
    if (is_wide)
        ((uint64_t *)keys)[i] = key;
    else
        ((uint32_t *)keys)[i] = (uint32_t)key;
}

/* Returns 1 if the rows are in order already. */
static KB_ALWAYS_INLINE int make_keys(const kb_ranks *ranks, const kb_sym *rows, uint32_t arity, size_t count,
                                      void *keys, int is_wide)
{
    uint64_t last = 0;
    int is_ordered = 1;

    for (size_t i = 0; i < count; i++) {
        uint64_t key = 0;

        for (uint32_t j = 0; j < ranks->width; j++)
            key = key << ranks->bits | ranks->by_symbol[rows[i * arity + ranks->columns[j]] - ranks->low];
        is_ordered &= key >= last;
        set_key(keys, i, key, is_wide);
        last = key;
    }
    return is_ordered;
}

/* Radix sort, least significant digit first; `starts` has zeros for each value of each digit.
 * Returns the array that holds the result. */
static KB_ALWAYS_INLINE void *sort_keys(void *keys, void *other, size_t count, uint32_t digits, uint32_t digit_bits,
                                        size_t *starts, int is_wide)
{
    uint64_t mask = (UINT64_C(1) << digit_bits) - 1;

    for (size_t i = 0; i < count; i++)
        for (uint32_t digit = 0; digit < digits; digit++)
            starts[((size_t)digit << digit_bits) + (key_at(keys, i, is_wide) >> digit * digit_bits & mask)]++;
    for (uint32_t digit = 0; digit < digits; digit++) {
        size_t *start = starts + ((size_t)digit << digit_bits), sum = 0;
        uint32_t shift = digit * digit_bits;
        void *swap = keys;

        if (start[key_at(keys, 0, is_wide) >> shift & mask] == count)
            continue;                 /* the digit is the same in all keys */
        for (uint64_t value = 0; value <= mask; value++) {
            size_t occurrences = start[value];

            start[value] = sum;
            sum += occurrences;
        }
        for (size_t i = 0; i < count; i++) {
            uint64_t key = key_at(keys, i, is_wide);

            set_key(other, start[key >> shift & mask]++, key, is_wide);
        }
        keys = other;
        other = swap;
    }
    return keys;
}

static KB_ALWAYS_INLINE void write_keys(const kb_ranks *ranks, const void *keys, kb_sym *rows, uint32_t arity,
                                        size_t count, int is_wide)
{
    uint64_t mask = (UINT64_C(1) << ranks->bits) - 1;

    for (size_t i = 0; i < count; i++) {
        uint64_t key = key_at(keys, i, is_wide);

        for (uint32_t j = ranks->width; j-- > 0; key >>= ranks->bits)
            rows[i * arity + ranks->columns[j]] = ranks->by_rank[key & mask];
    }
}

static KB_ALWAYS_INLINE kb_status sort_ranked(kb_engine *engine, const kb_ranks *ranks, kb_sym *rows, uint32_t arity,
                                              size_t count, int is_wide)
{
    size_t size = is_wide ? sizeof(uint64_t) : sizeof(uint32_t);
    uint32_t bits = ranks->bits * ranks->width, most = count < LARGE_ROWS ? DIGIT_BITS : LARGE_DIGIT_BITS;
    uint32_t digits = (bits + most - 1) / most, digit_bits = (bits + digits - 1) / digits;
    char *keys = kb_alloc(&engine->heap, count, 2 * size);
    size_t *starts = kb_alloc(&engine->heap, (size_t)digits << digit_bits, sizeof *starts);
    int has_memory = keys != NULL && starts != NULL;

    if (has_memory && !make_keys(ranks, rows, arity, count, keys, is_wide)) {
        const void *sorted = sort_keys(keys, keys + count * size, count, digits, digit_bits, starts, is_wide);

        write_keys(ranks, sorted, rows, arity, count, is_wide);
    }
    kb_release(&engine->heap, starts);
    kb_release(&engine->heap, keys);
    return has_memory ? KB_OK : KB_NOMEM;
}

/* Returns as rank_symbols. */
static kb_status sort_by_rank(kb_engine *engine, kb_ranks *ranks, kb_sym *rows, uint32_t arity, size_t count)
{
    kb_status status = rank_symbols(engine, ranks, rows, arity, count);

    if (status == KB_OK)
        status = ranks->bits * ranks->width > 32 ? sort_ranked(engine, ranks, rows, arity, count, 1)
                                                 : sort_ranked(engine, ranks, rows, arity, count, 0);
    kb_release(&engine->heap, ranks->by_rank);
    kb_release(&engine->heap, ranks->by_symbol);
    return status;
}

kb_status kb_sort_rows(kb_engine *engine, kb_sym *rows, uint32_t arity, size_t count)
{
    uint32_t first;

    if (engine == NULL || arity > KB_MAX_ARITY || (rows == NULL && arity != 0 && count != 0))
        return KB_MISUSE;
    if (!kb_symbols_exist(engine, rows, count * arity))
        return KB_MISUSE;
    for (first = 0; first < arity; first++) {
        size_t i = 1;

        while (i < count && rows[i * arity + first] == rows[first])
            i++;
        if (i < count)
            break;
    }
    if (count < 2 || first == arity)
        return KB_OK;
    if (count >= MIN_RANKED_ROWS) {
        kb_ranks ranks = {0};

        find_range(&ranks, rows, arity, first, count);
        if (ranks.span / MAX_SPAN <= count * ranks.width) {
            kb_status status = sort_by_rank(engine, &ranks, rows, arity, count);

            if (status != KB_DONE)
                return status;
        }
    }
    return sort_by_text(engine, rows, arity, first, count);
}
