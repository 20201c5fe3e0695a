/* kbengine.h - the public interface of the engine.
 * Owns: symbols, relations, indexes, verified plans, runs. Never: strings of the caller, files,
 * time.
 *
 * Ownership: the caller closes every handle it opens. Arguments are read during the call only,
 * unless a comment says that they are borrowed. A pointer that a call returns is valid until the
 * next call that changes the same handle.
 * Threads: one call at a time per kb_engine and everything opened from it; different engines are
 * independent. Only kb_run_cancel and kb_model_cancel may be called during another call.
 * Errors: every call that can fail returns a kb_status, negative on error. Outputs are the last
 * arguments and are written only on success. A call that changes the engine does all of its work or
 * none of it. Each call lists the statuses it can return under "Returns". KB_MISUSE (a NULL or
 * unknown handle, a NULL array with a count, a symbol or row id out of range) is possible for all
 * of them and is listed only where it has a further reason.
 * Counts are numbers of items, sizes are in bytes. */
#ifndef KBENGINE_H
#define KBENGINE_H
#include <stddef.h>
#include <stdint.h>
#define KB_EPOCH INT64_MIN            /* a cell of KB_VALID_FROM: 1970-01-01, since 0 is the
                                       * default */

/* cdef: begin */

#define KB_ABI 8                      /* rises with every change of this interface, as in
                                       * binding.py */

typedef struct kb_engine kb_engine;   /* symbols and relations of one tenant */
typedef struct kb_plan kb_plan;       /* bytecode that passed the verifier; immutable */
typedef struct kb_model kb_model;     /* computes the well-founded model of a ground program */
typedef struct kb_run kb_run;         /* one evaluation; stays open as a goal table */

typedef uint32_t kb_sym;              /* interned bytes, 1 .. 2^31-1; 0 is no symbol */
typedef uint64_t kb_rel;              /* a relation of one engine, never reused; 0 is no relation */
typedef uint32_t kb_word;             /* one word of bytecode */

typedef enum kb_status {
    KB_OK = 0,
    KB_DONE = 1,                      /* nothing is left to do: the run reached its fixpoint */
    KB_PAUSED = 2,                    /* the fuel is used up; call again to continue */
    KB_STALE = 3,                     /* the run cannot continue after a change of what it read */
    KB_NOMEM = -1,                    /* out of memory, or the byte budget of the engine is spent */
    KB_LIMIT = -2,                    /* a budget of the run is spent; kb_stats.budget names it */
    KB_MISUSE = -3,                   /* bad handle, arity or argument: a bug in the caller */
    KB_BADPLAN = -4,                  /* the verifier rejected the bytecode */
    KB_BUSY = -5,                     /* a paused run reads the relation, which must not change */
    KB_CANCELLED = -6                 /* kb_run_cancel or kb_model_cancel was called */
} kb_status;

typedef enum kb_budget { KB_BUDGET_NONE = 0, KB_BUDGET_ROWS = 1, KB_BUDGET_BYTES = 2, KB_BUDGET_STEPS = 3 } kb_budget;

typedef struct kb_options {
    uint64_t max_bytes;               /* byte budget of the engine; 0: no budget */
    uint64_t fail_after;              /* tests: fail the n-th allocation, counted from 1; 0:
                                       * never */
    uint32_t threads;                 /* that evaluate a large recursion together, during a call; 0:
                                       * one */
} kb_options;

typedef struct kb_limits {            /* budgets of one run, over its lifetime; 0: no budget */
    uint64_t max_rows;                /* rows derived */
    uint64_t max_bytes;               /* bytes of the run's own relations */
    uint64_t max_steps;               /* rows read plus probes */
} kb_limits;

typedef struct kb_stats {
    uint64_t rows_made;               /* new rows in derived relations */
    uint64_t rows_read;               /* rows visited */
    uint64_t probes;                  /* index and membership look-ups */
    uint64_t steps;                   /* fuel used: rows_read + probes */
    uint64_t bytes;                   /* of the run's own relations */
    uint64_t rounds;
    uint32_t budget;                  /* the kb_budget that is spent, after KB_LIMIT */
    uint32_t rule;                    /* id of the rule at which the run stopped; 0 after KB_DONE */
    uint64_t warnings;                /* literals that failed because a function had no value */
    uint32_t component;               /* current component, from 0; after KB_DONE their number */
} kb_stats;

