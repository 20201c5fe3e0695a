/* strings.c - functions and tests of texts, and decoding of UTF-8.
 * Owns: the contents of a run's scratch memory. Never: makes a text longer than KB_MAX_TEXT_BYTES.
 * Bytes that are not valid UTF-8 count as characters of their own. */
#include "machine.h"

/* Decode the character at `*at`, which is before `end`, and move `*at` past it. A byte that starts
 * no character becomes a number past Unicode. */
uint32_t kb_read_point(const char **at, const char *end)
{
    const uint8_t *bytes = (const uint8_t *)*at;
    uint32_t lead = bytes[0], more = lead < 0xC2 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : lead < 0xF5 ? 3 : 0, point;

    if (lead < 0x80 || more == 0 || (size_t)(end - *at) <= more) {
        *at += 1;
        return lead < 0x80 ? lead : KB_NO_CHARACTER + lead;
    }
    point = lead & (0x3Fu >> more);
    for (uint32_t i = 1; i <= more; i++) {
        if ((bytes[i] & 0xC0) != 0x80) {
            *at += 1;
            return KB_NO_CHARACTER + lead;
        }
        point = point << 6 | (bytes[i] & 0x3F);
    }
    *at += more + 1;
    return point;
}

static size_t write_point(uint32_t point, char *out)
{
    if (point < 0x80 || point >= KB_NO_CHARACTER) {
        out[0] = (char)(point & 0xFF);
        return 1;
    }
    if (point < 0x800) {
        out[0] = (char)(0xC0 | point >> 6);
        out[1] = (char)(0x80 | (point & 0x3F));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (char)(0xE0 | point >> 12);
        out[1] = (char)(0x80 | (point >> 6 & 0x3F));
        out[2] = (char)(0x80 | (point & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | point >> 18);
    out[1] = (char)(0x80 | (point >> 12 & 0x3F));
    out[2] = (char)(0x80 | (point >> 6 & 0x3F));
    out[3] = (char)(0x80 | (point & 0x3F));
    return 4;
}

void *kb_scratch(kb_run *run, size_t count, size_t size)
{
    if (run->scratch == NULL || kb_capacity(run->scratch) / size < count) {
        kb_release(&run->heap, run->scratch);
        run->scratch = kb_alloc(&run->heap, count, size);
    }
    return run->scratch;
}

static kb_status make(kb_run *run, const kb_step *step, const char *text, size_t len)
{
    return kb_symbol_make(run->engine, run, &run->heap, text, len, run->registers + step->a);
}

static kb_status concat(kb_run *run, const kb_step *step, const kb_sym *args, int *has_value)
{
    const kb_symbols *symbols = &run->engine->symbols;
    size_t len = 0, used = 0, part;
    const char *bytes;
    char *text;

    for (uint32_t i = 0; i < step->keys && len <= KB_MAX_TEXT_BYTES; i++) {
        kb_symbol_get(symbols, args[i], &bytes, &part, NULL);
        len += part;
    }
    *has_value = len <= KB_MAX_TEXT_BYTES;
    if (!*has_value)
        return KB_OK;
    if ((text = kb_scratch(run, len + 1, 1)) == NULL)
        return KB_NOMEM;
    for (uint32_t i = 0; i < step->keys; i++) {
        kb_symbol_get(symbols, args[i], &bytes, &part, NULL);
        memcpy(text + used, bytes, part);
        used += part;
    }
    run->left -= (int64_t)(len / KB_BYTES_PER_STEP);
    return make(run, step, text, len);
}

static kb_status change_case(kb_run *run, const kb_step *step, kb_sym arg, int *has_value)
{
    const char *at, *end;
    size_t len, used = 0;
    char *text;

    kb_symbol_get(&run->engine->symbols, arg, &at, &len, NULL);
    *has_value = len <= KB_MAX_TEXT_BYTES;
    if (!*has_value)
        return KB_OK;
    if ((text = kb_scratch(run, 2 * len + 4, 1)) == NULL)   /* two bytes become at most three */
        return KB_NOMEM;
    for (end = at + len; at < end;) {
        uint32_t point = kb_read_point(&at, end);

        used += write_point(step->compare == KB_FUNCTION_LOWER ? kb_lower(point) : kb_upper(point), text + used);
    }
    run->left -= (int64_t)(len / KB_BYTES_PER_STEP);
    *has_value = used <= KB_MAX_TEXT_BYTES;
    return *has_value ? make(run, step, text, used) : KB_OK;
}

kb_status kb_compute_text(kb_run *run, const kb_step *step, const kb_sym *args, int *has_value)
{
    char text[KB_NUMBER_TEXT];
    kb_number number;
    const char *at, *end;
    size_t len;

    if (step->compare == KB_FUNCTION_CONCAT)
        return concat(run, step, args, has_value);
    if (step->compare != KB_FUNCTION_LENGTH)
        return change_case(run, step, args[0], has_value);
    kb_symbol_get(&run->engine->symbols, args[0], &at, &len, NULL);
    run->left -= (int64_t)(len / KB_BYTES_PER_STEP);
    number.kind = 1;
    number.integer = 0;
    for (end = at + len; at < end; number.integer++)
        kb_read_point(&at, end);
    *has_value = 1;
    return make(run, step, text, kb_number_text(&number, text));
}

/* Return 1 if `part` starts in `text` at a position from `from` to `until`. */
static int contains(const char *text, size_t from, size_t until, const char *part, size_t part_len)
{
    for (size_t at = from; at <= until; at++) {
        const char *next = part_len == 0 ? text + at : memchr(text + at, part[0], until - at + 1);

        if (next == NULL)
            return 0;
        at = (size_t)(next - text);
        if (memcmp(next, part, part_len) == 0)
            return 1;
    }
    return 0;
}

int kb_text_test(kb_run *run, const kb_step *step)
{
    const kb_symbols *symbols = &run->engine->symbols;
    const char *text, *part;
    size_t len, part_len;
    int outcome = 0;

    kb_symbol_get(symbols, run->registers[step->a], &text, &len, NULL);
    kb_symbol_get(symbols, run->registers[step->b], &part, &part_len, NULL);
    run->left -= 1 + (int64_t)(len / KB_BYTES_PER_STEP);
    run->stats.probes++;
    if (part_len <= len)
        switch (step->compare & 7) {
        case KB_TEST_STARTS: outcome = contains(text, 0, 0, part, part_len); break;
        case KB_TEST_ENDS: outcome = contains(text, len - part_len, len - part_len, part, part_len); break;
        default: outcome = contains(text, 0, len - part_len, part, part_len); break;
        }
    return outcome != (step->compare >= 8);
}
