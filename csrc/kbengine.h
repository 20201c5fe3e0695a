/* kbengine.h - the public face of the engine.
 * Owns: symbols, relations, indexes, verified plans, runs. Never: strings of the caller, files, time.
 * Ownership: the caller that opened a handle closes it; pointers returned are borrowed until the next call
 *   that changes the same handle.
 * Threads: one call at a time per kb_engine and everything opened from it; different engines are
 *   independent. Only kb_run_cancel may be called while another call works.
 * Errors: every call that can fail returns a kb_status, negative on error; outputs are last and are
 *   written only on success. A call that changes the engine does all of its work or none of it. */
#ifndef KBENGINE_H
#define KBENGINE_H
#include <stddef.h>
#include <stdint.h>
#define KB_EPOCH INT64_MIN            /* a cell of KB_VALID_FROM: the epoch itself */

/* cdef: begin */

#define KB_ABI 2                      /* raised with every change of this interface; engine/binding.py has the same number */

typedef struct kb_engine kb_engine;   /* symbols and relations of one tenant */
typedef struct kb_plan kb_plan;       /* bytecode that passed the verifier; immutable */
typedef struct kb_model kb_model;     /* the well-founded model of a ground program, while it is worked out */
typedef struct kb_run kb_run;         /* one evaluation, kept open as a goal table while it is useful */

typedef uint32_t kb_sym;              /* interned bytes, 1 .. 2^31-1; 0 is no symbol */
typedef uint64_t kb_rel;              /* a relation of one engine, a number that never comes twice; 0 is none */
typedef uint32_t kb_word;             /* one word of bytecode */

typedef enum kb_status {
    KB_OK = 0,
    KB_DONE = 1,                      /* a run reached its fixpoint */
    KB_PAUSED = 2,                    /* a run used up its fuel, or is profiled and at the end of a component; step again */
    KB_STALE = 3,                     /* what a run read has changed in a way it cannot continue from */
    KB_NOMEM = -1,                    /* the machine or the byte budget of the engine has no more room */
    KB_LIMIT = -2,                    /* a budget of the run is spent; kb_run_stats says which */
    KB_MISUSE = -3,                   /* bad handle, arity or argument: a bug in the caller */
    KB_BADPLAN = -4,                  /* the verifier refused the bytecode */
    KB_BUSY = -5,                     /* any change, inserts too, of a relation that a paused run reads */
    KB_CANCELLED = -6                 /* kb_run_cancel was called */
} kb_status;

typedef enum kb_budget { KB_BUDGET_NONE = 0, KB_BUDGET_ROWS = 1, KB_BUDGET_BYTES = 2, KB_BUDGET_STEPS = 3 } kb_budget;

typedef struct kb_options {
    uint64_t max_bytes;               /* byte budget of the engine; 0 = none */
    uint64_t fail_after;              /* tests: make the n-th allocation fail, counted from 1; 0 = never */
} kb_options;

typedef struct kb_limits {            /* budgets of one run, over its whole life; 0 = none */
    uint64_t max_rows;                /* rows derived */
    uint64_t max_bytes;               /* bytes of the run's own relations */
    uint64_t max_steps;               /* rows visited and probes made */
} kb_limits;

typedef struct kb_stats {
    uint64_t rows_made;               /* new rows in derived relations */
    uint64_t rows_read;               /* rows visited */
    uint64_t probes;                  /* index and membership look-ups */
    uint64_t steps;                   /* fuel used */
    uint64_t bytes;                   /* of the run's own relations */
    uint64_t rounds;
    uint32_t budget;                  /* kb_budget that was spent, if the last step answered KB_LIMIT */
    uint32_t rule;                    /* rule id at work when the run last stopped; 0 after DONE */
    uint64_t warnings;                /* literals that failed because a function had no value */
    uint32_t component;               /* the one a run is at, counted from 0; after DONE, how many there are */
} kb_stats;

const char *kb_status_text(int status);

/* engine */
kb_status kb_engine_open(const kb_options *options, kb_engine **out);
void kb_engine_close(kb_engine *engine);
uint64_t kb_engine_bytes(const kb_engine *engine);
void kb_engine_fail_after(kb_engine *engine, uint64_t allocations);   /* tests only */