const char *kb_status_text(int status);   /* a static English sentence; never NULL */

/* --- engine --- */

/* Open an engine. `options` may be NULL: no budget. Returns: OK, NOMEM. */
kb_status kb_engine_open(const kb_options *options, kb_engine **out);
/* Close an engine; NULL is allowed. Its memory is freed when its last run and model are closed. */
void kb_engine_close(kb_engine *engine);
uint64_t kb_engine_bytes(const kb_engine *engine);   /* bytes allocated now, runs included */
void kb_engine_fail_after(kb_engine *engine, uint64_t allocations);   /* tests: see kb_options */

/* --- symbols --- */

/* Intern `len` bytes. Returns: OK, NOMEM. */
kb_status kb_intern(kb_engine *engine, const char *bytes, size_t len, kb_sym *out);
/* Intern `count` strings, all or none. String i is the bytes from ends[i-1] (0 for the first) to
 * ends[i]; `out` receives `count` symbols. Returns: OK, NOMEM; MISUSE if `ends` decreases. */
kb_status kb_intern_many(kb_engine *engine, const char *bytes, const uint64_t *ends, size_t count, kb_sym *out);
/* Give a symbol that no text finds these bytes: `symbol` of an earlier call, whose text had as many
 * bytes and which nothing refers to any more, or a new one for 0. For constants of a single run
 * that no row has. Returns: OK, NOMEM; MISUSE for another symbol or length. */
kb_status kb_symbol_reuse(kb_engine *engine, kb_sym symbol, const char *bytes, size_t len, kb_sym *out);
/* Look up a string without interning it; `out` receives 0 for an unknown one. Returns: OK. */
kb_status kb_find(kb_engine *engine, const char *bytes, size_t len, kb_sym *out);
/* Look up `count` strings, given as for kb_intern_many; `out` receives 0 for each unknown one.
 * Returns: OK; MISUSE if `ends` decreases. */
kb_status kb_find_many(kb_engine *engine, const char *bytes, const uint64_t *ends, size_t count, kb_sym *out);
/* The text of a symbol, borrowed until the next symbol is interned. Returns: OK. */
kb_status kb_symbol(const kb_engine *engine, kb_sym sym, const char **bytes, size_t *len);
/* Copy the texts of `count` symbols, one after the other, into `bytes`, which has `room` bytes.
 * `ends` (`count` items) receives the end of each text and `filled` the number of texts that
 * fitted.
 * Returns: OK. */
kb_status kb_symbols_text(const kb_engine *engine, const kb_sym *syms, size_t count, char *bytes, size_t room,
                          uint64_t *ends, size_t *filled);
uint32_t kb_symbol_count(const kb_engine *engine);   /* symbols are 1 .. this number */
/* The number that a text is. kind: 0 text, 1 integer of 64 bits (`integer` and `real` are set);
 * others have only `real`, the nearest double, which may be infinite: 2 decimal, 3 with an
 * exponent, 4 longer whole number. Returns: OK. */
kb_status kb_symbol_number(const kb_engine *engine, kb_sym sym, uint32_t *kind, int64_t *integer, double *real);
/* Sort `count` rows of `arity` symbols in place, in answer order: numbers before text, numbers by
 * value and then by text, text by bytes. Returns: OK, NOMEM. */
kb_status kb_sort_rows(kb_engine *engine, kb_sym *rows, uint32_t arity, size_t count);

/* --- relations --- A relation is a set of rows of `arity` symbols (0 .. 64); arrays of rows are
 * row-major. A row has an id, its position in the order of insertion, which changes only when the
 * epoch changes. A hidden row keeps its position and its attributes, but plans and plain matches do
 * not see it. Calls that change rows return MISUSE for a relation of a run or a snapshot. */
#define KB_NO_ROW 0xFFFFFFFFu
#define KB_SAME 0x80000000u           /* in a pattern: KB_SAME | j = equal to column j, j before
                                       * this one */
#define KB_MATCH_HIDDEN 1u            /* flag of kb_match: include hidden rows */

/* Create an empty relation; drop it with kb_relation_drop. Returns: OK, NOMEM; MISUSE if `arity` is
 * above 64. */
kb_status kb_relation_new(kb_engine *engine, uint32_t arity, kb_rel *out);
/* Drop a relation and free its memory. Runs that read it become stale. Returns: OK; BUSY if a
 * paused run reads it; MISUSE if it belongs to a run. */
