/* salience.c - how much each row matters, from its attribute cells.
 * Owns: the formula of kbengine.h, and the search for the rows with the highest score. Never: writes a cell.
 * A power of two for each row would cost more than reading it. So a row is dropped at once if its last access lies before the
 * time from which on a row can still be better than the worst of those kept, or if an upper bound of its score, which takes a
 * few multiplications, is too low. A regular sample of rows is visited first: for every order of the rows, what is
 * kept of them leaves few of the others to look at closely. */
#include "internal.h"
#include <math.h>

#define ACCESSES_ENOUGH 99            /* from here on the frequency is 1 */
#define STRIDE_AT 1024u               /* rows from which on some are visited before the others */
#define MATCHED 256u                  /* ids of a pattern at a time */

typedef struct scorer {
    const kb_relation *relation;
    const kb_salience *how;
    const int64_t *cells[KB_ATTRIBUTES];   /* the column, or one default, */
    uint32_t masks[KB_ATTRIBUTES];    /* for which the mask of the id is 0 */
    int64_t defaults[KB_ATTRIBUTES];
    int64_t last;                     /* the time whose recency is known, */
    double recency;                   /* and that recency */
    double per_life;                  /* 1 / half-life */
    double frequencies[ACCESSES_ENOUGH + 1];
} scorer;

typedef struct best {                 /* a heap, the worst of those kept at its root */
    uint32_t *ids;
    double *scores;
    size_t room, count;
    double least;                     /* below it nothing is kept any more, */
    int64_t cut;                      /* so no row last accessed before this, */
    int64_t cut_once;                 /* nor before this if it was accessed no more than once, */
    uint32_t cut_id;                  /* nor at `cut` with a higher id than this */
} best;

/* What is not a number counts as nothing. */
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
    return last >= s->how->now ? 0 : (double)((uint64_t)s->how->now - (uint64_t)last);
}

/* How often and how important, weighted. */
static double rest_of(const scorer *s, uint32_t id)
{
    int64_t accesses = cell(s, KB_ACCESSES, id);

    accesses = accesses < 0 ? 0 : accesses > ACCESSES_ENOUGH ? ACCESSES_ENOUGH : accesses;
    return s->how->frequency * s->frequencies[accesses] + s->how->priority * real(cell(s, KB_PRIORITY, id));
}

static double certain(const scorer *s, uint32_t id, double value)
{
    double confidence = real(cell(s, KB_CONFIDENCE, id));

    return confidence == confidence ? value * clamp(confidence) : value;
}

static double score(scorer *s, uint32_t id)
{
    int64_t last = last_access(s, id);

    if (last != s->last) {
        s->recency = exp2(-(age_of(s, last) / s->how->half_life));
        s->last = last;
    }
    return certain(s, id, clamp(s->how->recency * s->recency + rest_of(s, id)));
}

/* Never below the power of two of -x, and at most a hundredth above it: a parabola through 0, 1/2 and 1 for the fraction, which
 * is off by less than three thousandths, and the exponent of a double for the rest. */
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

/* Is the score surely below `least`? First as if the row had been accessed just now, then by a bound of its recency. */
static int is_below(const scorer *s, uint32_t id, double least)
{
    double rest = rest_of(s, id), recency;
    int64_t last;

    least *= 1 - 1e-12;               /* roundings */
    if (certain(s, id, clamp(s->how->recency + rest)) < least)
        return 1;
    last = last_access(s, id);
    recency = last == s->last ? s->recency : recency_bound(age_of(s, last) * s->per_life);
    return certain(s, id, clamp(s->how->recency * recency + rest)) < least;
}

static kb_status begin(const kb_engine *engine, kb_rel rel, const kb_salience *how, scorer *s)
{
    memset(s, 0, sizeof *s);
    s->relation = kb_engine_readable(engine, rel);
    if (s->relation == NULL || how == NULL || !(how->recency >= 0 && how->recency <= 1e300)
        || !(how->frequency >= 0 && how->frequency <= 1e300) || !(how->priority >= 0 && how->priority <= 1e300)
        || !(how->half_life > 0 && how->half_life <= 1e300))
        return KB_MISUSE;
    for (uint32_t i = 0; i < KB_ATTRIBUTES; i++) {
        s->defaults[i] = kb_attribute_default(i);
        s->cells[i] = s->relation->columns[i] == NULL ? s->defaults + i : s->relation->columns[i];
        s->masks[i] = s->relation->columns[i] == NULL ? 0 : UINT32_MAX;
    }
    s->how = how;
    s->last = how->now;
    s->recency = 1;
    s->per_life = 1 / how->half_life;
    for (uint32_t i = 0; i < ACCESSES_ENOUGH; i++)
        s->frequencies[i] = log(1.0 + i) / log(100.0);
    s->frequencies[ACCESSES_ENOUGH] = 1;
    return KB_OK;
}