/* symbols: `ends[i]` is the offset in `bytes` just past string i, which starts where string i-1 ends */
kb_status kb_intern(kb_engine *engine, const char *bytes, size_t len, kb_sym *out);
kb_status kb_intern_many(kb_engine *engine, const char *bytes, const uint64_t *ends, size_t count, kb_sym *out);
kb_status kb_find(kb_engine *engine, const char *bytes, size_t len, kb_sym *out);   /* 0 when unknown */
kb_status kb_symbol(const kb_engine *engine, kb_sym sym, const char **bytes, size_t *len);
/* Texts of `count` symbols, one after the other; fills as many as fit `room` bytes, at least says how many. */
kb_status kb_symbols_text(const kb_engine *engine, const kb_sym *syms, size_t count, char *bytes, size_t room,
                          uint64_t *ends, size_t *filled);
uint32_t kb_symbol_count(const kb_engine *engine);
/* kind: 0 text, 1 integer that fits 64 bits (both values are set), 2 any other number (real is set) */
kb_status kb_symbol_number(const kb_engine *engine, kb_sym sym, uint32_t *kind, int64_t *integer, double *real);
/* Sorts `count` rows of `arity` symbols in place: numbers before text, numbers by value then text, text by bytes. */
kb_status kb_sort_rows(kb_engine *engine, kb_sym *rows, uint32_t arity, size_t count);

/* relations: sets of rows of `arity` symbols (0 .. 64), row-major. A row has an id, its place in the order
 * of insertion; ids change only when the epoch does. A hidden row keeps its place and its attributes but
 * no plan and no plain match sees it. */
#define KB_NO_ROW 0xFFFFFFFFu
#define KB_SAME 0x80000000u           /* in a pattern: KB_SAME | j = equal to column j, j before this one */
#define KB_MATCH_HIDDEN 1u            /* kb_match: hidden rows as well */

kb_status kb_relation_new(kb_engine *engine, uint32_t arity, kb_rel *out);
/* Gives everything back at once. KB_BUSY while a paused run reads it; other runs that read it become stale. */
kb_status kb_relation_drop(kb_engine *engine, kb_rel rel);
/* Rows in their order, hidden flags, attributes; no indexes. The ids are the copy's own: where many rows were deleted,
 * the others have moved together. */
kb_status kb_relation_copy(kb_engine *engine, kb_rel from, kb_rel *out);
/* Relations as they are now, each as one of its own with the ids of the original, the dead too; all or none. Nothing is copied
 * yet: rows are copied before they change and by kb_relation_settle. Until that says KB_DONE a frozen relation can only be settled
 * or dropped, afterwards also read; a change of it is always KB_MISUSE. What happens to the original does not matter. */
kb_status kb_relation_freeze(kb_engine *engine, const kb_rel *from, size_t count, kb_rel *out);
/* Copies about `rows` rows more; KB_DONE when the copy is complete. */
kb_status kb_relation_settle(kb_engine *engine, kb_rel rel, size_t rows);
kb_status kb_relation_bytes(const kb_engine *engine, kb_rel rel, uint64_t *out);   /* what it holds: rows, set, columns, indexes */
/* Adds rows that do not exist yet, all or none; ids (may be NULL) gets the id of every row, new or old:
 * a row is new exactly when its id is at or past the row count before the call. */
kb_status kb_insert(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, uint32_t *ids, size_t *added);
kb_status kb_delete(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, size_t *removed);
kb_status kb_hide(kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, int hidden, size_t *changed);
kb_status kb_locate(const kb_engine *engine, kb_rel rel, const kb_sym *rows, size_t count, uint32_t *ids);   /* KB_NO_ROW: not there */
/* rows: next row id; live: rows there; visible: live and not hidden; epoch: bumped by delete, hide, unhide */
kb_status kb_count(const kb_engine *engine, kb_rel rel, uint64_t *rows, uint64_t *live, uint64_t *visible, uint64_t *epoch);
/* Rows that match `pattern` (0 = anything), in order of id from *cursor (start with 0) on. Fills up to `room`
 * rows and ids (either may be NULL) and moves the cursor; filled < room, which is at least 1, means there are no more. */
kb_status kb_match(kb_engine *engine, kb_rel rel, const kb_sym *pattern, uint32_t flags, uint64_t *cursor,
                   kb_sym *rows, uint32_t *ids, size_t room, size_t *filled);

/* The rows with these ids, in their order; an id of no row that is there is KB_MISUSE. */
kb_status kb_rows_at(const kb_engine *engine, kb_rel rel, const uint32_t *ids, size_t count, kb_sym *rows);