kb_status kb_relation_drop(kb_engine *engine, kb_rel rel);
/* Copy a relation: rows in their order, hidden flags and attributes, but no indexes. If many rows
 * were deleted, the remaining ones get new ids. Returns: OK, NOMEM. */
kb_status kb_relation_copy(kb_engine *engine, kb_rel from, kb_rel *out);
/* Take a snapshot of `count` relations, all or none. Each becomes a new relation with the ids of
 * the original, including those of deleted rows. All memory is allocated here but no row is copied:
 * rows are copied before they change in the original, and by kb_snapshot_copy. Until that call
 * returns DONE a snapshot can only be dropped; after that it can also be read. It can never be
 * changed. The original may be changed and dropped at any time.
 * Returns: OK, NOMEM; MISUSE for a relation of a run or a snapshot. */
kb_status kb_relation_snapshot(kb_engine *engine, const kb_rel *from, size_t count, kb_rel *out);
/* Copy about `rows` more rows of a snapshot. Returns: OK if rows are left, DONE if it is complete;
 * MISUSE if `rel` is not a snapshot. */
kb_status kb_snapshot_copy(kb_engine *engine, kb_rel rel, size_t rows);
/* Bytes allocated for a relation: rows, set, attribute columns, indexes. Returns: OK. */
kb_status kb_relation_bytes(const kb_engine *engine, kb_rel rel, uint64_t *out);
/* Add the rows that do not exist yet, all or none. `ids` (may be NULL) receives the id of every
 * row: it is a new row if its id is at or above the row count before the call. `added` receives the
 * number of new rows. Returns: OK, NOMEM; BUSY if a paused run reads the relation. */
kb_status kb_insert(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, uint32_t *ids, size_t *added);
/* Delete the rows that exist. Returns: OK, NOMEM; BUSY if a paused run reads the relation. */
kb_status kb_delete(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, size_t *removed);
/* Hide (`hidden` not 0) or show rows; `changed` receives how many changed. Returns: OK, NOMEM; BUSY
 * if a paused run reads the relation. */
kb_status kb_hide(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, int hidden, size_t *changed);
/* The id of each of `count` rows, KB_NO_ROW for a row that does not exist. Returns: OK, NOMEM. */
kb_status kb_locate(const kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, uint32_t *ids);
/* Copy those of `count` rows that do not exist, in their order; `missing` has room for all of them
 * and may be `rows` itself. `missing_count` receives their number. Returns: OK, NOMEM. */
kb_status kb_missing(const kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, kb_sym *missing,
                     size_t *missing_count);
/* rows: the next row id. live: rows not deleted. visible: live and not hidden. epoch: rises when
 * rows are deleted, hidden or shown. Returns: OK. */
kb_status kb_count(const kb_engine *engine, kb_rel rel, uint64_t *rows, uint64_t *live, uint64_t *visible, uint64_t *epoch);
/* Rows that match `pattern`, one item per column (a symbol, KB_SAME | j, or 0 for any), in order of
 * id from *cursor on (start with 0). Fills up to `room` (at least 1) `rows` and `ids` (either may
 * be NULL) and advances the cursor; filled < room means that there are no more. Returns: OK. */
kb_status kb_match(kb_engine *engine, kb_rel rel, const kb_sym *pattern, uint32_t flags, uint64_t *cursor,
                   kb_sym *rows, uint32_t *ids, size_t room, size_t *filled);
/* The ids of the rows that match each of `count` patterns, one pattern after the other, as kb_match
 * finds them. cursor[0] is the pattern to go on with and cursor[1] its cursor (start with 0, 0).
 * Fills up to `room` (at least 1) `ids` and `numbers`, the numbers of the patterns that they match,
 * and advances the cursor; cursor[0] = count means that there are no more. Returns: OK, NOMEM. */
kb_status kb_match_many(kb_engine *engine, kb_rel rel, const kb_sym *patterns, size_t count, uint32_t flags,
                        uint64_t *cursor, uint32_t *ids, uint32_t *numbers, size_t room, size_t *filled);
/* The rows with these ids, in this order. Returns: OK; MISUSE for the id of a deleted row. */
kb_status kb_rows_at(const kb_engine *engine, kb_rel rel, const uint32_t *ids, size_t count, kb_sym *rows);

