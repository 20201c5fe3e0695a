/* strings.c - functions and tests of texts, and decoding of UTF-8.
 * Owns: the contents of a run's scratch memory. Never: makes a text longer than KB_MAX_TEXT_BYTES.
 * Bytes that are not valid UTF-8 count as characters of their own. */
#include "run/machine.h"

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

/* Write texts to scratch memory, one after the other, with `between` between two of them. */
static kb_status write_all(kb_run *run, const kb_arg *args, uint32_t count, kb_text between, kb_text *out)
{
    size_t len = 0, used = 0;
    char *text;

    for (uint32_t i = 0; i < count && len <= KB_MAX_TEXT_BYTES; i++)
        len += args[i].text.len + (i != 0 ? between.len : 0);
    if (len > KB_MAX_TEXT_BYTES)
        return KB_DONE;
    if ((text = kb_scratch(run, len + 1, 1)) == NULL)
        return KB_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        if (i != 0 && between.len != 0) {
            memcpy(text + used, between.bytes, between.len);
            used += between.len;
        }
        memcpy(text + used, args[i].text.bytes, args[i].text.len);
        used += args[i].text.len;
    }
    out->bytes = text;
    out->len = len;
    return KB_OK;
}

kb_status kb_text_concat(const kb_call *call, kb_text *out)
{
    kb_text nothing = { "", 0 };

    return write_all(call->run, call->args, call->count, nothing, out);
}

kb_status kb_text_join(const kb_call *call, kb_text *out)
{
    return write_all(call->run, call->args + 1, call->count - 1, call->args[0].text, out);
}

static kb_status change_case(kb_run *run, const kb_text *arg, uint32_t (*change)(uint32_t), kb_text *out)
{
    const char *at = arg->bytes, *end = at + arg->len;
    char *text;

    if (arg->len > KB_MAX_TEXT_BYTES)
        return KB_DONE;
    /* two bytes become at most three */
    if ((text = kb_scratch(run, 2 * arg->len + 4, 1)) == NULL)
        return KB_NOMEM;
    while (at < end)
        out->len += write_point(change(kb_read_point(&at, end)), text + out->len);
    out->bytes = text;
    return KB_OK;
}

kb_status kb_text_lower(const kb_call *call, kb_text *out)
{
    return change_case(call->run, &call->args[0].text, kb_lower, out);
}

kb_status kb_text_upper(const kb_call *call, kb_text *out)
{
    return change_case(call->run, &call->args[0].text, kb_upper, out);
}

kb_status kb_number_value(kb_run *run, const kb_number *number, kb_text *out)
{
    char *text = kb_scratch(run, KB_NUMBER_TEXT, 1);

    if (text == NULL)
        return KB_NOMEM;
    out->bytes = text;
    out->len = kb_number_text(number, text);
    return KB_OK;
}

kb_status kb_text_length(const kb_call *call, kb_text *out)
{
    const char *at = call->args[0].text.bytes, *end = at + call->args[0].text.len;
    kb_number number = { KB_KIND_INTEGER, 0, 0.0 };

    for (; at < end; number.integer++)
        kb_read_point(&at, end);
    return kb_number_value(call->run, &number, out);
}

static const char *digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* Return 1 if a constant is a number as it is written in rules. */
static int is_written_number(const char *at, const char *end)
{
    const char *from = at < end && *at == '-' ? at + 1 : at, *stop = digits(from, end);

    if (stop == from)
        return 0;
    if (stop < end && *stop == '.') {
        from = stop + 1;
        if ((stop = digits(from, end)) == from)
            return 0;
    }
    if (stop < end && (*stop == 'e' || *stop == 'E')) {
        from = stop + 1;
        if (from < end && (*from == '+' || *from == '-'))
            from++;
        if ((stop = digits(from, end)) == from)
            return 0;
    }
    return stop == end;
}

/* Move past the characters of a word from `at` on. */
static const char *inner(const char *at, const char *end)
{
    const char *next = at;

    while (at < end && kb_is_in_word(kb_read_point(&next, end)))
        at = next;
    return at;
}

/* Return 1 if a constant is a word that rules have without quotes: a letter, then letters, marks,
 * digits, `_`, and inner `-` and `:`, of which several may stand together if they are the same. */
static int is_written_word(const char *at, const char *end)
{
    static const char keywords[3][4] = { "not", "div", "mod" };

    if (at == end)
        return 0;
    for (uint32_t i = 0; i < 3; i++)
        if (end - at == 3 && memcmp(at, keywords[i], 3) == 0)
            return 0;
    if (!kb_begins_word(kb_read_point(&at, end)))
        return 0;
    for (;;) {
        const char *next;
        char sign;

        at = inner(at, end);
        if (at == end)
            return 1;
        sign = *at;
        if (sign != '-' && sign != ':')
            return 0;
        while (at < end && *at == sign)
            at++;
        next = at;
        if (at == end || !kb_is_in_word(kb_read_point(&next, end)))
            return 0;
    }
}

