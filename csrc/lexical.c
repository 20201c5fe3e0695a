/* lexical.c - which facts match the words of a text best.
 * Owns: the scores of kbengine.h by posting lists, and the search for the best of them. Never: keeps a list, allocates, or
 * knows an engine: all it reads is the caller's.
 * Lists are walked side by side, a window of places after the other, so that what is added up stays in the cache. Once as many
 * rows as are wanted are better than the lightest words together can make one, their lists are read only for facts that have
 * one of the others (MaxScore). Every score is added up in the order of the words, independent of the lists that were read. */
#include "internal.h"

#define WINDOW 2048u                  /* places worked on together */
#define ROUNDING (1 + 1e-9)           /* how much sums of the same numbers in another order may differ, and more */

typedef struct search {
    const kb_lexical *how;
    size_t at[KB_LEXICAL_WORDS];      /* by word: the first entry of its list that was not looked at */
    double rest[KB_LEXICAL_WORDS + 1];     /* the most that this word and those after it can give */
    size_t open;                      /* words from here on matter only for facts that have one before */
    double scores[WINDOW];
    uint64_t touched[WINDOW / 64];
    uint32_t *facts;                  /* a heap, the worst of those kept at its root */
    double *kept;
    size_t room, count;
} search;

static double gain(const kb_lexical *how, double weight, uint32_t times, uint32_t length)
{
    return weight * times * how->scale / (times + how->flat + how->slope * length);
}

static uint32_t rank_of(const kb_lexical *how, uint32_t fact)
{
    uint32_t owner = how->owners[fact];

    return owner < how->owner_count ? how->ranks[owner] : KB_NO_ROW;
}

static int is_asked(const kb_lexical *how, uint32_t fact)
{
    return how->shown[fact] && rank_of(how, fact) != KB_NO_ROW;
}

/* Does fact `a` with its score come before fact `b`? */
static int before(const kb_lexical *how, uint32_t a, double score_a, uint32_t b, double score_b)
{
    uint32_t rank_a, rank_b;

    if (score_a != score_b)
        return score_a > score_b;
    rank_a = rank_of(how, a);
    rank_b = rank_of(how, b);
    return rank_a != rank_b ? rank_a < rank_b : a < b;
}

/* Puts a fact at or below place `at` of the heap, where there is room for it. */
static void sink(search *s, size_t at, uint32_t fact, double score)
{
    size_t child;

    while ((child = 2 * at + 1) < s->count) {
        if (child + 1 < s->count && before(s->how, s->facts[child], s->kept[child], s->facts[child + 1], s->kept[child + 1]))
            child++;
        if (!before(s->how, fact, score, s->facts[child], s->kept[child]))
            break;
        s->facts[at] = s->facts[child];
        s->kept[at] = s->kept[child];
        at = child;
    }
    s->facts[at] = fact;
    s->kept[at] = score;
}

static void rise(search *s, uint32_t fact, double score)
{
    size_t at = s->count++;

    while (at > 0) {
        size_t above = (at - 1) / 2;

        if (!before(s->how, s->facts[above], s->kept[above], fact, score))
            break;
        s->facts[at] = s->facts[above];
        s->kept[at] = s->kept[above];
        at = above;
    }
    s->facts[at] = fact;
    s->kept[at] = score;
}

static void offer(search *s, uint32_t fact, double score)
{
    if (s->count == s->room && score < s->kept[0])
        return;
    if (!is_asked(s->how, fact))
        return;
    if (s->count < s->room)
        rise(s, fact, score);
    else if (before(s->how, fact, score, s->facts[0], s->kept[0]))
        sink(s, 0, fact, score);
}

/* From the root, the worst, to the end of the array: the best comes first. */
static void order(search *s)
{
    size_t filled = s->count;
    uint32_t fact;
    double score;

    while (s->count > 1) {
        fact = s->facts[--s->count];
        score = s->kept[s->count];
        s->facts[s->count] = s->facts[0];
        s->kept[s->count] = s->kept[0];
        sink(s, 0, fact, score);
    }
    s->count = filled;
}

/* The first entry from `at` on that is `base` or more, by steps that double. */
static size_t ahead(const kb_posting *word, size_t at, uint32_t base)
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