/* --- totals --- */
#define KB_EXACT_WORDS 70
typedef struct kb_exact {             /* an accumulator wide enough for every sum of doubles */
    int64_t words[KB_EXACT_WORDS];
    uint32_t pending;                 /* additions since carries were last propagated */
} kb_exact;
typedef struct kb_sum {               /* all zero: the sum of nothing; independent of the order of
                                       * additions */
    uint64_t count;                   /* numbers added */
    uint64_t low;                     /* low and high: the sum of the integers, 128 bits */
    int64_t high;
    uint32_t reals, infinite;         /* 1 if some number was not an integer; was a longer whole
                                       * number, or beyond the doubles */
    kb_exact exact;                   /* of the other numbers: the sum of words[i] * 2^(32 i -
                                       * 1074) */
} kb_sum;
typedef struct kb_total {             /* of one column of rows; all zero: of no rows */
    uint64_t matched;                 /* rows */
    kb_sym min, max;                  /* of the numbers, in answer order; 0: no number */
    kb_sym first_text;                /* the first value that is not a number; 0: none */
    kb_sum sum;
} kb_total;
/* Add a column of the rows that kb_match would return to `total`, which the caller owns: at most
 * `max_rows` (at least 1) rows from *cursor on, which is advanced. With KB_NO_ROW as the column,
 * rows are only counted. Returns: DONE if there are no more rows, otherwise OK. */
kb_status kb_total_add(kb_engine *engine, kb_rel rel, const kb_sym *pattern, uint32_t column, uint64_t *cursor,
                       uint64_t max_rows, kb_total *total);

/* --- differences --- */
typedef struct kb_difference {        /* the caller sets the four arrays, each of `room` ids, and
                                       * room */
    uint32_t *only_here, *only_there, *modified_here, *modified_there;
    size_t room, only_here_count, only_there_count, modified_count;
    uint64_t equal;                   /* pairs of equal rows without a difference, in this call */
    uint64_t found;                   /* pairs of equal rows since the cursor was 0 */
    uint32_t more;                    /* 1: not all is compared; call again with the same cursor */
} kb_difference;
/* Compare two relations of equal arity, hidden rows included: the rows that only one of them has,
 * and the pairs of equal rows that differ in KB_VALID_FROM, KB_VALID_UNTIL, KB_TTL or
 * KB_CONFIDENCE. The cursor starts with 0; each call compares some rows, and overwrites the arrays
 * and counts but `found`. Returns: OK, NOMEM; MISUSE if the arities differ or `room` is 0. */
kb_status kb_relation_compare(const kb_engine *engine, kb_rel here, kb_rel there, uint64_t *cursor, kb_difference *out);

/* --- indexes ---
 * An index is built when a plan or a match first needs it, and then kept up to date. Bit i of
 * `column_mask` stands for column i; at least one bit must be set. */

/* Build an index now. Returns: OK, NOMEM. */
kb_status kb_index(kb_engine *engine, kb_rel rel, uint64_t column_mask);
/* The number of distinct keys of these columns: exact if there is an index on them, otherwise
 * estimated from a sample; 0: no rows, or unknown. Returns: OK. */
kb_status kb_distinct(const kb_engine *engine, kb_rel rel, uint64_t column_mask, uint64_t *out);

/* --- attributes --- A relation has up to KB_ATTRIBUTES columns of 8-byte cells, one cell per row.
 * A column takes no memory before its first value; a cell that was never set holds the default.
 * Times are milliseconds since 1970. Reals are passed as their bits. */
typedef enum kb_attribute {
    KB_CREATED_AT = 0,                /* integer, a time */
    KB_VALID_FROM = 1,                /* integer, a time; default 0: KB_CREATED_AT; KB_EPOCH: time
                                       * 0 */
    KB_VALID_UNTIL = 2,               /* integer, a time, includes the ttl; default 2^63-1: no
                                       * end */
    KB_TTL = 3,                       /* integer, milliseconds; default 0: none */
    KB_LAST_ACCESS = 4,               /* integer, a time; default 0: KB_CREATED_AT */
    KB_ACCESSES = 5,                  /* integer; default 1 */
    KB_PRIORITY = 6,                  /* real; default 0.5 */
    KB_CONFIDENCE = 7,                /* real; default NaN: unknown */
    KB_LABELS = 8,                    /* integer; default 0: none */
    KB_ATTRIBUTES = 9
} kb_attribute;
/* Set the cells of `count` rows. Returns: OK, NOMEM. */
kb_status kb_attribute_set(kb_engine *engine, kb_rel rel, uint32_t attribute, const uint32_t *ids, const int64_t *values, size_t count);
/* Set the cells of the rows first .. first + count - 1 to one value. Returns: OK, NOMEM. */
kb_status kb_attribute_fill(kb_engine *engine, kb_rel rel, uint32_t attribute, uint32_t first, size_t count, int64_t value);
/* `out` receives 1 if a cell of this column was ever set, otherwise 0. Returns: OK. */
kb_status kb_attribute_used(const kb_engine *engine, kb_rel rel, uint32_t attribute, uint32_t *out);
/* Read the cells of `count` rows. Returns: OK. */
kb_status kb_attribute_get(const kb_engine *engine, kb_rel rel, uint32_t attribute, const uint32_t *ids, size_t count, int64_t *values);

