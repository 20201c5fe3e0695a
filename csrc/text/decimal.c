/* decimal.c - formats numbers, and rounds in decimal.
 * Owns: the canonical text of a number: the shortest that reads back as the same value; digits for
 * whole numbers below 10^16, an exponent where it is below -4 or above 15, as Python writes floats.
 * Never: allocates. */
#include "internal.h"

#define MAX_DIGITS 17                 /* of a double */

static double read_back(const char *digits, size_t count, int64_t exponent)
{
    char text[KB_NUMBER_TEXT];
    kb_number number;
    size_t used = count;
    int64_t rest = exponent < 0 ? -exponent : exponent, unit = 1;

    memcpy(text, digits, count);
    text[used++] = 'e';
    text[used++] = exponent < 0 ? '-' : '+';
    while (rest / unit >= 10)
        unit *= 10;
    for (; unit != 0; unit /= 10)
        text[used++] = (char)('0' + rest / unit % 10);
    kb_number_parse(text, used, &number);
    return number.real;
}

/* Add one in the last place. Return 1 if the result is a power of ten, one digit longer. */
static int increment(char *digits, size_t count)
{
    while (count-- > 0) {
        if (digits[count] != '9') {
            digits[count]++;
            return 0;
        }
        digits[count] = '0';
    }
    digits[0] = '1';
    return 1;
}

/* Format whole numbers and short decimals without a search; return 0 for others. Up to 15 digits
 * identify one double, so digits that read back are the shortest. */
static size_t few_digits(double value, char *digits, int *point)
{
    static const double powers[] = { 1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15 };

    for (int k = 0; k < 16 && value * powers[k] < 1e15; k++) {
        uint64_t whole = (uint64_t)(value * powers[k]);
        char reversed[16];
        size_t count = 0;

        if ((double)whole != value * powers[k] || (double)whole / powers[k] != value)
            continue;
        for (; whole != 0; whole /= 10)
            reversed[count++] = (char)('0' + whole % 10);
        for (size_t i = 0; i < count; i++)
            digits[i] = reversed[count - 1 - i];
        *point = (int)count - k;
        return count;
    }
    return 0;
}

/* Return the digits of a positive finite number, 0.digits * 10^point, without trailing zeros. */
static size_t shortest(double value, char *digits, int *point)
{
    size_t count = few_digits(value, digits, point);

    if (count == 0)
        count = kb_shortest_digits(value, digits, point);
    while (count > 1 && digits[count - 1] == '0')
        count--;
    return count;
}

size_t kb_integer_text(int64_t value, char *out)
{
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char reversed[20];
    size_t count = 0, used = 0;

    do
        reversed[count++] = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (value < 0)
        out[used++] = '-';
    while (count != 0)
        out[used++] = reversed[--count];
    return used;
}

static size_t write_plain(const char *digits, size_t count, int point, char *out)
{
    size_t used = 0;

    if (point <= 0) {
        out[used++] = '0';
        out[used++] = '.';
        for (int i = point; i < 0; i++)
            out[used++] = '0';
    }
    for (size_t i = 0; i < count || (int)i < point; i++) {
        if (point > 0 && (int)i == point)
            out[used++] = '.';
        out[used++] = i < count ? digits[i] : '0';
    }
    return used;
}

static size_t write_power(const char *digits, size_t count, int exponent, char *out)
{
    size_t used = 0;
    int rest = exponent < 0 ? -exponent : exponent;

    out[used++] = digits[0];
    if (count > 1) {
        out[used++] = '.';
        memcpy(out + used, digits + 1, count - 1);
        used += count - 1;
    }
    out[used++] = 'e';
    out[used++] = exponent < 0 ? '-' : '+';
    if (rest >= 100)
        out[used++] = (char)('0' + rest / 100);
    out[used++] = (char)('0' + rest / 10 % 10);
    out[used++] = (char)('0' + rest % 10);
    return used;
}

size_t kb_number_text(const kb_number *number, char *out)
{
    char digits[MAX_DIGITS + 1];
    double value = number->real;
    size_t used = 0, count;
    int point = 0;

    if (number->kind == KB_KIND_INTEGER)
        return kb_integer_text(number->integer, out);
    if (value == 0.0)
        return kb_integer_text(0, out);
    if (value < 0) {
        out[used++] = '-';
        value = -value;
    }
    count = shortest(value, digits, &point);
    if (point > -4 && point <= 16)
        return used + write_plain(digits, count, point, out + used);
    return used + write_power(digits, count, point - 1, out + used);
}

double kb_round_decimal(double value, uint32_t places)
{
    char digits[MAX_DIGITS + 2];
    double size = value < 0 ? -value : value;
    int point = 0, keep;
    size_t count;

    if (size >= 9007199254740992.0 || size == 0.0)   /* 2^53: no fraction */
        return value;
    count = shortest(size, digits + 1, &point);
    keep = point + (int)places;
    if (keep >= (int)count)
        return value;
    if (keep < 0)
        return 0.0;
    digits[0] = '0';
    if (digits[1 + keep] >= '5')
        increment(digits, (size_t)keep + 1);
    size = read_back(digits + (digits[0] == '0' && keep > 0), (size_t)keep + (digits[0] != '0' || keep == 0), point - keep);
    return value < 0 ? -size : size;
}
