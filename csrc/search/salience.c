/* salience.c - the salience of rows, from their attribute cells.
 * Owns: the formula of kbengine.h, and the search for the rows with the highest score. Never:
 * writes a cell.
 * A power of two for each row would cost more than reading it. So a row is skipped if its last
 * access is before the time from which a row can still beat the worst of the best rows, or if an
 * upper bound of its score, which takes a few multiplications, is too low. A regular sample of rows
 * is visited first: whatever the order of the rows, few of the others then need an exact score. */
#include "internal.h"
#include <math.h>

#define FULL_ACCESSES 99              /* from here on the frequency term is 1 */
#define MIN_STRIDE_ROWS 1024u         /* rows from which a sample is visited first */
#define BATCH_IDS 256u                /* ids of a pattern at a time */

typedef struct scorer {
    const kb_relation *relation;
    const kb_salience *formula;
    const int64_t *cells[KB_ATTRIBUTES];   /* the column, or `defaults` */
    uint32_t masks[KB_ATTRIBUTES];    /* UINT32_MAX; 0 for a column that is `defaults` */
    int64_t defaults[KB_ATTRIBUTES];
    int64_t last;                     /* a time whose recency is known */
    double recency;                   /* its recency */
    double inverse_half_life;         /* 1 / half-life */
    double frequencies[FULL_ACCESSES + 1];
} scorer;

typedef struct top_rows {             /* a heap with the worst of the best rows at its root */
    uint32_t *ids;
    double *scores;
    size_t room, count;
    double min_score;                 /* rows below this score are not added */
    int64_t cut;                      /* nor rows last accessed before this time */
    int64_t cut_single;               /* nor before this time if accessed at most once */
    uint32_t cut_id;                  /* nor at `cut` with a higher id than this */
} top_rows;

/* Clamp to 0 .. 1; NaN becomes 0. */
static double clamp(double value)
{
    value = value > 0 ? value : 0;
    return value < 1 ? value : 1;
}

static double real(int64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t cell(const scorer *s, uint32_t attribute, uint32_t id)
{
    return s->cells[attribute][id & s->masks[attribute]];
}

static int64_t last_access(const scorer *s, uint32_t id)
{
    int64_t last = cell(s, KB_LAST_ACCESS, id);

    return last != 0 ? last : cell(s, KB_CREATED_AT, id);
}

static double age_of(const scorer *s, int64_t last)
{
    return last >= s->formula->now ? 0 : (double)((uint64_t)s->formula->now - (uint64_t)last);
}

/* The weighted frequency and priority. */
static double other_terms(const scorer *s, uint32_t id)
{
    int64_t accesses = cell(s, KB_ACCESSES, id);

    accesses = accesses < 0 ? 0 : accesses > FULL_ACCESSES ? FULL_ACCESSES : accesses;
    return s->formula->frequency * s->frequencies[accesses] + s->formula->priority * real(cell(s, KB_PRIORITY, id));
}

static double weighted(const scorer *s, uint32_t id, double value)
{
    double confidence = real(cell(s, KB_CONFIDENCE, id));

    return confidence == confidence ? value * clamp(confidence) : value;
}

static double score(scorer *s, uint32_t id)
{
    int64_t last = last_access(s, id);

    if (last != s->last) {
        s->recency = exp2(-(age_of(s, last) / s->formula->half_life));
        s->last = last;
    }
    return weighted(s, id, clamp(s->formula->recency * s->recency + other_terms(s, id)));
}

/* Return an upper bound of 2^-x that is at most one percent too high: a parabola through 0, 1/2 and
 * 1 for the fraction, with an error below 0.003, and the exponent of a double for the rest. */
static double recency_bound(double x)
{
    uint64_t bits;
    double part;
    int whole;

    if (!(x < 1000))
        return 1e-300;
    whole = (int)x;
    part = x - whole;
    bits = (uint64_t)(1023 - whole) << 52;
    return real((int64_t)bits) * (1.004 + part * (-0.67425915 + part * 0.17225917));
}

/* Return 1 if the score is certainly below `min_score`: first as if the row had been accessed just
 * now, then by a bound of its recency. */
static int is_below(const scorer *s, uint32_t id, double min_score)
{
    double rest = other_terms(s, id), recency;
    int64_t last;

    min_score *= 1 - 1e-12;           /* allows for rounding */
    if (weighted(s, id, clamp(s->formula->recency + rest)) < min_score)
        return 1;
    last = last_access(s, id);
    recency = last == s->last ? s->recency : recency_bound(age_of(s, last) * s->inverse_half_life);
    return weighted(s, id, clamp(s->formula->recency * recency + rest)) < min_score;
}

static kb_status begin(const kb_engine *engine, kb_rel rel, const kb_salience *formula, scorer *s)
{
    kb_relation *relation;
    kb_status status = kb_engine_readable(engine, rel, &relation);

    memset(s, 0, sizeof *s);
    if (status < 0)
        return status;
    s->relation = relation;
    if (formula == NULL || !(formula->recency >= 0 && formula->recency <= 1e300)
        || !(formula->frequency >= 0 && formula->frequency <= 1e300) || !(formula->priority >= 0 && formula->priority <= 1e300)
        || !(formula->half_life > 0 && formula->half_life <= 1e300))
        return KB_MISUSE;
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++) {
        s->defaults[i] = kb_attribute_default(i);
        s->cells[i] = s->relation->columns[i] == NULL ? s->defaults + i : s->relation->columns[i];
        s->masks[i] = s->relation->columns[i] == NULL ? 0 : UINT32_MAX;
    }
    s->formula = formula;
    s->last = formula->now;
    s->recency = 1;
    s->inverse_half_life = 1 / formula->half_life;
    for (uint32_t i = 0; i < FULL_ACCESSES; i++)
        s->frequencies[i] = log(1.0 + i) / log(100.0);
    s->frequencies[FULL_ACCESSES] = 1;
    return KB_OK;
}