/* sums: zeroed is that of nothing. No order of what is added changes them. */
#define KB_EXACT_WORDS 70
typedef struct kb_exact {             /* a number wide enough for every sum of doubles */
    int64_t words[KB_EXACT_WORDS];
    uint32_t waiting;
} kb_exact;
typedef struct kb_sum {
    uint64_t count;                   /* numbers added */
    uint64_t low;                     /* low and high: the sum of the integers, 128 bits */
    int64_t high;
    uint32_t reals, infinite;         /* was there a number that is no integer; one beyond the doubles */
    kb_exact exact;                   /* of the other reals: words[i] * 2^(32 i - 1074), added up */
} kb_sum;
typedef struct kb_total {             /* of one column of rows */
    uint64_t matched;                 /* rows */
    kb_sym least, greatest, other;    /* of the numbers in answer order; the first value that is none; 0: none */
    kb_sum sum;
} kb_total;
/* Adds up a column of the rows that kb_match would give, `most` of them at most, from *cursor on, which is moved past them;
 * DONE: there are no more. With KB_NO_ROW for the column rows are only counted. */
kb_status kb_total_add(kb_engine *engine, kb_rel rel, const kb_sym *pattern, uint32_t column, uint64_t *cursor, uint64_t most,
                       kb_total *total);

/* Two relations of equal arity, hidden rows included: the rows that only one of them has, and the pairs of equal rows
 * that differ in KB_VALID_FROM, KB_VALID_UNTIL, KB_TTL or KB_CONFIDENCE. The caller gives four arrays of `room` ids, at least
 * one, and a cursor that starts with 0; each call overwrites them and counts the pairs it found equal. `more`: one of them
 * was full, call again with this cursor. */
typedef struct kb_difference {
    uint32_t *only_here, *only_there, *modified_here, *modified_there;
    size_t room, only_here_count, only_there_count, modified_count;
    uint64_t equal;
    uint32_t more;
} kb_difference;
kb_status kb_relation_compare(const kb_engine *engine, kb_rel here, kb_rel there, uint64_t *cursor, kb_difference *out);

/* indexes: made when a plan or a match first needs one and kept current; these only warm one or ask */
kb_status kb_index(kb_engine *engine, kb_rel rel, uint64_t column_mask);
/* Distinct keys of these columns: counted by their index, else estimated from a sample; 0: no rows, or not known. */
kb_status kb_distinct(const kb_engine *engine, kb_rel rel, uint64_t column_mask, uint64_t *out);

/* attributes: 8-byte cells beside the rows; a column takes no room before its first value. A cell never
 * set reads as `kb_attribute_default`. Reals are passed as their bits. */
typedef enum kb_attribute {
    KB_CREATED_AT = 0,                /* integer, epoch milliseconds */
    KB_VALID_FROM = 1,                /* integer; default 0 = as created; KB_EPOCH = 0 itself */
    KB_VALID_UNTIL = 2,               /* integer, includes the ttl; default 2^63-1 = for ever */
    KB_TTL = 3,                       /* integer, as given; default 0 = none */
    KB_LAST_ACCESS = 4,               /* integer; default 0 = as created */
    KB_ACCESSES = 5,                  /* integer; default 1 */
    KB_PRIORITY = 6,                  /* real; default 0.5 */
    KB_CONFIDENCE = 7,                /* real; default NaN = unknown */
    KB_ATTRIBUTES = 8
} kb_attribute;
kb_status kb_attribute_set(kb_engine *engine, kb_rel rel, uint32_t attribute, const uint32_t *ids, const int64_t *values, size_t count);
kb_status kb_attribute_fill(kb_engine *engine, kb_rel rel, uint32_t attribute, uint32_t first, size_t count, int64_t value);
kb_status kb_attribute_used(const kb_engine *engine, kb_rel rel, uint32_t attribute, uint32_t *out);   /* 0: no cell was ever set */
kb_status kb_attribute_get(const kb_engine *engine, kb_rel rel, uint32_t attribute, const uint32_t *ids, size_t count, int64_t *values);

/* salience: clamp(recency * 2^(-age / half_life) + frequency * min(1, ln(1 + KB_ACCESSES) / ln 100) + priority * KB_PRIORITY),
 * times clamp(KB_CONFIDENCE) where that is known; clamp is to 0 .. 1. The age is that of KB_LAST_ACCESS, or KB_CREATED_AT where
 * that is 0, and never below 0. Weights are finite and not below 0, the half-life above 0; anything else is KB_MISUSE. */
typedef struct kb_salience {
    double recency, frequency, priority;   /* weights */
    double half_life;                 /* milliseconds */
    int64_t now;                      /* epoch milliseconds */
} kb_salience;
kb_status kb_salience_scores(const kb_engine *engine, kb_rel rel, const kb_salience *how, const uint32_t *ids, size_t count, double *scores);
/* The at most `room` visible rows with the highest score that is `least` or more, among those that match `pattern` (NULL: all):
 * highest first, of equal ones the one created last, then the one with the lower id. */