/* Adds what a word gives to the facts from `base` to `end`, or to those of them that have been touched. */
static kb_status walk(search *s, size_t which, uint32_t base, uint32_t end, int touch)
{
    const kb_posting *word = s->how->words + which;
    size_t at = s->at[which];

    while (at < word->count && word->facts[at] < end) {
        uint32_t fact = word->facts[at], place = fact - base, times = 1;
        uint64_t bit = UINT64_C(1) << (place & 63);

        if (fact < base)
            return KB_MISUSE;
        while (++at < word->count && word->facts[at] == fact)
            times++;
        if (s->touched[place / 64] & bit) {
            s->scores[place] += gain(s->how, word->weight, times, s->how->lengths[fact]);
        } else if (touch) {
            s->touched[place / 64] |= bit;
            s->scores[place] = gain(s->how, word->weight, times, s->how->lengths[fact]);
        }
    }
    s->at[which] = at;
    return KB_OK;
}

/* Works on the window at `base`, which is a multiple of its size. */
static kb_status window(search *s, uint32_t base)
{
    const kb_lexical *how = s->how;
    uint32_t end = how->fact_count - base > WINDOW ? base + WINDOW : (uint32_t)how->fact_count;
    kb_status status = KB_OK;

    memset(s->touched, 0, sizeof s->touched);
    for (size_t i = 0; i < how->word_count && status == KB_OK; i++) {
        if (i >= s->open)
            s->at[i] = ahead(how->words + i, s->at[i], base);
        status = walk(s, i, base, end, i < s->open);
    }
    if (status != KB_OK)
        return status;
    for (uint32_t i = 0; i < WINDOW / 64; i++) {
        for (uint64_t bits = s->touched[i]; bits != 0; bits &= bits - 1) {
            uint32_t place = i * 64 + KB_LOWEST_BIT(bits);

            offer(s, base + place, s->scores[place]);
        }
    }
    while (s->count == s->room && s->open > 0 && s->rest[s->open - 1] * ROUNDING < s->kept[0])
        s->open--;
    return KB_OK;
}

/* The lowest place that a word that matters has still to give; KB_NO_ROW: none. */
static uint32_t next_place(const search *s)
{
    uint32_t least = KB_NO_ROW;

    for (size_t i = 0; i < s->open; i++)
        if (s->at[i] < s->how->words[i].count && s->how->words[i].facts[s->at[i]] < least)
            least = s->how->words[i].facts[s->at[i]];
    return least;
}

static kb_status valid(const kb_lexical *how)
{
    if (how == NULL || how->word_count > KB_LEXICAL_WORDS || how->fact_count > KB_MAX_ROWS
        || (how->word_count != 0 && how->words == NULL) || !(how->flat > 0 && how->slope >= 0 && how->scale >= 0)
        || (how->fact_count != 0 && (how->lengths == NULL || how->shown == NULL || how->owners == NULL || how->ranks == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < how->word_count; i++)
        if (!(how->words[i].weight >= 0) || (how->words[i].count != 0 && how->words[i].facts == NULL))
            return KB_MISUSE;
    return KB_OK;
}

kb_status kb_lexical_best(const kb_lexical *how, uint32_t *facts, double *scores, size_t room, size_t *filled)
{
    search s;
    uint32_t base;
    kb_status status = valid(how);

    if (status != KB_OK || filled == NULL || (room != 0 && (facts == NULL || scores == NULL)))
        return KB_MISUSE;
    s.how = how;
    s.facts = facts;
    s.kept = scores;
    s.room = room;
    s.count = 0;
    s.open = how->word_count;
    memset(s.at, 0, sizeof s.at);
    s.rest[how->word_count] = 0;
    for (size_t i = how->word_count; i-- > 0;)
        s.rest[i] = s.rest[i + 1] + gain(how, how->words[i].weight, how->most, how->shortest);
    while (room != 0 && (base = next_place(&s)) != KB_NO_ROW) {
        if (base >= how->fact_count || (status = window(&s, base / WINDOW * WINDOW)) != KB_OK)
            return KB_MISUSE;
    }
    order(&s);
    *filled = s.count;
    return KB_OK;
}

kb_status kb_lexical_having(const kb_lexical *how, uint64_t *counts)
{
    if (valid(how) != KB_OK || (how->word_count != 0 && counts == NULL))
        return KB_MISUSE;
    for (size_t i = 0; i < how->word_count; i++)
        for (size_t at = 0; at < how->words[i].count; at++)
            if (how->words[i].facts[at] >= how->fact_count)
                return KB_MISUSE;
    for (size_t i = 0; i < how->word_count; i++) {
        const kb_posting *word = how->words + i;

        counts[i] = 0;
        for (size_t at = 0; at < word->count; at++)
            counts[i] += (at == 0 || word->facts[at - 1] != word->facts[at]) && is_asked(how, word->facts[at]);
    }
    return KB_OK;
}