/* --- salience --- The score of a row is clamp(recency * 2^(-age / half_life) + frequency * min(1,
 * ln(1 + KB_ACCESSES) / ln 100) + priority * KB_PRIORITY), times clamp(KB_CONFIDENCE) if that is
 * known. clamp limits to 0 .. 1. The age is now - KB_LAST_ACCESS, or now - KB_CREATED_AT if that is
 * 0, and at least 0. */
typedef struct kb_salience {
    double recency, frequency, priority;   /* weights: finite, 0 or more */
    double half_life;                 /* milliseconds: finite, above 0 */
    int64_t now;                      /* a time, milliseconds since 1970 */
} kb_salience;
/* The scores of `count` rows. Returns: OK; MISUSE for a parameter out of range, in all three
 * calls. */
kb_status kb_salience_scores(const kb_engine *engine, kb_rel rel, const kb_salience *formula, const uint32_t *ids, size_t count,
                             double *scores);
/* The visible rows with the highest scores, at most `room`, among those that match `pattern` (NULL:
 * all) and score `min_score` or more. Highest first; equal scores by later creation, then by lower
 * id. `ids` and `scores` have `room` items. Returns: OK. */
kb_status kb_salience_top(kb_engine *engine, kb_rel rel, const kb_salience *formula, const kb_sym *pattern, double min_score,
                          uint32_t *ids, double *scores, size_t room, size_t *filled);
/* Visible rows whose score is below `max_score`, in order of id; cursor, room and filled as in
 * kb_match. Returns: OK. */
kb_status kb_salience_below(const kb_engine *engine, kb_rel rel, const kb_salience *formula, double max_score, uint64_t *cursor,
                            uint32_t *ids, size_t room, size_t *filled);
/* Record an access to each row, as often as its id is in `ids`: KB_LAST_ACCESS rises to `now` if it
 * is lower, KB_ACCESSES rises by one up to 2^63-1. Returns: OK, NOMEM. */
kb_status kb_record_access(kb_engine *engine, kb_rel rel, const uint32_t *ids, size_t count, int64_t now);

/* --- text search (BM25) --- Facts are numbered from 0. The score of a fact is the sum, over the
 * query's words in their order, of weight * times * scale / (times + flat + slope * length), where
 * `times` is how often the fact has the word. All arrays are borrowed for the call; no engine is
 * involved. */
#define KB_LEXICAL_WORDS 64
typedef struct kb_posting {           /* the posting list of one word */
    const uint32_t *facts;            /* ascending; a fact is repeated for each time it has the
                                       * word */
    size_t count;
    double weight;                    /* 0 or more; the word with the highest weight should come
                                       * first */
} kb_posting;
typedef struct kb_lexical {
    const kb_posting *words;
    size_t word_count;                /* at most KB_LEXICAL_WORDS */
    double scale, flat, slope;        /* flat is above 0, the others 0 or more */
    const uint16_t *lengths;          /* by fact: its number of words */
    const uint8_t *visible;           /* by fact: 0 excludes it */
    const uint32_t *owners;           /* by fact: the number of its owner */
    size_t fact_count;
    const uint32_t *ranks;            /* by owner: order among equal scores; KB_NO_ROW excludes its
                                       * facts */
    size_t owner_count;
    uint32_t min_length, max_times;   /* bounds: no fact is shorter, or has a word more often */
    double min_score;                 /* 0 or more: facts with a lower score are not found */
} kb_lexical;
/* The facts with the highest scores among those that have one of the words, at most `room`. Highest
 * first; equal scores by rank, then by number. Returns: OK; MISUSE for a parameter out of range. */