/* Write a character of a text in quotes, in at most six bytes. */
static size_t write_escaped(char c, char *out)
{
    const char *escaped = c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : c == '"' ? "\\\"" : c == '\\' ? "\\\\" : NULL;

    if (escaped != NULL) {
        memcpy(out, escaped, 2);
        return 2;
    }
    if ((uint8_t)c < 0x20 || c == 0x7F) {
        memcpy(out, "\\u00", 4);
        out[4] = "0123456789abcdef"[c >> 4];
        out[5] = "0123456789abcdef"[c & 15];
        return 6;
    }
    out[0] = c;
    return 1;
}

kb_status kb_text_quoted(const kb_call *call, kb_text *out)
{
    const kb_text *constant = &call->args[0].text;
    const char *at = constant->bytes, *end = at + constant->len;
    char *text;

    if (is_written_word(at, end) || is_written_number(at, end)) {
        *out = *constant;
        return KB_OK;
    }
    if (constant->len > KB_MAX_TEXT_BYTES)
        return KB_DONE;
    if ((text = kb_scratch(call->run, 6 * constant->len + 2, 1)) == NULL)
        return KB_NOMEM;
    text[0] = '"';
    out->len = 1;
    for (; at < end; at++)
        out->len += write_escaped(*at, text + out->len);
    text[out->len++] = '"';
    out->bytes = text;
    return KB_OK;
}

/* Unicode's property White_Space. */
static int is_space(uint32_t point)
{
    return (point >= 9 && point <= 13) || point == 0x20 || point == 0x85 || point == 0xA0 || point == 0x1680
           || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 || point == 0x202F
           || point == 0x205F || point == 0x3000;
}

kb_status kb_text_trim(const kb_call *call, kb_text *out)
{
    const char *start = call->args[0].text.bytes, *end = start + call->args[0].text.len, *at, *kept;

    for (at = start; at < end && is_space(kb_read_point(&at, end));)
        start = at;
    for (at = kept = start; at < end;)
        if (!is_space(kb_read_point(&at, end)))
            kept = at;
    out->bytes = start;
    out->len = (size_t)(kept - start);
    return KB_OK;
}

/* Return the place behind `count` characters, or the end. */
static const char *after_points(const char *at, const char *end, int64_t count)
{
    while (count-- > 0 && at < end)
        kb_read_point(&at, end);
    return at;
}

kb_status kb_text_substring(const kb_call *call, kb_text *out)
{
    const char *end = call->args[0].text.bytes + call->args[0].text.len;
    int64_t counts[2];

    for (uint32_t i = 1; i < call->count; i++)
        if (!kb_number_whole(call->args + i, counts + i - 1) || counts[i - 1] < 0)
            return KB_DONE;
    out->bytes = after_points(call->args[0].text.bytes, end, counts[0]);
    out->len = (size_t)((call->count == 2 ? end : after_points(out->bytes, end, counts[1])) - out->bytes);
    return KB_OK;
}

/* Return where `part`, which is not empty, starts in the text from `at` on, or NULL. */
const char *kb_find_part(const char *at, const char *end, const kb_text *part)
{
    while ((size_t)(end - at) >= part->len && (at = memchr(at, part->bytes[0], (size_t)(end - at) - part->len + 1)) != NULL) {
        if (memcmp(at, part->bytes, part->len) == 0)
            return at;
        at++;
    }
    return NULL;
}

kb_status kb_text_replace(const kb_call *call, kb_text *out)
{
    const kb_text *text = &call->args[0].text, *part = &call->args[1].text, *by = &call->args[2].text;
    const char *at = text->bytes, *end = at + text->len, *next;
    size_t parts = 0;
    char *to;

    if (part->len == 0)
        return KB_DONE;
    for (; (next = kb_find_part(at, end, part)) != NULL; at = next + part->len)
        parts++;
    out->len = text->len - parts * part->len;
    if (out->len > KB_MAX_TEXT_BYTES || (by->len != 0 && parts > (KB_MAX_TEXT_BYTES - out->len) / by->len))
        return KB_DONE;
    out->len += parts * by->len;
    if ((to = kb_scratch(call->run, out->len + 1, 1)) == NULL)
        return KB_NOMEM;
    out->bytes = to;
    for (at = text->bytes; (next = kb_find_part(at, end, part)) != NULL; at = next + part->len) {
        memcpy(to, at, (size_t)(next - at));
        to += next - at;
        memcpy(to, by->bytes, by->len);
        to += by->len;
    }
    memcpy(to, at, (size_t)(end - at));
    return KB_OK;
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
