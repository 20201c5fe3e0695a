/* lexical.c - finds the facts that match the words of a query best (BM25).
 * Owns: the scores that kbengine.h defines, from posting lists, and the search for the highest.
 * Never: stores a list, allocates, or uses an engine: all it reads belongs to the caller.
 * Lists are read side by side, one window of facts after the other, so that the scores being added
 * stay in the cache. Once `room` facts score more than the words with the lowest weights can give
 * together, or if these words give less than the lowest score asked for, their lists are read only
 * for facts that have one of the other words (MaxScore). Every score is added in the order of the
 * words, whichever lists were read. */
#include "internal.h"

#define WINDOW 2048u                  /* facts scored together */
#define ROUNDING (1 + 1e-9)           /* covers the differences between sums of the same numbers in
                                       * another order */

typedef struct search {
    const kb_lexical *query;
    size_t at[KB_LEXICAL_WORDS];      /* by word: the first unread entry of its list */
    /* by word: the maximum that it and the words after it can add */
    double bounds[KB_LEXICAL_WORDS + 1];
    size_t required;                  /* words from this one on count only for facts that have an
                                       * earlier one */
    double scores[WINDOW];
    uint64_t seen[WINDOW / 64];
    uint32_t *facts;                  /* a heap with the worst of the best at its root */
    double *best;
    size_t room, count;
} search;

static double word_score(const kb_lexical *query, double weight, uint32_t times, uint32_t length)
{
    return weight * times * query->scale / (times + query->flat + query->slope * length);
}

static uint32_t rank_of(const kb_lexical *query, uint32_t fact)
{
    uint32_t owner = query->owners[fact];

    return owner < query->owner_count ? query->ranks[owner] : KB_NO_ROW;
}

static int is_candidate(const kb_lexical *query, uint32_t fact)
{
    return query->visible[fact] && rank_of(query, fact) != KB_NO_ROW;
}

/* Return 1 if fact `a` with its score comes before fact `b`. */
static int before(const kb_lexical *query, uint32_t a, double score_a, uint32_t b, double score_b)
{
    uint32_t rank_a, rank_b;

    if (score_a != score_b)
        return score_a > score_b;
    rank_a = rank_of(query, a);
    rank_b = rank_of(query, b);
    return rank_a != rank_b ? rank_a < rank_b : a < b;
}

/* Put a fact at or below place `at` of the heap. */
static void sift_down(search *s, size_t at, uint32_t fact, double score)
{
    size_t child;

    while ((child = 2 * at + 1) < s->count) {
        if (child + 1 < s->count && before(s->query, s->facts[child], s->best[child], s->facts[child + 1], s->best[child + 1]))
            child++;
        if (!before(s->query, fact, score, s->facts[child], s->best[child]))
            break;
        s->facts[at] = s->facts[child];
        s->best[at] = s->best[child];
        at = child;
    }
    s->facts[at] = fact;
    s->best[at] = score;
}

static void sift_up(search *s, uint32_t fact, double score)
{
    size_t at = s->count++;

    while (at > 0) {
        size_t above = (at - 1) / 2;

        if (!before(s->query, s->facts[above], s->best[above], fact, score))
            break;
        s->facts[at] = s->facts[above];
        s->best[at] = s->best[above];
        at = above;
    }
    s->facts[at] = fact;
    s->best[at] = score;
}

static void offer(search *s, uint32_t fact, double score)
{
    if (score < s->query->min_score || (s->count == s->room && score < s->best[0]))
        return;
    if (!is_candidate(s->query, fact))
        return;
    if (s->count < s->room)
        sift_up(s, fact, score);
    else if (before(s->query, fact, score, s->facts[0], s->best[0]))
        sift_down(s, 0, fact, score);
}

/* Sort the heap, best first. */
static void sort_best(search *s)
{
    size_t filled = s->count;
    uint32_t fact;
    double score;

    while (s->count > 1) {
        fact = s->facts[--s->count];
        score = s->best[s->count];
        s->facts[s->count] = s->facts[0];
        s->best[s->count] = s->best[0];
        sift_down(s, 0, fact, score);
    }
    s->count = filled;
}

/* Return the first entry from `at` on that is `base` or more, by doubling steps. */
static size_t skip_to(const kb_posting *word, size_t at, uint32_t base)
{
    size_t low = at, step = 1;

    while (low + step < word->count && word->facts[low + step] < base) {
        low += step;
        step *= 2;
    }
    step = low + step < word->count ? low + step + 1 : word->count;
    while (low < step) {
        size_t middle = low + (step - low) / 2;

        if (word->facts[middle] < base)
            low = middle + 1;
        else
            step = middle;
    }
    return low;
}

/* Add the score of a word to the facts from `base` to `end`; unless `adds_facts`, only to those
 * seen before. */
