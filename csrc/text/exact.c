/* exact.c - sums that do not depend on the order of additions.
 * Owns: an accumulator wide enough for every sum of doubles, as words of 32 bits each stored in 64,
 * so that carries may be delayed. Never: rounds before the end. Kulisch, "Computer Arithmetic and
 * Validity" (2008), calls it a long accumulator. */
#include "internal.h"
#include <math.h>

#define WORD_RANGE INT64_C(0x100000000)
/* exponent of the last bit of the smallest double: weight of bit 0 of word 0 */
#define MIN_EXPONENT (-1074)
#define CARRY_AT (1u << 29)           /* additions after which a word could overflow */

static void carry(kb_exact *sum)
{
    for (uint32_t i = 0; i + 1 < KB_EXACT_WORDS; i++) {
        int64_t over = sum->words[i] / WORD_RANGE - (sum->words[i] % WORD_RANGE < 0);

        sum->words[i] -= over * WORD_RANGE;
        sum->words[i + 1] += over;
    }
    sum->pending = 0;
}

/* Add magnitude * 2^(bit + MIN_EXPONENT). */
static void add(kb_exact *sum, uint64_t magnitude, uint32_t bit, int negative)
{
    uint32_t word = bit / 32, shift = bit % 32;
    uint64_t low = (magnitude & 0xFFFFFFFF) << shift, high = (magnitude >> 32) << shift;
    uint64_t parts[3] = { low & 0xFFFFFFFF, (low >> 32) + (high & 0xFFFFFFFF), high >> 32 };

    if (++sum->pending == CARRY_AT)
        carry(sum);
    for (uint32_t i = 0; i < 3; i++)
        sum->words[word + i] += negative ? -(int64_t)parts[i] : (int64_t)parts[i];
}

static void add_real(kb_exact *sum, double value)
{
    uint64_t bits, fraction;
    uint32_t exponent;

    memcpy(&bits, &value, sizeof bits);
    exponent = bits >> 52 & 0x7FF;
    fraction = bits & ((UINT64_C(1) << 52) - 1);
    if (exponent != 0)
        fraction |= UINT64_C(1) << 52;
    add(sum, fraction, exponent == 0 ? 0 : exponent - 1, bits >> 63 != 0);
}

static void add_whole(kb_exact *sum, int64_t high, uint64_t low)
{
    add(sum, low, -MIN_EXPONENT, 0);
    add(sum, high < 0 ? 0 - (uint64_t)high : (uint64_t)high, -MIN_EXPONENT + 64, high < 0);
}

static double nearest(kb_exact *sum)
{
    uint32_t top = KB_EXACT_WORDS - 1, shift = 0;
    uint64_t head, next, rest;
    int negative;

    carry(sum);
    negative = sum->words[top] < 0;
    if (negative) {
        for (uint32_t i = 0; i < KB_EXACT_WORDS; i++)
            sum->words[i] = -sum->words[i];
        carry(sum);
    }
    while (top > 0 && sum->words[top] == 0)
        top--;
    head = (uint64_t)sum->words[top] << 32 | (top > 0 ? (uint64_t)sum->words[top - 1] : 0);
    next = top > 1 ? (uint64_t)sum->words[top - 2] : 0;
    if (head == 0)
        return 0.0;
    while (head >> 63 == 0) {         /* 64 bits from the first that is set; lower bits are combined
                                       * into the last */
        head = head << 1 | (next >> 31 & 1);
        next <<= 1;
        shift++;
    }
    rest = next & 0xFFFFFFFF;
    for (uint32_t i = 0; i + 2 < top; i++)
        rest |= (uint64_t)sum->words[i];
    return (negative ? -1.0 : 1.0) * ldexp((double)(head | (rest != 0)), 32 * ((int)top - 1) - (int)shift + MIN_EXPONENT);
}

void kb_sum_add(kb_sum *sum, const kb_number *number)
{
    sum->count++;
    if (number->kind == KB_KIND_INTEGER) {
        sum->low += (uint64_t)number->integer;
        sum->high += (number->integer < 0 ? -1 : 0) + (sum->low < (uint64_t)number->integer);
    } else if (number->kind != KB_KIND_LONG && isfinite(number->real)) {
        sum->reals = 1;
        add_real(&sum->exact, number->real);
    } else {
        sum->reals = sum->infinite = 1;
    }
}

double kb_sum_real(kb_sum *sum)
{
    if (sum->infinite)
        return HUGE_VAL;
    add_whole(&sum->exact, sum->high, sum->low);
    return nearest(&sum->exact);
}