kb_status kb_lexical_best(const kb_lexical *query, uint32_t *facts, double *scores, size_t room, size_t *filled);
/* For each word, the number of facts that have it and are not excluded. Returns: OK. */
kb_status kb_lexical_counts(const kb_lexical *query, uint64_t *counts);

/* --- vectors --- */
#define KB_VECTOR_DIMENSIONS 8192     /* numbers of a vector; keeps every sum within 32 bits */
#define KB_VECTOR_QUERY_MAX 2047      /* magnitude of a number of a query */
typedef struct kb_vectors {
    const int8_t *cells;              /* by place: `dimension` numbers of a vector */
    const float *factors;             /* by place: factor of the numbers of the vector */
    size_t place_count, dimension;
    const int16_t *query;             /* `dimension` numbers */
    double query_factor;              /* factor of the numbers of the query */
    double least;                     /* lower scores are left out */
} kb_vectors;
/* The vectors with the highest dot products with the query among those at `places`, at most `room`,
 * as indexes into `places`. Highest first; equal ones by index. KB_NO_ROW among the places is
 * skipped. Returns: OK; MISUSE for a parameter out of range. */
kb_status kb_vectors_best(const kb_vectors *search, const uint32_t *places, size_t count, uint32_t *found, double *scores,
                          size_t room, size_t *filled);
/* Signs of a vector: a bit for each number, 1 if it is above that of a centre, in whole words. The
 * angle between two vectors is about proportional to the number of signs that differ. */
#define KB_SIGN_WORDS 128             /* words for KB_VECTOR_DIMENSIONS */
/* Add `count` vectors to `sums`, which has `dimension` items. Returns: OK; MISUSE for a parameter
 * out of range. */
kb_status kb_vectors_sum(const int8_t *cells, const float *factors, size_t dimension, size_t count, double *sums);
/* Write the signs of `count` vectors. Returns: OK; MISUSE for a parameter out of range. */
kb_status kb_signs_of(const int8_t *cells, const float *factors, size_t dimension, size_t count, const double *centre,
                      uint64_t *signs);
/* For each place, the number of signs that differ from those of the query, and UINT16_MAX for
 * KB_NO_ROW. counts[n] rises by the number of places with n; it has 64 * words + 1 items. Returns:
 * OK; MISUSE for a parameter out of range. */
kb_status kb_signs_differing(const uint64_t *signs, size_t place_count, size_t words, const uint64_t *query,
                             const uint32_t *places, size_t count, uint16_t *differing, uint32_t *counts);
/* The indexes of the items of `differing` that are at most `most`, at most `room`, in order.
 * Returns: OK; MISUSE for a parameter out of range. */
kb_status kb_signs_within(const uint16_t *differing, size_t count, uint16_t most, uint32_t *found, size_t room,
                          size_t *filled);

/* --- answers as columns --- */
#define KB_MAX_CODES 0x7FFFFFFF
/* Number the distinct symbols among `count` cells, at most KB_MAX_CODES, which are `stride` symbols
 * apart. `distinct` receives them in order of first appearance, and codes[i] the number of cell i,
 * counted from 0. Both have `count` items. Returns: OK, NOMEM. */
kb_status kb_column_codes(kb_engine *engine, const kb_sym *cells, size_t stride, size_t count, uint32_t *codes,
                          kb_sym *distinct, size_t *distinct_count);
/* The offsets of the texts of `count` symbols, one after the other: `offsets` has count + 1 items,
 * and the last is the number of bytes. `filled` is less than `count` if the offsets of more texts
 * do not fit in 31 bits. Returns: OK. */
kb_status kb_text_offsets(const kb_engine *engine, const kb_sym *syms, size_t count, int32_t *offsets, size_t *filled);
/* Copy these texts into `bytes`, which has `room` bytes. Returns: OK; MISUSE if they do not fit. */
kb_status kb_texts(const kb_engine *engine, const kb_sym *syms, size_t count, char *bytes, size_t room);

/* --- answers as JSON --- */
enum { KB_JSON_HEAD, KB_JSON_CREATED, KB_JSON_FROM, KB_JSON_UNTIL, KB_JSON_TTL, KB_JSON_END, KB_JSON_PIECES };
/* Write the JSON objects of `count` rows, separated by commas, into `bytes`, which has `room`
 * bytes. `pieces` and `lengths` (KB_JSON_PIECES items) are the constant text between the values;
 * after the pieces CREATED to TTL follow the attributes of the row in the relation `stored` (0:
 * none), or null if the row does not exist there or is hidden. `done` receives the number of rows
 * that fitted and `written` their bytes. Returns: OK; MISUSE if `stored` has a KB_CONFIDENCE
 * column. */
