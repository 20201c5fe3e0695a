/* number.c - parses numeric texts and compares numbers.
 * Owns: the grammar of numeric text: optional "-", then "0" or digits without a leading zero,
 * optional ".digits", optional exponent. Never: rounds when comparing; keeps state. */
#include "internal.h"
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

void kb_number_parse(const char *text, size_t len, kb_number *out)
{
    const char *end = text + len, *at = text, *whole, *part, *digits;
    int negative = 0, down = 0;
    size_t whole_len, part_len = 0;
    int64_t exponent = 0;

    out->kind = 0;
    out->integer = 0;
    out->real = 0.0;
    if (at < end && *at == '-') {
        negative = 1;
        at++;
    }
    for (whole = at; at < end && is_digit(*at); at++)
        ;
    whole_len = (size_t)(at - whole);
    if (whole_len == 0 || (whole_len > 1 && *whole == '0'))
        return;
    part = at;
    if (at < end && *at == '.') {
        for (part = ++at; at < end && is_digit(*at); at++)
            ;
        part_len = (size_t)(at - part);
        if (part_len == 0)
            return;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '-' || *at == '+'))
            down = *at++ == '-';
        for (digits = at; at < end && is_digit(*at); at++)
            if (exponent < INT64_C(1000000000000))
                exponent = exponent * 10 + (*at - '0');
        if (at == digits)
            return;
        exponent = down ? -exponent : exponent;
        digits = NULL;
    } else {
        digits = whole;
    }
    if (at != end)
        return;
    out->kind = 2;
    if (part_len == 0 && digits != NULL && whole_len <= 19) {
        uint64_t value = 0;           /* 19 digits fit 64 bits */

        for (size_t i = 0; i < whole_len; i++)
            value = value * 10 + (uint64_t)(whole[i] - '0');
        if (value <= (uint64_t)INT64_MAX + (uint64_t)negative) {
            out->kind = 1;
            out->integer = negative ? (int64_t)(0 - value) : (int64_t)value;
            out->real = (double)out->integer;
            return;
        }
    }
    out->real = real_value(whole, whole_len, part, part_len, exponent);
    if (negative)
        out->real = -out->real;
}

/* Compare an integer with a real without rounding the integer. */
static int mixed_order(int64_t integer, double real)
{
    int64_t whole;

    if (real >= 9223372036854775808.0)
        return -1;
    if (real < -9223372036854775808.0)
        return 1;
    whole = (int64_t)real;
    if (integer != whole)
        return integer < whole ? -1 : 1;
    return (double)whole < real ? -1 : (double)whole > real;
}

int kb_number_order(const kb_number *a, const kb_number *b)
{
    if (a->kind == 1 && b->kind == 1)
        return a->integer < b->integer ? -1 : a->integer > b->integer;
    if (a->kind == 1)
        return mixed_order(a->integer, b->real);
    if (b->kind == 1)
        return -mixed_order(b->integer, a->real);
    return a->real < b->real ? -1 : a->real > b->real;
}
