/* signs.c - compares vectors by the signs of their numbers, to choose those that are worth a
 * product.
 * Owns: the signs that kbengine.h defines. Never: stores a vector, allocates, or uses an engine:
 * all it reads belongs to the caller.
 * Charikar, "Similarity estimation techniques from rounding algorithms" (2002). */
#include "internal.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define COUNTS_BITS __attribute__((target("popcnt")))
#define HAS_COUNT() __builtin_cpu_supports("popcnt")
#else
#define COUNTS_BITS
#define HAS_COUNT() 0
#endif

#if defined(__GNUC__)
#define BITS_OF(x) ((uint32_t)__builtin_popcountll(x))
#else
static uint32_t BITS_OF(uint64_t x)
{
    uint32_t bits = 0;

    for (; x != 0; x &= x - 1)
        bits++;
    return bits;
}
#endif

#define AHEAD 16                      /* vectors between the one that is prefetched and the current
                                       * one */

typedef struct comparison {
    const uint64_t *signs, *query;
    const uint32_t *places;
    size_t words, count;
    uint16_t *differing;
    uint32_t *counts;
} comparison;

/* `words` is a parameter so that the compiler unrolls the loop for a constant. */
static KB_ALWAYS_INLINE void compare_of(const comparison *c, size_t words)
{
    for (size_t i = 0; i < c->count; i++) {
        const uint64_t *signs = c->signs + (size_t)c->places[i] * words;
        uint32_t bits = 0;

        if (c->places[i] == KB_NO_ROW) {
            c->differing[i] = UINT16_MAX;
            continue;
        }
        if (i + AHEAD < c->count && c->places[i + AHEAD] != KB_NO_ROW)
            KB_PREFETCH(c->signs + (size_t)c->places[i + AHEAD] * words);
        for (size_t w = 0; w < words; w++)
            bits += BITS_OF(signs[w] ^ c->query[w]);
        c->differing[i] = (uint16_t)bits;
        c->counts[bits]++;
    }
}

static void compare(const comparison *c)
{
    compare_of(c, c->words);
}

/* The same for processors that count bits, with the usual lengths: 256, 384, 512, 768 and 1024. */
COUNTS_BITS static void compare_fast(const comparison *c)
{
    switch (c->words) {
    case 4:
        compare_of(c, 4);
        break;
    case 6:
        compare_of(c, 6);
        break;
    case 8:
        compare_of(c, 8);
        break;
    case 12:
        compare_of(c, 12);
        break;
    case 16:
        compare_of(c, 16);
        break;
    default:
        compare_of(c, c->words);
    }
}

kb_status kb_vectors_sum(const int8_t *cells, const float *factors, size_t dimension, size_t count, double *sums)
{
    if (dimension == 0 || dimension > KB_VECTOR_DIMENSIONS || sums == NULL
        || (count != 0 && (cells == NULL || factors == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        for (size_t d = 0; d < dimension; d++)
            sums[d] += (double)cells[i * dimension + d] * factors[i];
    return KB_OK;
}

kb_status kb_signs_of(const int8_t *cells, const float *factors, size_t dimension, size_t count, const double *centre,
                      uint64_t *signs)
{
    size_t words = (dimension + 63) / 64;

    if (dimension == 0 || dimension > KB_VECTOR_DIMENSIONS || centre == NULL
        || (count != 0 && (cells == NULL || factors == NULL || signs == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++) {
        for (size_t w = 0; w < words; w++) {
            size_t start = w * 64, end = start + 64 < dimension ? start + 64 : dimension;
            uint64_t word = 0;

            for (size_t d = start; d < end; d++)
                word |= (uint64_t)((double)cells[i * dimension + d] * factors[i] > centre[d]) << (d - start);
            signs[i * words + w] = word;
        }
    }
    return KB_OK;
}

kb_status kb_signs_differing(const uint64_t *signs, size_t place_count, size_t words, const uint64_t *query,
                             const uint32_t *places, size_t count, uint16_t *differing, uint32_t *counts)
{
    comparison c = { signs, query, places, words, count, differing, counts };

    if (words == 0 || words > KB_SIGN_WORDS || count > KB_MAX_ROWS || query == NULL || counts == NULL
        || (place_count != 0 && signs == NULL) || (count != 0 && (places == NULL || differing == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        if (places[i] != KB_NO_ROW && places[i] >= place_count)
            return KB_MISUSE;
    (HAS_COUNT() ? compare_fast : compare)(&c);
    return KB_OK;
}

kb_status kb_signs_within(const uint16_t *differing, size_t count, uint16_t most, uint32_t *found, size_t room,
                          size_t *filled)
{
    size_t n = 0;

    if (filled == NULL || count > KB_MAX_ROWS || (count != 0 && differing == NULL) || (room != 0 && found == NULL))
        return KB_MISUSE;
    for (size_t i = 0; i < count && n < room; i++)
        if (differing[i] <= most)
            found[n++] = (uint32_t)i;
    *filled = n;
    return KB_OK;
}