kb_status kb_salience_most(kb_engine *engine, kb_rel rel, const kb_salience *how, const kb_sym *pattern, double least,
                           uint32_t *ids, double *scores, size_t room, size_t *filled);
/* Visible rows whose score is below `below`, in order of id; cursor, room and filled as in kb_match. */
kb_status kb_salience_below(const kb_engine *engine, kb_rel rel, const kb_salience *how, double below, uint64_t *cursor,
                            uint32_t *ids, size_t room, size_t *filled);
/* An access: KB_LAST_ACCESS becomes `now` where it is lower, KB_ACCESSES one more up to 2^63-1, for each id as often as it is given. */
kb_status kb_touch(kb_engine *engine, kb_rel rel, const uint32_t *ids, size_t count, int64_t now);

/* lexical: which facts match the words of a text best (BM25). A fact has a place; its score is the sum, over the words in
 * their order, of weight * times * scale / (times + flat + slope * length). A list has the places of the facts that have a word,
 * ascending, one as often as it has it. Nothing is copied or kept; no engine is entered. */
#define KB_LEXICAL_WORDS 64
typedef struct kb_posting {           /* a word */
    const uint32_t *facts;
    size_t count;
    double weight;                    /* not below 0; the heaviest word should come first */
} kb_posting;
typedef struct kb_lexical {
    const kb_posting *words;
    size_t word_count;                /* at most KB_LEXICAL_WORDS */
    double scale, flat, slope;        /* flat is above 0, the others not below it */
    const uint16_t *lengths;          /* by place: words of the fact; whether it is to be found; whose it is */
    const uint8_t *shown;
    const uint32_t *owners;
    size_t fact_count;
    const uint32_t *ranks;            /* by owner: which facts come first of equal ones; KB_NO_ROW: they are not asked for */
    size_t owner_count;
    uint32_t shortest, most;          /* no fact is shorter, or has a word more often */
} kb_lexical;
/* The at most `room` facts that have one of the words with the highest score: highest first, of equal ones by rank, then by place. */
kb_status kb_lexical_best(const kb_lexical *how, uint32_t *facts, double *scores, size_t room, size_t *filled);
/* For each word how many facts that are shown and asked for have it. */
kb_status kb_lexical_having(const kb_lexical *how, uint64_t *counts);

/* answers as JSON: the objects of `count` rows, with commas between them. The caller gives what stands between the values,
 * in this order; after the pieces CREATED to TTL come the attributes of the row in `stored`, or null where it does not exist
 * or hidden (0: nowhere). A relation in which a confidence was ever set is refused. Fills as many rows as fit. */
enum { KB_JSON_HEAD, KB_JSON_CREATED, KB_JSON_FROM, KB_JSON_UNTIL, KB_JSON_TTL, KB_JSON_END, KB_JSON_PIECES };
kb_status kb_rows_json(const kb_engine *engine, kb_rel stored, const kb_sym *rows, uint32_t arity, size_t count,
                       const char *const *pieces, const size_t *lengths, char *bytes, size_t room, size_t *done, size_t *written);

/* plans: bytecode is described in README.md beside this file */
kb_status kb_plan_load(const kb_word *code, size_t words, kb_plan **out, size_t *bad_word);
void kb_plan_free(kb_plan *plan);
kb_status kb_opcode(uint32_t number, const char **name, int32_t *operands);   /* KB_MISUSE past the last; -1: length varies */

/* runs: `base` gives a relation for every BASE slot in slot order, `params` a symbol for every parameter.
 * The plan must outlive the last step of the run. A base relation that is dropped makes the run stale; the engine may
 * be closed first: its memory goes with its last run. */
kb_status kb_run_open(kb_engine *engine, const kb_plan *plan, const kb_rel *base, size_t base_count,
                      const kb_sym *params, size_t param_count, const kb_limits *limits, kb_run **out);
/* Adds demand: rows for the seed slot. Allowed at any time but between a PAUSED step and its next. */
kb_status kb_run_seed(kb_run *run, const kb_sym *rows, size_t count);
/* Works for about `fuel` steps: DONE, PAUSED, STALE as kb_run_check says it, or an error after which the run can
 * only be closed. After DONE a further step continues from new seeds and new base rows. */