/* Return 1 if row `a` with its score comes before row `b`. */
static int before(const scorer *s, uint32_t a, double score_a, uint32_t b, double score_b)
{
    int64_t created_a, created_b;

    if (score_a != score_b)
        return score_a > score_b;
    created_a = cell(s, KB_CREATED_AT, a);
    created_b = cell(s, KB_CREATED_AT, b);
    return created_a != created_b ? created_a > created_b : a < b;
}

static void put(top_rows *top, size_t at, uint32_t id, double value)
{
    top->ids[at] = id;
    top->scores[at] = value;
}

/* Put a row in at the root of the first `count` rows. */
static void sift_down(top_rows *top, const scorer *s, size_t count, uint32_t id, double value)
{
    size_t at = 0, below;

    while ((below = 2 * at + 1) < count) {
        if (below + 1 < count
            && before(s, top->ids[below], top->scores[below], top->ids[below + 1], top->scores[below + 1]))
            below++;
        if (!before(s, id, value, top->ids[below], top->scores[below]))
            break;
        put(top, at, top->ids[below], top->scores[below]);
        at = below;
    }
    put(top, at, id, value);
}

/* Return the earliest last access of a row with this many accesses that can score `min_score`,
 * assuming that its confidence is 1. */
static int64_t cut_of(const scorer *s, double min_score, uint32_t accesses)
{
    double rest = s->formula->frequency * s->frequencies[accesses], need, age;

    if (s->masks[KB_PRIORITY] != 0)
        return INT64_MIN;             /* priorities differ between rows */
    need = (min_score * (1 - 1e-9) - rest - s->formula->priority * real(s->defaults[KB_PRIORITY])) / s->formula->recency;
    if (!(need > 0))
        return INT64_MIN;
    age = need < 1 ? -log2(need) * s->formula->half_life * (1 + 1e-9) + 1 : 1;
    return age < 9e18 && s->formula->now >= INT64_MIN + (int64_t)age ? s->formula->now - (int64_t)age : INT64_MIN;
}

/* Compute the cuts. Where only the creation time differs between rows, it alone decides. */
static void update_cuts(top_rows *top, const scorer *s)
{
    if (top->count != 0 && top->count == top->room
        && (s->masks[KB_LAST_ACCESS] | s->masks[KB_ACCESSES] | s->masks[KB_PRIORITY] | s->masks[KB_CONFIDENCE]) == 0) {
        top->cut = top->cut_single = cell(s, KB_CREATED_AT, top->ids[0]);
        top->cut_id = top->ids[0];
    } else {
        top->cut_single = cut_of(s, top->min_score, 1);
        top->cut = s->masks[KB_ACCESSES] != 0 ? cut_of(s, top->min_score, FULL_ACCESSES) : top->cut_single;
    }
}

static void offer(top_rows *top, const scorer *s, uint32_t id, double value)
{
    size_t at;

    if (!(value >= top->min_score) || (top->count == top->room && !before(s, id, value, top->ids[0], top->scores[0])))
        return;
    if (top->count == top->room) {
        sift_down(top, s, top->room, id, value);
    } else {
        for (at = top->count++; at != 0 && before(s, top->ids[(at - 1) / 2], top->scores[(at - 1) / 2], id, value); at = (at - 1) / 2)
            put(top, at, top->ids[(at - 1) / 2], top->scores[(at - 1) / 2]);
        put(top, at, id, value);
    }
    if (top->count == top->room) {
        top->min_score = top->scores[0];
        update_cuts(top, s);
    }
}

#define BLOCK 16u                     /* cells compared without a branch between them */

/* Return the first id from `id` on, below `end`, whose cell is at least `min_score`; fast where
 * most are less. */
static uint32_t not_below(const int64_t *cells, int64_t min_score, uint32_t id, uint32_t end)
{
    for (; end - id >= BLOCK; id += BLOCK) {
        int any = 0;

        for (uint32_t i = 0; i < BLOCK; i++)
            any |= cells[id + i] >= min_score;
        if (any)
            break;
    }
    while (id < end && cells[id] < min_score)
        id++;
    return id;
}