static kb_status add_word(search *s, size_t which, uint32_t base, uint32_t end, int adds_facts)
{
    const kb_posting *word = s->query->words + which;
    size_t at = s->at[which];

    while (at < word->count && word->facts[at] < end) {
        uint32_t fact = word->facts[at], place = fact - base, times = 1;
        uint64_t bit = UINT64_C(1) << (place & 63);

        if (fact < base)
            return KB_MISUSE;
        while (++at < word->count && word->facts[at] == fact)
            times++;
        if (s->seen[place / 64] & bit) {
            s->scores[place] += word_score(s->query, word->weight, times, s->query->lengths[fact]);
        } else if (adds_facts) {
            s->seen[place / 64] |= bit;
            s->scores[place] = word_score(s->query, word->weight, times, s->query->lengths[fact]);
        }
    }
    s->at[which] = at;
    return KB_OK;
}

/* Make words optional that, with all words of lower weight, cannot give a fact that is found. */
static void relax(search *s)
{
    double least = s->query->min_score;

    if (s->count == s->room && s->best[0] > least)
        least = s->best[0];
    while (s->required > 0 && s->bounds[s->required - 1] * ROUNDING < least)
        s->required--;
}

/* Score the window at `base`, which is a multiple of its size. */
static kb_status score_window(search *s, uint32_t base)
{
    const kb_lexical *query = s->query;
    uint32_t end = query->fact_count - base > WINDOW ? base + WINDOW : (uint32_t)query->fact_count;
    kb_status status = KB_OK;

    memset(s->seen, 0, sizeof s->seen);
    for (size_t i = 0; i < query->word_count && status == KB_OK; i++) {
        if (i >= s->required)
            s->at[i] = skip_to(query->words + i, s->at[i], base);
        status = add_word(s, i, base, end, i < s->required);
    }
    if (status != KB_OK)
        return status;
    for (uint32_t i = 0; i < WINDOW / 64; i++) {
        for (uint64_t bits = s->seen[i]; bits != 0; bits &= bits - 1) {
            uint32_t place = i * 64 + KB_LOWEST_BIT(bits);

            offer(s, base + place, s->scores[place]);
        }
    }
    relax(s);
    return KB_OK;
}

/* Return the lowest fact that a required word still has, or KB_NO_ROW. */
static uint32_t next_place(const search *s)
{
    uint32_t lowest = KB_NO_ROW;

    for (size_t i = 0; i < s->required; i++)
        if (s->at[i] < s->query->words[i].count && s->query->words[i].facts[s->at[i]] < lowest)
            lowest = s->query->words[i].facts[s->at[i]];
    return lowest;
}

static kb_status check(const kb_lexical *query)
{
    if (query == NULL || query->word_count > KB_LEXICAL_WORDS || query->fact_count > KB_MAX_ROWS
        || (query->word_count != 0 && query->words == NULL) || !(query->flat > 0 && query->slope >= 0 && query->scale >= 0 && query->min_score >= 0)
        || (query->fact_count != 0 && (query->lengths == NULL || query->visible == NULL || query->owners == NULL || query->ranks == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < query->word_count; i++)
        if (!(query->words[i].weight >= 0) || (query->words[i].count != 0 && query->words[i].facts == NULL))
            return KB_MISUSE;
    return KB_OK;
}

kb_status kb_lexical_best(const kb_lexical *query, uint32_t *facts, double *scores, size_t room, size_t *filled)
{
    search s;
    uint32_t base;
    kb_status status = check(query);

    if (status != KB_OK || filled == NULL || (room != 0 && (facts == NULL || scores == NULL)))
        return KB_MISUSE;
    s.query = query;
    s.facts = facts;
    s.best = scores;
    s.room = room;
    s.count = 0;
    s.required = query->word_count;
    memset(s.at, 0, sizeof s.at);
    s.bounds[query->word_count] = 0;
    for (size_t i = query->word_count; i-- > 0;)
        s.bounds[i] = s.bounds[i + 1] + word_score(query, query->words[i].weight, query->max_times, query->min_length);
    if (room != 0)
        relax(&s);
    while (room != 0 && (base = next_place(&s)) != KB_NO_ROW) {
        if (base >= query->fact_count || (status = score_window(&s, base / WINDOW * WINDOW)) != KB_OK)
            return KB_MISUSE;
    }
    sort_best(&s);
    *filled = s.count;
    return KB_OK;
}

kb_status kb_lexical_counts(const kb_lexical *query, uint64_t *counts)
{
    if (check(query) != KB_OK || (query->word_count != 0 && counts == NULL))
        return KB_MISUSE;
    for (size_t i = 0; i < query->word_count; i++)
        for (size_t at = 0; at < query->words[i].count; at++)
            if (query->words[i].facts[at] >= query->fact_count)
                return KB_MISUSE;
    for (size_t i = 0; i < query->word_count; i++) {
        const kb_posting *word = query->words + i;

        counts[i] = 0;
        for (size_t at = 0; at < word->count; at++)
            counts[i] += (at == 0 || word->facts[at - 1] != word->facts[at]) && is_candidate(query, word->facts[at]);
    }
    return KB_OK;
}