kb_status kb_rows_json(const kb_engine *engine, kb_rel stored, const kb_sym *rows, uint32_t arity, size_t count,
                       const char *const *pieces, const size_t *lengths, char *bytes, size_t room, size_t *done, size_t *written);

/* --- plans: README.md in this folder describes the bytecode --- */

/* Verify bytecode and load it; free the plan with kb_plan_free. Returns: OK, NOMEM; BADPLAN, and
 * `bad_word` receives the position of the first word at fault. */
kb_status kb_plan_load(const kb_word *code, size_t words, kb_plan **out, size_t *bad_word);
void kb_plan_free(kb_plan *plan);     /* NULL is allowed */
/* The name (static) and operand count of an opcode, -1 if the count varies. Returns: OK; MISUSE
 * past the last opcode. */
kb_status kb_opcode(uint32_t number, const char **name, int32_t *operands);

/* --- runs --- */

/* Open a run. `base` has a relation for every BASE slot in slot order, `params` a symbol for every
 * parameter; `limits` may be NULL. The plan is borrowed until the last step of the run. The engine
 * may be closed before the run. Returns: OK, NOMEM; MISUSE if a relation has another arity than its
 * slot. */
kb_status kb_run_open(kb_engine *engine, const kb_plan *plan, const kb_rel *base, size_t base_count,
                      const kb_sym *params, size_t param_count, const kb_limits *limits, kb_run **out);
/* Add demand: `count` rows for the seed slot, all or none. Returns: OK, NOMEM; LIMIT if the byte
 * budget is spent; MISUSE if the run is paused, has failed, or its plan has no seed slot. */
kb_status kb_run_seed(kb_run *run, const kb_sym *rows, size_t count);
/* Work for about `fuel` steps. After DONE another step continues from new seeds and new base rows.
 * Returns: DONE, PAUSED (in a profiled run also at the end of a component); STALE as in
 * kb_run_check; NOMEM, LIMIT or CANCELLED, after which every step returns that error and the run
 * can only be closed. */
kb_status kb_run_step(kb_run *run, uint64_t fuel);
/* Returns: DONE if the run has worked off all seeds and no change of base relations affects it; OK
 * if a step would continue; STALE if the caller must open a new run; the error of a run that has
 * failed. */
kb_status kb_run_check(kb_run *run);
typedef struct kb_answer {
    uint64_t count;                   /* rows written; above `room`: there are more, read them by
                                       * kb_match */
    uint64_t bytes;                   /* as in kb_stats, like the next two */
    uint64_t warnings;
    uint64_t rows_made;
    uint32_t evaluated;               /* 0: the run was DONE before the call */
} kb_answer;
/* Answer a small goal in one call: add the demand row `seed` (NULL: none), set new budgets, work
 * for about `fuel` steps unless the run is DONE, and write the rows of the derived relation `slot`
 * that match `pattern` (as in kb_match) to `rows`, which has space for `room` (at least 1) rows, in
 * answer order. Returns: as kb_run_seed and kb_run_step; only DONE fills `out`. */
kb_status kb_run_ask(kb_run *run, const kb_sym *seed, const kb_limits *limits, uint64_t fuel, uint32_t slot,
                     const kb_sym *pattern, kb_sym *rows, size_t room, kb_answer *out);
/* The relation of a slot. A derived one belongs to the run: read it, but do not drop it. Returns:
 * OK, NOMEM. */
kb_status kb_run_relation(const kb_run *run, uint32_t slot, kb_rel *out);
void kb_run_stats(const kb_run *run, kb_stats *out);
/* Set new budgets, counted from now. Returns: OK. */
kb_status kb_run_limits(kb_run *run, const kb_limits *limits);
/* Profile a run from its first step on: counts are kept, and kb_run_step also returns PAUSED at the
 * end of each component. Returns: OK, NOMEM; MISUSE after the first step. */