/* Return the first row from `id` on, below `end`, that was not accessed too long ago. */
static uint32_t next_recent(const scorer *s, const top_rows *top, uint32_t id, uint32_t end)
{
    const int64_t *created = s->cells[KB_CREATED_AT], *accessed = s->cells[KB_LAST_ACCESS], *accesses = s->cells[KB_ACCESSES];
    uint32_t mask = s->masks[KB_CREATED_AT], often = s->masks[KB_ACCESSES], cut_id = top->cut_id;
    int64_t cut = top->cut, once = top->cut_single;

    if (s->masks[KB_LAST_ACCESS] == 0 && mask == 0)
        return created[0] < cut || (created[0] == cut && id > cut_id) ? end : id;
    if (s->masks[KB_LAST_ACCESS] == 0) {
        /* rows at the cut count up to this id */
        uint32_t middle = end <= cut_id ? end : id <= cut_id ? cut_id + 1 : id;

        id = not_below(created, cut, id, middle);
        return id < middle ? id : cut == INT64_MAX ? end : not_below(created, cut + 1, middle, end);
    }
    for (; id < end; id++) {
        int64_t last = accessed[id] != 0 ? accessed[id] : created[id & mask];

        if (last >= once || (last >= cut && accesses[id & often] > 1))
            break;
    }
    return id;
}

static void consider(scorer *s, top_rows *top, uint32_t id)
{
    if (kb_visible(s->relation, id) && !is_below(s, id, top->min_score))
        offer(top, s, id, score(s, id));
}

static kb_status visit_matching(const kb_engine *engine, scorer *s, kb_relation *relation, const kb_sym *pattern, top_rows *top)
{
    uint32_t ids[BATCH_IDS];
    uint64_t cursor = 0;
    size_t filled = BATCH_IDS;

    while (filled == BATCH_IDS) {
        kb_status status = kb_relation_match(engine, relation, pattern, 0, &cursor, NULL, ids, BATCH_IDS, &filled);

        if (status < 0)
            return status;
        for (size_t i = 0; i < filled; i++)
            consider(s, top, ids[i]);
    }
    return KB_OK;
}

static void visit_all(scorer *s, top_rows *top)
{
    uint32_t rows = s->relation->rows, stride = 1;

    if (rows >= MIN_STRIDE_ROWS && rows / 4 > top->room)
        stride = (uint32_t)sqrt((double)rows / (double)top->room);
    /* backwards: the newest rows are likely the best */
    for (uint32_t i = rows / stride + (rows % stride != 0); i-- > 0;)
        if (next_recent(s, top, i * stride, i * stride + 1) == i * stride)
            consider(s, top, i * stride);
    for (uint32_t id = stride > 1 ? next_recent(s, top, 0, rows) : rows; id < rows; id = next_recent(s, top, id + 1, rows))
        if (id % stride != 0)
            consider(s, top, id);
}

kb_status kb_salience_scores(const kb_engine *engine, kb_rel rel, const kb_salience *formula, const uint32_t *ids, size_t count, double *scores)
{
    scorer s;
    kb_status status = begin(engine, rel, formula, &s);

    if (status < 0)
        return status;
    if (count != 0 && (ids == NULL || scores == NULL))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= s.relation->rows)
            return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        scores[i] = score(&s, ids[i]);
    return KB_OK;
}

kb_status kb_salience_top(kb_engine *engine, kb_rel rel, const kb_salience *formula, const kb_sym *pattern, double min_score,
                           uint32_t *ids, double *scores, size_t room, size_t *filled)
{
    top_rows top = { ids, scores, room, 0, min_score, INT64_MIN, INT64_MIN, KB_NONE };
    scorer s;
    kb_status status = begin(engine, rel, formula, &s);

    if (status < 0)
        return status;
    if (min_score != min_score || filled == NULL || (room != 0 && (ids == NULL || scores == NULL)))
        return KB_MISUSE;
    update_cuts(&top, &s);
    if (room != 0 && pattern == NULL)
        visit_all(&s, &top);
    else if (room != 0 && (status = visit_matching(engine, &s, kb_engine_relation(engine, rel), pattern, &top)) < 0)
        return status;
    for (size_t count = top.count; count-- > 1;) {   /* the worst goes to the end */
        uint32_t id = ids[count];
        double value = scores[count];

        put(&top, count, ids[0], scores[0]);
        sift_down(&top, &s, count, id, value);
    }
    *filled = top.count;
    return KB_OK;
}

kb_status kb_salience_below(const kb_engine *engine, kb_rel rel, const kb_salience *formula, double max_score, uint64_t *cursor,
                            uint32_t *ids, size_t room, size_t *filled)
{
    scorer s;
    size_t count = 0;
    kb_status status = begin(engine, rel, formula, &s);

    if (status < 0)
        return status;
    if (max_score != max_score || cursor == NULL || ids == NULL || room == 0 || filled == NULL)
        return KB_MISUSE;
    for (uint64_t at = *cursor; at < s.relation->rows && count < room; at++) {
        uint32_t id = (uint32_t)at;

        *cursor = at + 1;
        if (kb_visible(s.relation, id) && score(&s, id) < max_score)
            ids[count++] = id;
    }
    *filled = count;
    return KB_OK;
}
