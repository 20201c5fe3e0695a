/* number.c - parses numeric texts and compares numbers.
 * Owns: the grammar of numeric text: optional "-", then "0" or digits without a leading zero,
 * optional ".digits", optional exponent. A text with an exponent beyond the doubles is no number.
 * Never: rounds when comparing; keeps state. */
#include "internal.h"
#include <math.h>
#include <stdlib.h>

#define MAX_DIGITS 800                /* later digits matter only by not being 0 */

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Return digits * 10^exponent, by strtod. The decimal point is first moved into the exponent,
 * because strtod expects the point of the locale; digits and "e" are the same in every locale. */
static double real_value(const char *whole, size_t whole_len, const char *part, size_t part_len, int64_t exponent)
{
    char text[MAX_DIGITS + 32];
    char digits[24];
    size_t used = 0, count = 0;
    int has_more = 0;
    uint64_t rest;

    exponent -= (int64_t)part_len;
    for (size_t i = 0; i < whole_len + part_len; i++) {
        char digit = i < whole_len ? whole[i] : part[i - whole_len];

        if (used == 0 && digit == '0')
            continue;
        if (used < MAX_DIGITS) {
            text[used++] = digit;
        } else {
            has_more |= digit != '0';
            exponent++;
        }
    }
    if (used == 0)
        return 0.0;
    if (has_more) {                   /* keeps a value above a tie above it */
        text[used++] = '1';
        exponent--;
    }
    text[used++] = 'e';
    if (exponent < 0)
        text[used++] = '-';
    rest = exponent < 0 ? (uint64_t)-exponent : (uint64_t)exponent;
    if (rest > 99999)
        rest = 99999;
    do
        digits[count++] = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    while (count != 0)
        text[used++] = digits[--count];
    text[used] = '\0';
    return strtod(text, NULL);
}

/* Return 1 if one of the digits is not 0. */
static int has_digits(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] != '0' && text[i] != '.')
            return 1;
    return 0;
}

/* The parts of a numeric text. `part` has the digits after the point; without a point it is the end
 * of the whole ones. */
typedef struct kb_parts {
    const char *whole, *part;
    size_t whole_len, part_len;
    int64_t exponent;
    int negative, has_exponent;
} kb_parts;

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && is_digit(*at))
        at++;
    return at;
}

/* Read an exponent from behind its "e" on. Return its end, or NULL without a digit. */
static const char *read_exponent(const char *at, const char *end, int64_t *out)
{
    int64_t exponent = 0;
    const char *digits;
    int down = 0;

    if (at < end && (*at == '-' || *at == '+'))
        down = *at++ == '-';
    for (digits = at; at < end && is_digit(*at); at++)
        if (exponent < INT64_C(1000000000000))
            exponent = exponent * 10 + (*at - '0');
    *out = down ? -exponent : exponent;
    return at == digits ? NULL : at;
}

/* Divide a text into parts. Return 0 if it is no number. */
static inline int read_parts(const char *at, const char *end, kb_parts *parts)
{
    if (at < end && *at == '-') {
        parts->negative = 1;
        at++;
    }
    parts->whole = at;
    at = skip_digits(at, end);
    parts->whole_len = (size_t)(at - parts->whole);
    if (parts->whole_len == 0 || (parts->whole_len > 1 && *parts->whole == '0'))
        return 0;
    parts->part = at;
    if (at < end && *at == '.') {
        parts->part = at + 1;
        at = skip_digits(at + 1, end);
        parts->part_len = (size_t)(at - parts->part);
        if (parts->part_len == 0)
            return 0;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        parts->has_exponent = 1;
        at = read_exponent(at + 1, end, &parts->exponent);
    }
    return at == end;
}

/* Set the value of a whole number of at most 19 digits, which fit 64 bits. Return 0 beyond the
 * signed integers. */
static inline int set_integer(const kb_parts *parts, kb_number *out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < parts->whole_len; i++)
        value = value * 10 + (uint64_t)(parts->whole[i] - '0');
    if (value > (uint64_t)INT64_MAX + (uint64_t)parts->negative)
        return 0;
    out->kind = KB_KIND_INTEGER;
    out->integer = parts->negative ? (int64_t)(0 - value) : (int64_t)value;
    out->real = (double)out->integer;
    return 1;
}