kb_status kb_run_profile(kb_run *run);
typedef struct kb_rule_counts {       /* of one rule of the bytecode, over all rounds and passes */
    uint64_t rows_made, rows_read, probes;
    uint32_t rule, steps;             /* its id; its number of steps, where INTERSECT counts as
                                       * two */
} kb_rule_counts;
/* The counts of a profiled run, by rule in the order of the bytecode, and for every step of these
 * rules the rows or combinations that passed it (for EMIT: the new rows). Fills up to `rule_room`
 * rules and `step_room` steps; rule_count and step_count receive the numbers there are. Returns:
 * OK; MISUSE if the run is not profiled. */
kb_status kb_run_counts(const kb_run *run, kb_rule_counts *rules, size_t rule_room, uint64_t *steps, size_t step_room,
                        size_t *rule_count, size_t *step_count);
void kb_run_cancel(kb_run *run);      /* from any thread: the current or next step returns
                                       * KB_CANCELLED */
void kb_run_close(kb_run *run);       /* NULL is allowed */

/* --- ground programs --- `nodes` conclusions, numbered from 0, and `count` instances of rules.
 * Instance i concludes heads[i] from the nodes premises[ends[i-1] .. ends[i]). The first `free`
 * instances, among which there is no cycle, cost nothing. */
#define KB_NO_NODE 0xFFFFFFFFu
typedef struct kb_ground {
    uint32_t nodes, count, free, premise_count;
    const uint32_t *heads, *ends, *premises;
} kb_ground;
/* For each node: the height of its lowest proof (KB_NO_NODE: no proof), the first instance that
 * ends such a proof, and the number of instances that conclude it without using it as a premise.
 * Each array has `nodes` items. Returns: OK, NOMEM; MISUSE for a malformed program. */
kb_status kb_ground_shortest(kb_engine *engine, const kb_ground *ground, uint32_t *heights, uint32_t *chosen, uint32_t *counts);
/* For each node the maximum, over its proofs, of the minimum rank of the instances in a proof; 0
 * for a node without a proof. `ranks` has a rank from 1 to `count` per instance; rank 0 excludes an
 * instance.
 * Returns: OK, NOMEM; MISUSE for a malformed program or a rank out of range. */
kb_status kb_ground_widest(kb_engine *engine, const kb_ground *ground, const uint32_t *ranks, uint32_t *best);

/* The search for the instances of proofs, breadth first. `heights` and `chosen` are results of
 * kb_ground_shortest; the first `parts` instances belong to others and are only passed through.
 * `seen` has `count` zeros at first, `queue` has as many places, of which [start, end) are in
 * use. */
typedef struct kb_search {
    const uint32_t *heights, *chosen;
    uint8_t *seen;
    uint32_t *queue;
    uint32_t parts, start, end;
} kb_search;
/* The next instances of proofs, at most `limit`: `first`, unless it was picked before, those that
 * prove its premises, and those that earlier calls have left. None is picked twice, and none that
 * is free or concludes a node without steps. The caller may use the arrays only here.
 * Returns: OK; MISUSE for a malformed program, as far as it is read. */
kb_status kb_ground_pick(const kb_ground *ground, kb_search *search, uint32_t first, uint32_t limit, uint32_t *picked, uint32_t *count);

/* --- models: the well-founded model of a ground program --- Here a premise is a node, KB_NEGATED |
 * node for a negated one, or KB_NO_NODE for an empty place. */
#define KB_NEGATED 0x80000000u
typedef enum kb_truth { KB_UNDEFINED = 0, KB_TRUE = 1, KB_FALSE = 2 } kb_truth;

/* Open a computation. The arrays of `ground` are borrowed until the model is closed; they are
 * checked by the first steps. `limits` may be NULL. Returns: OK, NOMEM; LIMIT if the byte budget is
 * too low. */
kb_status kb_model_open(kb_engine *engine, const kb_ground *ground, const kb_limits *limits, kb_model **out);
/* Work for about `fuel` steps. Returns: DONE, PAUSED; LIMIT or CANCELLED, or MISUSE for a malformed
 * program, after which the model can only be closed. */
kb_status kb_model_step(kb_model *model, uint64_t fuel);
/* A kb_truth for each node. Returns: OK; MISUSE before the model is DONE. */
kb_status kb_model_values(const kb_model *model, uint8_t *out);
void kb_model_stats(const kb_model *model, kb_stats *out);
void kb_model_cancel(kb_model *model);   /* from any thread, as kb_run_cancel */
void kb_model_close(kb_model *model);    /* NULL is allowed */

/* cdef: end */
#endif
