/* vectors.c - finds the vectors that are nearest to a query, by their dot product.
 * Owns: the scores that kbengine.h defines, and the search for the highest.
 * Never: stores a vector, allocates, or uses an engine: all it reads belongs to the caller.
 * Vectors are integers of 8 bits with a factor each. Integer sums do not depend on their order, so
 * that every processor gives the same scores. */
#include "internal.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define WIDE __attribute__((target("avx2")))
#define HAS_WIDE() __builtin_cpu_supports("avx2")
#else
#define WIDE
#define HAS_WIDE() 0
#endif

#define AHEAD 4                       /* vectors between the one that is fetched and the current
                                       * one */
#define CACHE_LINE 64

typedef int32_t (*dot_function)(const int16_t *query, const int8_t *cells, size_t dimension);

typedef struct nearest {
    uint32_t *found;                  /* a heap with the worst of the best at its root */
    double *scores;
    size_t room, count;
} nearest;

static KB_ALWAYS_INLINE int32_t dot_of(const int16_t *query, const int8_t *cells, size_t dimension)
{
    int32_t sum = 0;

    for (size_t i = 0; i < dimension; i++)
        sum += (int32_t)query[i] * cells[i];
    return sum;
}

static int32_t dot(const int16_t *query, const int8_t *cells, size_t dimension)
{
    return dot_of(query, cells, dimension);
}

/* The same, compiled for processors with wider registers. */
WIDE static int32_t dot_wide(const int16_t *query, const int8_t *cells, size_t dimension)
{
    return dot_of(query, cells, dimension);
}

/* Candidates are far apart, so that the processor does not prefetch them by itself. */
static KB_ALWAYS_INLINE void fetch(const kb_vectors *search, size_t place)
{
    for (size_t at = 0; at < search->dimension; at += CACHE_LINE)
        KB_PREFETCH(search->cells + place * search->dimension + at);
}

/* Return 1 if vector `a` comes before vector `b`. */
static int before(uint32_t a, double score_a, uint32_t b, double score_b)
{
    return score_a != score_b ? score_a > score_b : a < b;
}

/* Put a vector at or below place `at` of the heap. */
static void sift_down(nearest *n, size_t at, uint32_t index, double score)
{
    size_t child;

    while ((child = 2 * at + 1) < n->count) {
        if (child + 1 < n->count && before(n->found[child], n->scores[child], n->found[child + 1], n->scores[child + 1]))
            child++;
        if (!before(index, score, n->found[child], n->scores[child]))
            break;
        n->found[at] = n->found[child];
        n->scores[at] = n->scores[child];
        at = child;
    }
    n->found[at] = index;
    n->scores[at] = score;
}

static void sift_up(nearest *n, uint32_t index, double score)
{
    size_t at = n->count++;

    while (at > 0) {
        size_t above = (at - 1) / 2;

        if (!before(n->found[above], n->scores[above], index, score))
            break;
        n->found[at] = n->found[above];
        n->scores[at] = n->scores[above];
        at = above;
    }
    n->found[at] = index;
    n->scores[at] = score;
}

/* Sort the heap, best first. */
static void sort_best(nearest *n)
{
    size_t filled = n->count;

    while (n->count > 1) {
        uint32_t index = n->found[--n->count];
        double score = n->scores[n->count];

        n->found[n->count] = n->found[0];
        n->scores[n->count] = n->scores[0];
        sift_down(n, 0, index, score);
    }
    n->count = filled;
}

static kb_status check(const kb_vectors *search, const uint32_t *places, size_t count)
{
    if (search == NULL || search->dimension == 0 || search->dimension > KB_VECTOR_DIMENSIONS || count > KB_MAX_ROWS
        || search->query == NULL || (count != 0 && places == NULL)
        || (search->place_count != 0 && (search->cells == NULL || search->factors == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < search->dimension; i++)
        if (search->query[i] > KB_VECTOR_QUERY_MAX || search->query[i] < -KB_VECTOR_QUERY_MAX)
            return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        if (places[i] != KB_NO_ROW && places[i] >= search->place_count)
            return KB_MISUSE;
    return KB_OK;
}

kb_status kb_vectors_best(const kb_vectors *search, const uint32_t *places, size_t count, uint32_t *found, double *scores,
                          size_t room, size_t *filled)
{
    dot_function product = HAS_WIDE() ? dot_wide : dot;
    nearest n = { found, scores, room, 0 };

    if (check(search, places, count) != KB_OK || filled == NULL || (room != 0 && (found == NULL || scores == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count && room != 0; i++) {
        uint32_t place = places[i];
        double score;

        if (i + AHEAD < count && places[i + AHEAD] != KB_NO_ROW)
            fetch(search, places[i + AHEAD]);
        if (place == KB_NO_ROW)
            continue;
        score = product(search->query, search->cells + place * search->dimension, search->dimension)
            * search->query_factor * search->factors[place];
        if (!(score >= search->least))
            continue;
        if (n.count < room)
            sift_up(&n, (uint32_t)i, score);
        else if (before((uint32_t)i, score, n.found[0], n.scores[0]))
            sift_down(&n, 0, (uint32_t)i, score);
    }
    sort_best(&n);
    *filled = n.count;
    return KB_OK;
}
