/* digits.c - the shortest decimal digits that read back as the same double.
 * Owns: large integers on the stack. Never: rounds before the end, allocates, or depends on the
 * locale.
 * Steele & White, "How to print floating-point numbers accurately" (1990), in the form of Burger &
 * Dybvig (1996). */
#include "internal.h"
#include <math.h>

#define LIMBS 40                      /* 1,280 bits; the largest integer needed, for the smallest
                                       * double, has 1,131 */

/* limbs from `used` on are 0 */
typedef struct kb_large { uint32_t limbs[LIMBS], used; } kb_large;

static void set(kb_large *a, uint64_t value)
{
    memset(a, 0, sizeof *a);
    a->limbs[0] = (uint32_t)value;
    a->limbs[1] = (uint32_t)(value >> 32);
    a->used = 2;
}

static void multiply(kb_large *a, uint32_t by)
{
    uint64_t carry = 0;

    for (uint32_t i = 0; i < a->used; i++) {
        carry += (uint64_t)a->limbs[i] * by;
        a->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry != 0)
        a->limbs[a->used++] = (uint32_t)carry;
}

static void multiply_power(kb_large *a, uint32_t base, int exponent)
{
    for (; exponent >= 8; exponent -= 8) {
        uint32_t part = base * base;  /* base is 2 or 10: its eighth power fits */

        part *= part;
        multiply(a, part * part);
    }
    while (exponent-- > 0)
        multiply(a, base);
}

static int order(const kb_large *a, const kb_large *b)
{
    for (uint32_t i = a->used > b->used ? a->used : b->used; i-- > 0;)
        if (a->limbs[i] != b->limbs[i])
            return a->limbs[i] < b->limbs[i] ? -1 : 1;
    return 0;
}

static void add(kb_large *a, const kb_large *b)
{
    uint64_t carry = 0;

    if (a->used < b->used)
        a->used = b->used;
    for (uint32_t i = 0; i < a->used; i++) {
        carry += (uint64_t)a->limbs[i] + b->limbs[i];
        a->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry != 0)
        a->limbs[a->used++] = (uint32_t)carry;
}

static void subtract(kb_large *a, const kb_large *b)
{
    uint64_t borrow = 0;

    for (uint32_t i = 0; i < a->used; i++) {
        uint64_t take = (uint64_t)b->limbs[i] + borrow;

        borrow = a->limbs[i] < take;
        a->limbs[i] = (uint32_t)(a->limbs[i] - take);
    }
}

/* Return 1 if a + b >= c, or with `strict` if a + b > c. */
static int reaches(const kb_large *a, const kb_large *b, const kb_large *c, int strict)
{
    kb_large sum = *a;

    add(&sum, b);
    return order(&sum, c) >= strict;
}

size_t kb_shortest_digits(double value, char *digits, int *point)
{
    kb_large rest, unit, above, below;   /* value = rest / unit; what reads back as value differs by
                                          * less than above or below */
    uint64_t bits, fraction;
    int exponent, power, narrow, odd;
    size_t count = 0;

    memcpy(&bits, &value, sizeof bits);
    exponent = (int)(bits >> 52 & 0x7FF);
    fraction = bits & ((UINT64_C(1) << 52) - 1);
    narrow = fraction == 0 && exponent > 1;   /* a power of two: the next lower double is closer */
    if (exponent != 0)
        fraction |= UINT64_C(1) << 52;
    else
        exponent = 1;
    exponent -= 1075;
    odd = (int)(fraction & 1);        /* of two equally close doubles the even one is read */
    set(&rest, fraction * 2 << narrow);
    set(&unit, 2 << narrow);
    set(&below, 1);
    if (exponent >= 0) {
        multiply_power(&rest, 2, exponent);
        multiply_power(&below, 2, exponent);
    } else {
        multiply_power(&unit, 2, -exponent);
    }
    above = below;
    multiply(&above, 1u << narrow);
    power = (int)ceil(log10(value) - 1e-10);   /* exact, or one too low */
    if (power >= 0)
        multiply_power(&unit, 10, power);
    for (kb_large *each[] = { &rest, &above, &below }, **one = each; power < 0 && one < each + 3; one++)
        multiply_power(*one, 10, -power);
    if (reaches(&rest, &above, &unit, odd)) {
        multiply(&unit, 10);
        power++;
    }
    *point = power;
    for (;;) {
        int digit = 0, low, high;

        multiply(&rest, 10);
        multiply(&above, 10);
        multiply(&below, 10);
        while (order(&rest, &unit) >= 0) {
            subtract(&rest, &unit);
            digit++;
        }
        low = order(&rest, &below) < 1 - odd;
        high = reaches(&rest, &above, &unit, odd);
        if (low && high) {
            int half = -1 + reaches(&rest, &rest, &unit, 0) + reaches(&rest, &rest, &unit, 1);

            high = half > 0 || (half == 0 && (digit & 1));
        }
        digits[count++] = (char)('0' + digit + (high ? 1 : 0));
        if (low || high)
            return count;
    }
}