/* Is row `a` with its score to be kept rather than row `b`? */
static int before(const scorer *s, uint32_t a, double score_a, uint32_t b, double score_b)
{
    int64_t created_a, created_b;

    if (score_a != score_b)
        return score_a > score_b;
    created_a = cell(s, KB_CREATED_AT, a);
    created_b = cell(s, KB_CREATED_AT, b);
    return created_a != created_b ? created_a > created_b : a < b;
}

static void put(best *kept, size_t at, uint32_t id, double value)
{
    kept->ids[at] = id;
    kept->scores[at] = value;
}

/* A row that goes in at the root of the first `count`. */
static void sift_down(best *kept, const scorer *s, size_t count, uint32_t id, double value)
{
    size_t at = 0, below;

    while ((below = 2 * at + 1) < count) {
        if (below + 1 < count
            && before(s, kept->ids[below], kept->scores[below], kept->ids[below + 1], kept->scores[below + 1]))
            below++;
        if (!before(s, id, value, kept->ids[below], kept->scores[below]))
            break;
        put(kept, at, kept->ids[below], kept->scores[below]);
        at = below;
    }
    put(kept, at, id, value);
}

/* Since when a row that was used so often must have been accessed for a score of `least`, if it is certain. */
static int64_t cut_of(const scorer *s, double least, uint32_t accesses)
{
    double rest = s->how->frequency * s->frequencies[accesses], need, age;

    if (s->masks[KB_PRIORITY] != 0)
        return INT64_MIN;             /* how important a row can be is not known */
    need = (least * (1 - 1e-9) - rest - s->how->priority * real(s->defaults[KB_PRIORITY])) / s->how->recency;
    if (!(need > 0))
        return INT64_MIN;
    age = need < 1 ? -log2(need) * s->how->half_life * (1 + 1e-9) + 1 : 1;
    return age < 9e18 && s->how->now >= INT64_MIN + (int64_t)age ? s->how->now - (int64_t)age : INT64_MIN;
}

/* Where only the time of creation differs from row to row it alone tells which of two is better. */
static void aim(best *kept, const scorer *s)
{
    if (kept->count != 0 && kept->count == kept->room
        && (s->masks[KB_LAST_ACCESS] | s->masks[KB_ACCESSES] | s->masks[KB_PRIORITY] | s->masks[KB_CONFIDENCE]) == 0) {
        kept->cut = kept->cut_once = cell(s, KB_CREATED_AT, kept->ids[0]);
        kept->cut_id = kept->ids[0];
    } else {
        kept->cut_once = cut_of(s, kept->least, 1);
        kept->cut = s->masks[KB_ACCESSES] != 0 ? cut_of(s, kept->least, ACCESSES_ENOUGH) : kept->cut_once;
    }
}

static void keep(best *kept, const scorer *s, uint32_t id, double value)
{
    size_t at;

    if (!(value >= kept->least) || (kept->count == kept->room && !before(s, id, value, kept->ids[0], kept->scores[0])))
        return;
    if (kept->count == kept->room) {
        sift_down(kept, s, kept->room, id, value);
    } else {
        for (at = kept->count++; at != 0 && before(s, kept->ids[(at - 1) / 2], kept->scores[(at - 1) / 2], id, value); at = (at - 1) / 2)
            put(kept, at, kept->ids[(at - 1) / 2], kept->scores[(at - 1) / 2]);
        put(kept, at, id, value);
    }
    if (kept->count == kept->room) {
        kept->least = kept->scores[0];
        aim(kept, s);
    }
}

#define BLOCK 16u                     /* cells compared without a branch between them */

/* The first cell from `id` on, below `end`, that is not less than `least`, to be found where most are less. */
static uint32_t not_below(const int64_t *cells, int64_t least, uint32_t id, uint32_t end)
{
    for (; end - id >= BLOCK; id += BLOCK) {
        int some = 0;

        for (uint32_t i = 0; i < BLOCK; i++)
            some |= cells[id + i] >= least;
        if (some)
            break;
    }
    while (id < end && cells[id] < least)
        id++;
    return id;
}