kb_status kb_run_step(kb_run *run, uint64_t fuel);
/* DONE: nothing it read has changed and all seeds are worked in. OK: step to continue. STALE: close and open a new run. */
kb_status kb_run_check(kb_run *run);
typedef struct kb_answer {
    uint64_t count;                   /* rows written, in answer order; more than `room`: there are more, read them by kb_match */
    uint64_t bytes;                   /* of the run's own relations */
    uint64_t warnings;                /* as kb_stats has them */
    uint64_t rows_made;               /* likewise */
    uint32_t worked;                  /* 0: the run was DONE already, nothing had to be worked in */
} kb_answer;
/* A small goal in one call: adds the demand `seed` (NULL: none), sets new budgets, works for about `fuel` steps unless the
 * run is DONE, and writes the rows of `slot` that match `pattern` as kb_match says it. Only DONE fills `out`. */
kb_status kb_run_ask(kb_run *run, const kb_sym *seed, const kb_limits *limits, uint64_t fuel, uint32_t slot,
                     const kb_sym *pattern, kb_sym *rows, size_t room, kb_answer *out);
kb_status kb_run_relation(const kb_run *run, uint32_t slot, kb_rel *out);   /* the relation bound to a slot, owned by the run if derived */
void kb_run_stats(const kb_run *run, kb_stats *out);
kb_status kb_run_limits(kb_run *run, const kb_limits *limits);   /* new budgets, counted from now */
/* From here on, for the life of the run: counts are kept, and kb_run_step answers PAUSED at the end of a component too, so
 * that no step works in two of them. Allowed before the first step. */
kb_status kb_run_profile(kb_run *run);
typedef struct kb_rule_counts {       /* of one rule of the bytecode, all rounds and passes together */
    uint64_t rows_made, rows_read, probes;
    uint32_t rule, steps;             /* its id; how many steps it has, INTERSECT being two */
} kb_rule_counts;
/* What a run that is profiled has done by rule, in the order of the bytecode, and for every step of these rules, one after the other,
 * how many rows or combinations went on from it (of EMIT: how many rows it made). Fills as many as fit and says how many there are. */
kb_status kb_run_counts(const kb_run *run, kb_rule_counts *rules, size_t rule_room, uint64_t *steps, size_t step_room,
                        size_t *rule_count, size_t *step_count);
void kb_run_cancel(kb_run *run);      /* from any thread: the step at work answers KB_CANCELLED soon */
void kb_run_close(kb_run *run);

/* ground programs: `nodes` conclusions from 0, and `count` instances of rules. Instance i concludes heads[i] from the
 * nodes premises[ends[i-1] .. ends[i]); the first `free`, which do not go in circles, cost nothing. */
#define KB_NO_NODE 0xFFFFFFFFu
typedef struct kb_ground {
    uint32_t nodes, count, free, premise_count;
    const uint32_t *heads, *ends, *premises;
} kb_ground;
/* For each node the steps of its lowest proof (KB_NO_NODE: none), the first instance that ends such a proof, and how many
 * instances conclude it from others. */
kb_status kb_ground_shortest(kb_engine *engine, const kb_ground *ground, uint32_t *heights, uint32_t *chosen, uint32_t *counts);
/* For each node, over its proofs the greatest, in a proof the least rank of its instances; ranks go from 1 to at most
 * `count`, an instance of rank 0 is not used; 0 for a node without a proof. */
kb_status kb_ground_widest(kb_engine *engine, const kb_ground *ground, const uint32_t *ranks, uint32_t *best);

/* models: the well-founded model of a ground program. A premise is a node, or KB_NEGATED | node for one that must not hold, or
 * KB_NO_NODE for nothing. The arrays are borrowed until the model is closed; bad ones make kb_model_step answer KB_MISUSE. */
#define KB_NEGATED 0x80000000u
typedef enum kb_truth { KB_UNDEFINED = 0, KB_TRUE = 1, KB_FALSE = 2 } kb_truth;

kb_status kb_model_open(kb_engine *engine, const kb_ground *ground, const kb_limits *limits, kb_model **out);   /* KB_LIMIT: of bytes */
kb_status kb_model_step(kb_model *model, uint64_t fuel);   /* DONE, PAUSED, or an error after which it can only be closed */
kb_status kb_model_values(const kb_model *model, uint8_t *out);   /* a kb_truth for each node, once it is DONE */
void kb_model_stats(const kb_model *model, kb_stats *out);
void kb_model_cancel(kb_model *model);   /* as kb_run_cancel */
void kb_model_close(kb_model *model);

/* cdef: end */
#endif