void kb_number_parse(const char *text, size_t len, kb_number *out)
{
    kb_parts parts = { 0 };

    out->kind = KB_KIND_TEXT;
    out->integer = 0;
    out->real = 0.0;
    if (!read_parts(text, text + len, &parts))
        return;
    out->kind = parts.has_exponent ? KB_KIND_POWER : parts.part_len != 0 ? KB_KIND_DECIMAL : KB_KIND_LONG;
    if (out->kind == KB_KIND_LONG && parts.whole_len <= 19 && set_integer(&parts, out))
        return;
    out->real = real_value(parts.whole, parts.whole_len, parts.part, parts.part_len, parts.exponent);
    if (out->kind == KB_KIND_POWER
        && (!isfinite(out->real)
            || (out->real == 0.0 && has_digits(parts.whole, parts.whole_len + (parts.part_len == 0 ? 0 : parts.part_len + 1))))) {
        out->kind = KB_KIND_TEXT;
        out->real = 0.0;
    }
    if (parts.negative)
        out->real = -out->real;
}

int kb_number_order(const kb_number *a, const kb_number *b)
{
    if (a->kind == KB_KIND_INTEGER && b->kind == KB_KIND_INTEGER)
        return a->integer < b->integer ? -1 : a->integer > b->integer;
    return a->real < b->real ? -1 : a->real > b->real;
}

/* The digits of a number from the first that is not 0: its value is sign * 0.digits * 10^point. The
 * decimal point may be among the digits. */
typedef struct kb_written { const char *at, *end; int64_t point; int sign; } kb_written;

static kb_written read_written(const kb_text *text)
{
    const char *end = text->bytes + text->len, *at = text->bytes;
    kb_written out = { at, end, 0, 1 };
    int64_t exponent = 0;
    int is_fraction = 0, down;

    if (*at == '-') {
        out.sign = -1;
        at++;
    }
    for (const char *c = at; c < end; c++)
        if (*c == 'e' || *c == 'E') {
            out.end = c++;
            down = *c == '-';
            for (c += *c == '-' || *c == '+'; c < end && exponent < INT64_C(1000000000000); c++)
                exponent = exponent * 10 + (*c - '0');
            exponent = down ? -exponent : exponent;
            break;
        }
    for (; at < out.end && (*at == '0' || *at == '.'); at++) {
        out.point -= is_fraction && *at == '0';
        is_fraction |= *at == '.';
    }
    out.at = at;
    if (at == out.end)
        out.sign = 0;
    for (; !is_fraction && at < out.end && *at != '.'; at++)
        out.point++;
    out.point += exponent;
    return out;
}

/* Return the next digit, 0 after the last one. */
static char next_digit(kb_written *number)
{
    if (number->at < number->end && *number->at == '.')
        number->at++;
    return number->at < number->end ? *number->at++ : '0';
}

static int written_order(const kb_text *a, const kb_text *b)
{
    kb_written x = read_written(a), y = read_written(b);

    if (x.sign != y.sign)
        return x.sign < y.sign ? -1 : 1;
    if (x.sign == 0)
        return 0;
    if (x.point != y.point)
        return x.point < y.point ? -x.sign : x.sign;
    while (x.at < x.end || y.at < y.end) {
        char digit = next_digit(&x), other = next_digit(&y);

        if (digit != other)
            return digit < other ? -x.sign : x.sign;
    }
    return 0;
}

int kb_value_order(const kb_arg *a, const kb_arg *b)
{
    int order = kb_number_order(&a->number, &b->number);

    if (order != 0 || (a->number.kind == KB_KIND_INTEGER && b->number.kind == KB_KIND_INTEGER))
        return order;
    if (a->number.kind == KB_KIND_INSTANT)
        return a->number.integer < b->number.integer ? -1 : a->number.integer > b->number.integer;
    return written_order(&a->text, &b->text);
}

int kb_number_whole(const kb_arg *arg, int64_t *out)
{
    const kb_number *number = &arg->number;
    const char *point;
    kb_number whole;

    switch (number->kind) {
    case KB_KIND_INTEGER:
        *out = number->integer;
        return 1;
    case KB_KIND_POWER:
        /* 2^53 */
        if (floor(number->real) != number->real || fabs(number->real) > 9007199254740992.0)
            return 0;
        *out = (int64_t)number->real;
        return 1;
    case KB_KIND_DECIMAL:
        point = memchr(arg->text.bytes, '.', arg->text.len);
        if (has_digits(point, (size_t)(arg->text.bytes + arg->text.len - point)))
            return 0;
        kb_number_parse(arg->text.bytes, (size_t)(point - arg->text.bytes), &whole);
        *out = whole.integer;
        return whole.kind == KB_KIND_INTEGER;
    default:
        return 0;
    }
}