/* The first row from `id` on, below `end`, that was not accessed too long ago. */
static uint32_t recent(const scorer *s, const best *kept, uint32_t id, uint32_t end)
{
    const int64_t *created = s->cells[KB_CREATED_AT], *accessed = s->cells[KB_LAST_ACCESS], *accesses = s->cells[KB_ACCESSES];
    uint32_t mask = s->masks[KB_CREATED_AT], often = s->masks[KB_ACCESSES], cut_id = kept->cut_id;
    int64_t cut = kept->cut, once = kept->cut_once;

    if (s->masks[KB_LAST_ACCESS] == 0 && mask == 0)
        return created[0] < cut || (created[0] == cut && id > cut_id) ? end : id;
    if (s->masks[KB_LAST_ACCESS] == 0) {
        uint32_t middle = end <= cut_id ? end : id <= cut_id ? cut_id + 1 : id;   /* up to here those at the cut are good */

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

static void look(scorer *s, best *kept, uint32_t id)
{
    if (kb_visible(s->relation, id) && !is_below(s, id, kept->least))
        keep(kept, s, id, score(s, id));
}

static kb_status visit_matching(const kb_engine *engine, scorer *s, kb_relation *relation, const kb_sym *pattern, best *kept)
{
    uint32_t ids[MATCHED];
    uint64_t cursor = 0;
    size_t filled = MATCHED;

    while (filled == MATCHED) {
        kb_status status = kb_relation_match(engine, relation, pattern, 0, &cursor, NULL, ids, MATCHED, &filled);

        if (status < 0)
            return status;
        for (size_t i = 0; i < filled; i++)
            look(s, kept, ids[i]);
    }
    return KB_OK;
}

static void visit_all(scorer *s, best *kept)
{
    uint32_t rows = s->relation->rows, stride = 1;

    if (rows >= STRIDE_AT && rows / 4 > kept->room)
        stride = (uint32_t)sqrt((double)rows / (double)kept->room);
    for (uint32_t i = rows / stride + (rows % stride != 0); i-- > 0;)   /* the newest rows are likely the best */
        if (recent(s, kept, i * stride, i * stride + 1) == i * stride)
            look(s, kept, i * stride);
    for (uint32_t id = stride > 1 ? recent(s, kept, 0, rows) : rows; id < rows; id = recent(s, kept, id + 1, rows))
        if (id % stride != 0)
            look(s, kept, id);
}

kb_status kb_salience_scores(const kb_engine *engine, kb_rel rel, const kb_salience *how, const uint32_t *ids, size_t count, double *scores)
{
    scorer s;
    kb_status status = begin(engine, rel, how, &s);

    if (status < 0 || (count != 0 && (ids == NULL || scores == NULL)))
        return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= s.relation->rows)
            return KB_MISUSE;
    for (size_t i = 0; i < count; i++)
        scores[i] = score(&s, ids[i]);
    return KB_OK;
}

kb_status kb_salience_most(kb_engine *engine, kb_rel rel, const kb_salience *how, const kb_sym *pattern, double least,
                           uint32_t *ids, double *scores, size_t room, size_t *filled)
{
    best kept = { ids, scores, room, 0, least, INT64_MIN, INT64_MIN, KB_NONE };
    scorer s;
    kb_status status = begin(engine, rel, how, &s);

    if (status < 0 || least != least || filled == NULL || (room != 0 && (ids == NULL || scores == NULL)))
        return KB_MISUSE;
    aim(&kept, &s);
    if (room != 0 && pattern == NULL)
        visit_all(&s, &kept);
    else if (room != 0 && (status = visit_matching(engine, &s, kb_engine_readable(engine, rel), pattern, &kept)) < 0)
        return status;
    for (size_t count = kept.count; count-- > 1;) {   /* the worst goes last, and so on */
        uint32_t id = ids[count];
        double value = scores[count];

        put(&kept, count, ids[0], scores[0]);
        sift_down(&kept, &s, count, id, value);
    }
    *filled = kept.count;
    return KB_OK;
}

kb_status kb_salience_below(const kb_engine *engine, kb_rel rel, const kb_salience *how, double below, uint64_t *cursor,
                            uint32_t *ids, size_t room, size_t *filled)
{
    scorer s;
    size_t found = 0;
    kb_status status = begin(engine, rel, how, &s);

    if (status < 0 || below != below || cursor == NULL || ids == NULL || room == 0 || filled == NULL)
        return KB_MISUSE;
    for (uint64_t at = *cursor; at < s.relation->rows && found < room; at++) {
        uint32_t id = (uint32_t)at;

        *cursor = at + 1;
        if (kb_visible(s.relation, id) && score(&s, id) < below)
            ids[found++] = id;
    }
    *filled = found;
    return KB_OK;
}
