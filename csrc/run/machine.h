/* machine.h - what the files share that verify plans and run them.
 * Owns: the structs of plans and runs. Never: policy; each struct is changed only by the file named
 * next to it. */
#ifndef KB_MACHINE_H
#define KB_MACHINE_H
#include "internal.h"

/* decode.c and plan.c */
enum {
    KB_OP_END, KB_OP_COMPONENT, KB_OP_RULE, KB_OP_SCAN, KB_OP_PROBE, KB_OP_MEMBER, KB_OP_ABSENT, KB_OP_COMPARE,
    KB_OP_COPY, KB_OP_EMIT, KB_OP_CALL, KB_OP_AGGREGATE, KB_OP_TEST, KB_OP_MATCHES,
    KB_OP_EQUAL, KB_OP_INTERSECT, KB_OP_CAPTURE, KB_OP_GENERATE, KB_OPCODES
};
enum {
    KB_FUNCTION_ADD, KB_FUNCTION_SUBTRACT, KB_FUNCTION_MULTIPLY, KB_FUNCTION_DIVIDE, KB_FUNCTION_DIV, KB_FUNCTION_MOD,
    KB_FUNCTION_ABS, KB_FUNCTION_MIN, KB_FUNCTION_MAX, KB_FUNCTION_ROUND,
    KB_FUNCTION_CONCAT, KB_FUNCTION_LOWER, KB_FUNCTION_UPPER, KB_FUNCTION_LENGTH, KB_FUNCTION_QUOTED, KB_FUNCTION_TRIM,
    KB_FUNCTION_SUBSTRING, KB_FUNCTION_REPLACE, KB_FUNCTION_JOIN,
    KB_FUNCTION_CAPTURE,              /* never called: it is the opcode CAPTURE */
    KB_FUNCTION_BEFORE, KB_FUNCTION_AFTER, KB_FUNCTION_DAYS_BETWEEN, KB_FUNCTION_SECONDS_BETWEEN,
    KB_FUNCTION_ADD_DAYS, KB_FUNCTION_ADD_SECONDS, KB_FUNCTION_YEAR, KB_FUNCTION_MONTH, KB_FUNCTION_DAY,
    KB_FUNCTION_WEEKDAY,
    KB_FUNCTION_NOW,                  /* never called: it is a parameter */
    /* the relations of two intervals, of which one holds for any two, and INTERSECTS */
    KB_FUNCTION_PRECEDES, KB_FUNCTION_PRECEDED_BY, KB_FUNCTION_MEETS, KB_FUNCTION_MET_BY,
    KB_FUNCTION_OVERLAPS, KB_FUNCTION_OVERLAPPED_BY, KB_FUNCTION_STARTS, KB_FUNCTION_STARTED_BY,
    KB_FUNCTION_DURING, KB_FUNCTION_INCLUDES, KB_FUNCTION_FINISHES, KB_FUNCTION_FINISHED_BY,
    KB_FUNCTION_EQUALS_INTERVAL, KB_FUNCTION_INTERSECTS,
    KB_FUNCTION_JARO_WINKLER, KB_FUNCTION_TRIGRAM,
    /* these test what the generator of the same place yields; they stay the last ones */
    KB_FUNCTION_IS_MEMBER, KB_FUNCTION_IS_IN_RANGE, KB_FUNCTION_IS_PART,
    KB_FUNCTIONS
};
enum { KB_GENERATOR_MEMBER, KB_GENERATOR_RANGE, KB_GENERATOR_SPLIT, KB_GENERATORS };
enum { KB_TEST_STARTS, KB_TEST_ENDS, KB_TEST_CONTAINS, KB_TESTS };
enum {
    KB_PATTERN_ACCEPT, KB_PATTERN_RANGES, KB_PATTERN_SPLIT, KB_PATTERN_JUMP, KB_PATTERN_BEGIN, KB_PATTERN_END,
    KB_PATTERN_OPEN, KB_PATTERN_CLOSE
};
enum { KB_VIEW_FULL, KB_VIEW_DELTA, KB_VIEW_OLD, KB_VIEWS };
enum { KB_COLUMN_ANY, KB_COLUMN_LOAD, KB_COLUMN_KEY, KB_COLUMN_SAME };

enum { KB_FOLD_COUNT, KB_FOLD_SUM, KB_FOLD_MIN, KB_FOLD_MAX, KB_FOLD_AVG, KB_FOLD_FIRST, KB_FOLDS };

#define KB_FIXED 0xFFu
#define KB_MAX_CALL (KB_MAX_ARITY + 1u)  /* arguments of a function */
#define KB_MAX_PATTERN_WORDS 4096u    /* words of a program of MATCHES */

/* with: a register, or a column for SAME */
typedef struct kb_pair { uint16_t column, with; } kb_pair;

typedef struct kb_step {
    uint8_t op, view, compare, arity; /* compare: of COMPARE and TEST; function of CALL and
                                       * GENERATE; negated of
                                       * MATCHES */
    uint8_t keys, loads, sames;       /* number of pairs of each kind, in this order from `pairs`
                                       * on */
    uint8_t emits;                    /* an iterating step whose next step is EMIT */
    uint8_t relaxes;                  /* an iterating step before CALL and EMIT to a slot of best
                                       * rows */
    uint8_t sort_column;              /* SCAN: 1 + the column to sort its rows by; 0: none */
    uint8_t intersects;               /* INTERSECT: its first step, a PROBE; the next step, a
                                       * MEMBER, is its second */
    uint8_t row_first, row_last;      /* EMIT with a key of one or two columns: the column of the
                                       * preceding step's row from which it is copied, or KB_FIXED.
                                       * INTERSECT: row_first of its second step is the common
                                       * column */
    uint32_t slot, mark, back;        /* mark: of (component, slot); back: the iterating step before
                                       * this one, or KB_NONE */
    uint32_t pairs;
    uint32_t a, b;                    /* registers of COMPARE, COPY and TEST; MATCHES: register,
                                       * program of `mark` words; CAPTURE: the same, and its first
                                       * pair has the register of its value; CALL and GENERATE: a
                                       * receives the value; AGGREGATE: a folds whose pairs start at
                                       * b, two each: (function, column), (0, register) */
    uint32_t word;                    /* start of its operands in the bytecode */
    uint64_t mask;                    /* the KEY columns */
} kb_step;

typedef struct kb_rule {
    uint32_t id, first, count;
    uint32_t viewed, linear;          /* 1 if a step has a view; number among the linear rules of
                                       * the component, or 0 */
    uint32_t outer;                   /* 1 + the column of a head of two that its first loop, a
                                       * SCAN, loads; 0: none */
    uint32_t scan, outer_from;        /* that SCAN, among the steps of the plan; the column of its
                                       * row */
    uint32_t distinct;                /* 1: its head has every value it loads, so no head is made
                                       * twice in one run of it */
    uint32_t by_bits;                 /* 1: dense.c evaluates it by rows of bits */
} kb_rule;

typedef struct kb_component {
    uint32_t recursive, first_rule, rules, first_mark, marks;
    uint32_t linear, target;          /* linear.c: how many of its rules are linear; the slot they
                                       * write */
    uint8_t carried;                  /* the column that their rules carry over unchanged; KB_FIXED:
                                       * there is only one column */
    uint8_t dense;                    /* 1: dense.c can evaluate its rounds */
    uint8_t mixed;                    /* 1: some of its recursive rules are not evaluated by bits */
    uint8_t live;                     /* 1: one linear rule, of any form, which may continue over
                                       * the rows it makes itself */
    uint8_t best_first;               /* 1: linear rules that emit to a slot of best rows */
} kb_component;
/* component: the one that emits to it, from 1 */
/* bits: a relation of pairs that dense.c keeps as rows of bits */
/* best: KB_BEST_* */
/* key: as in kb_relation */
typedef struct kb_slot { uint32_t arity, derived, demand, sensitive, component, bits, best, key, outside; } kb_slot;

struct kb_plan {
    kb_slot *slots;
    kb_component *components;
    kb_rule *rules;
    kb_step *steps;
    kb_pair *pairs;
    uint32_t *marks;                  /* the slot of each mark */
    kb_word *patterns;                /* programs of MATCHES and CAPTURE */
    uint32_t slot_count, param_count, register_count, component_count, seed_slot, answer_slot;
    uint32_t rule_count, step_count, pair_count, mark_count, base_count;
    uint32_t pattern_words;
    uint32_t depth, width, folds;     /* steps of the longest rule, columns of the widest head, most
                                       * folds of a step */
};

/* plan.c */
/* 1 if a rule can make symbols, or read symbols that were made after it began: its heads can have
 * other symbols than its relations and the plan */
int kb_rule_has_new_symbols(const kb_plan *plan, const kb_rule *rule);
/* 1 if better rows replace others */
int kb_keeps_best(const kb_slot *slot);

/* decode.c */
kb_status kb_plan_decode(const kb_word *code, size_t words, kb_plan *plan, size_t *bad_word);

/* run.c and fixpoint.c */
#define KB_BATCH 64u                  /* heads gathered before they are inserted together */

typedef struct kb_cursor {
    kb_lookup *index;
    uint32_t entry, at, end;
    uint32_t first, words;
    uint32_t marked, strategy;        /* intersect.c: the entry whose list is marked, or KB_NONE;
                                       * KB_INTERSECT_* */
    int64_t value;                    /* generate.c: the next number of a range */
    uint64_t *marks;                  /* bitmap by symbol */
    uint64_t *order;                  /* of a SCAN: value << 32 | id in the order of its rows, from
                                       * `first`; NULL: by id */
} kb_cursor;

typedef struct kb_fold {              /* aggregate.c: one aggregate of the current group */
    kb_sym best, best_instant;
    uint64_t instants;                /* that MIN and MAX have read */
    kb_sum sum;
} kb_fold;

typedef struct kb_source {            /* a base relation as the run last saw it */
    kb_rel rel;
    uint32_t slot, rows;
    uint32_t tested;                  /* staleness.c: rows before it do not affect the run, or are
                                       * evaluated */
    uint64_t serial, epoch, changed, moved;
} kb_source;

#define KB_QUEUES 4u                  /* linear rules of a component, at most */

typedef struct kb_group {             /* group.c */
    uint64_t *seen;                   /* bitmap of the group; NULL: not active */
    uint64_t *order;                  /* carried value << 32 | id of the first `rows` rows; NULL:
                                       * one group */
    uint64_t retry;                   /* number of rows at which to try again */
    uint32_t words, rows, done;       /* rows below `done` have been evaluated */
    uint32_t first, next, tail;       /* the group: places first .. next in the order, and all rows
                                       * from `tail` on */
    uint32_t queues[KB_QUEUES];       /* by rule: its current place */
    uint8_t open, inside;             /* inside: the rule's cursor is within a list */
} kb_group;

typedef struct kb_dense kb_dense;     /* dense.c */

typedef struct kb_queued {            /* a row that has not been read; value: the least comes
                                       * first */
    double value;
    uint32_t id;
} kb_queued;

typedef struct kb_queue {             /* bestfirst.c */
    kb_queued *items;                 /* a heap, or from `next` on in the order in which they
                                       * came */
    uint32_t count, capacity, next;
    uint32_t mark, id, rule;          /* the row that was taken, and the rule that reads it */
    double last;                      /* value of that row */
    uint8_t active, is_fifo, is_least, is_open, is_inside;
} kb_queue;

typedef struct kb_profile {           /* profile.c */
    kb_rule_counts *rules;            /* by rule of the plan; NULL: not profiled */
    uint64_t *steps;                  /* by step of the plan: rows that passed it */
    uint64_t rows_made, probes, used; /* counters of the run when a rule was last charged */
    uint8_t at_end;                   /* a component has just ended */
} kb_profile;

struct kb_run {
    kb_engine *engine;
    const kb_plan *plan;
    kb_heap heap;
    kb_limits limits;
    kb_stats stats;
    uint64_t rows_from, steps_from;   /* counters at the start of the budgets */
    kb_relation **slots;
    kb_relation *derived;             /* the run's own relations */
    kb_source *sources;
    uint32_t *low, *high;             /* by mark: the views of this round */
    uint32_t *from;                   /* by mark: rows before it are fully evaluated; not 0 only for
                                       * demand, in a pass in which only seeds are new */
    kb_sym *registers;
    kb_cursor *cursors;
    kb_sym *heads;                    /* KB_BATCH rows not yet inserted into `target` */
    uint64_t *hashes;
    kb_fold *folds;
    void *scratch;                    /* memory for one text, or one match */
    kb_relation *target;
    uint32_t head_count, derived_count, source_count, cursor_count;
    kb_group group;
    kb_queue queue;
    kb_dense *dense;                  /* NULL: not active */
    uint64_t dense_retry;             /* number of new rows at which to try again */
    int64_t left;                     /* steps until the next check of fuel, budgets and the cancel
                                       * flag */
    int64_t chunk;                    /* the initial value of `left`; 0 between two chunks */
    kb_profile profile;
    uint32_t component, rule, depth;
    uint64_t *seen;                   /* emit.c: bitmap of the other column of heads with the
                                       * current outer value */
    uint32_t seen_words, seen_from;   /* the first row of that value */
    uint8_t outer;                    /* kb_rule.outer of the current rule if its heads come sorted
                                       * by that column; otherwise 0 */
    uint8_t distinct;                 /* heads of the current rule are all new */
    uint8_t entering;                 /* the step at `depth` starts; 0: it continues */
    uint8_t folding;                  /* a group is open */
    uint8_t in_pass, in_round, in_rule, first_pass, started;
    uint8_t fresh;                    /* the first round of this component in this pass is not
                                       * over */
    kb_status status;
    atomic_int cancelled;
};

/* profile.c: adds what was done since the last call to the counts of the current rule. */
void kb_profile_charge(kb_run *run);
void kb_profile_end(kb_run *run);

/* Return how many more rows the row budget allows. */
static inline uint64_t kb_rows_left(const kb_run *run)
{
    return run->limits.max_rows == 0 ? UINT64_MAX : run->limits.max_rows - (run->stats.rows_made - run->rows_from);
}

/* Return 1 if the step reads a relation through a view. */
static inline int kb_step_reads_view(const kb_step *step)
{
    return step->op == KB_OP_SCAN || step->op == KB_OP_PROBE || step->op == KB_OP_MEMBER || step->op == KB_OP_AGGREGATE;
}

/* Return 1 if the step reads a relation. */
static inline int kb_step_reads(const kb_step *step)
{
    return kb_step_reads_view(step) || step->op == KB_OP_ABSENT;
}

/* Called before `run->rule` changes to another rule. */
static inline void kb_charge(kb_run *run)
{
    if (KB_UNLIKELY(run->profile.rules != NULL))
        kb_profile_charge(run);
}

/* Count rows or combinations that passed a step. */
static inline void kb_count_step(kb_run *run, const kb_step *step, uint64_t count)
{
    if (KB_UNLIKELY(run->profile.steps != NULL))
        run->profile.steps[step - run->plan->steps] += count;
}

/* Gather the values of the KEY columns, in the order of the columns. */
static inline const kb_sym *kb_gather(const kb_run *run, const kb_step *step, kb_sym *key)
{
    const kb_pair *pairs = run->plan->pairs + step->pairs;

    key[0] = 0;
    for (uint32_t i = 0; i < step->keys; i++)
        key[i] = run->registers[pairs[i].with];
    return key;
}

/* Return the column from which a SCAN or PROBE loads a register, or KB_NONE. */
static inline uint32_t kb_loaded_column(const kb_run *run, const kb_step *step, uint32_t reg)
{
    const kb_pair *loads = run->plan->pairs + step->pairs + step->keys;

    for (uint32_t i = 0; i < step->loads; i++)
        if (loads[i].with == reg)
            return loads[i].column;
    return KB_NONE;
}

/* Return 1 if the KEY columns of a SCAN and the SAME columns of a SCAN or PROBE match the row. */
static inline int kb_row_matches(const kb_run *run, const kb_step *step, const kb_sym *row)
{
    const kb_pair *pairs = run->plan->pairs + step->pairs;

    if (step->op == KB_OP_SCAN)
        for (uint32_t i = 0; i < step->keys; i++)
            if (row[pairs[i].column] != run->registers[pairs[i].with])
                return 0;
    pairs += step->keys + step->loads;
    for (uint32_t i = 0; i < step->sames; i++)
        if (row[pairs[i].column] != row[pairs[i].with])
            return 0;
    return 1;
}

static inline int kb_has_checks(const kb_step *step)
{
    return step->sames != 0 || (step->op == KB_OP_SCAN && step->keys != 0);
}

/* compute.c */
/* 1 if the function takes this number of arguments */
int kb_function_takes(uint32_t function, uint32_t count);
/* The first (sign -1) or last of numbers, or of instants: of equal numbers a whole one, of equal
 * instants by text. NULL for other texts, and for both kinds together. */
const kb_arg *kb_extreme(int sign, const kb_arg *values, uint32_t count);
/* an operator of two numbers; 0 if it has no value, also where one of them is a text */
int kb_number_compute(uint32_t function, const kb_number *values, kb_number *out);
kb_status kb_compute(kb_run *run, const kb_step *step, int *has_value);
/* sets a register to a text that was computed, unless it is too long */
kb_status kb_make_text(kb_run *run, uint32_t reg, const kb_text *value, int *has_value);

/* strings.c and instants.c: functions of texts. They return OK with a value in `out`, DONE without
 * one. The value may be in the scratch memory of the run, a part of an argument, or constant. */
typedef struct kb_call { kb_run *run; const kb_arg *args; uint32_t count, function; } kb_call;
typedef kb_status kb_text_function(const kb_call *call, kb_text *out);

kb_text_function kb_text_concat, kb_text_lower, kb_text_upper, kb_text_length, kb_text_quoted, kb_text_trim, kb_text_substring,
    kb_text_replace, kb_text_join, kb_text_jaro_winkler, kb_text_trigram;
kb_text_function kb_value_extreme, kb_value_round;                     /* compute.c */
kb_text_function kb_time_order, kb_time_between, kb_time_add_days, kb_time_add_seconds, kb_time_part,
    kb_time_intervals;
kb_status kb_number_value(kb_run *run, const kb_number *number, kb_text *out);
const char *kb_find_part(const char *at, const char *end, const kb_text *part);

/* strings.c and pattern.c */
#define KB_MAX_TEXT_BYTES 65536u      /* a longer text has no value */
#define KB_BYTES_PER_STEP 64u         /* text processed for one step of fuel */
#define KB_NO_CHARACTER 0x110000u     /* past the last character: a byte that starts no character */

uint32_t kb_read_point(const char **at, const char *end);
/* NULL: out of memory; the previous contents are lost */
void *kb_scratch(kb_run *run, size_t count, size_t size);
int kb_text_test(kb_run *run, const kb_step *step);
uint32_t kb_pattern_check(const kb_word *program, uint32_t count);
kb_status kb_match_pattern(kb_run *run, const kb_step *step, int *goes_on);
kb_status kb_capture(kb_run *run, const kb_step *step, int *has_value);

/* aggregate.c: OK: the next group is in the registers; DONE: no group is left; PAUSED: `left` is
 * used up */
kb_status kb_aggregate(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering);

/* equal.c: OK: the next text that is the same number is in the register; DONE: no text is left */
kb_status kb_equal(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering);

/* generate.c: OK: the next value is in the register; DONE: no value is left; PAUSED: `left` is used
 * up */
kb_status kb_generate(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering);
/* 1 if the generator takes this number of arguments */
int kb_generator_takes(uint32_t generator, uint32_t count);
kb_text_function kb_test_member, kb_test_range, kb_test_part;

/* emit.c */
kb_status kb_heads_flush(kb_run *run);
/* all rows of a loop before EMIT, or until `left` is used up */
kb_status kb_emit_rows(kb_run *run, const kb_step *step, kb_cursor *cursor);
void kb_heads_sorted(kb_run *run);    /* from now on the heads come sorted by the outer column, into
                                       * an empty relation */
void kb_heads_end(kb_run *run);
kb_status kb_emit_one(kb_run *run, const kb_step *step);

/* best.c */
/* add rows of a relation with one live row for each group: a better row replaces that of its
 * group */
kb_status kb_best_add(kb_run *run, kb_sym *rows, uint32_t count);
/* all rows of a loop before CALL and EMIT to such a relation, or until `left` is used up */
kb_status kb_best_rows(kb_run *run, const kb_step *step, kb_cursor *cursor);
double kb_best_value(const kb_run *run, const kb_relation *relation, uint32_t id);
/* between two rounds: drop the indexes of a relation that list too many replaced rows */
void kb_best_end_round(kb_relation *relation);

kb_status kb_groups_grow(kb_relation *relation);
/* of groups of one column: the slot of a value, or the free slot where it would go */
kb_group_slot *kb_group_find(const kb_relation *relation, kb_sym value);
kb_status kb_best_append(kb_relation *relation, const kb_sym *row);
kb_status kb_best_bury(kb_relation *relation, uint32_t id);

/* classes.c */
/* unite the classes of the names of each pair */
kb_status kb_classes_add(kb_run *run, const kb_sym *pairs, uint32_t count);

/* bestfirst.c */
/* takes over the round if the component allows it */
kb_status kb_queue_begin(kb_run *run, const kb_component *component);
kb_status kb_queue_run(kb_run *run, const kb_component *component);
kb_status kb_queue_add(kb_run *run, uint32_t id, double value);
int kb_queue_has_views(const kb_run *run, const kb_rule *rule);
void kb_queue_end(kb_run *run);

/* run.c */
/* a test, or a SCAN without columns */
int kb_step_holds(kb_run *run, const kb_step *step, const kb_cursor *cursor);

int kb_step_is_member(const kb_run *run, const kb_step *step);
int kb_step_is_absent(const kb_run *run, const kb_step *step, const kb_cursor *cursor);
/* in the view of the step */
int kb_row_is_member(const kb_run *run, const kb_step *step, const kb_sym *row);

/* intersect.c */
/* iterate the first list and test the bitmap; iterate it and look up; iterate the second and look
 * up */
enum { KB_INTERSECT_MARKS, KB_INTERSECT_LOOKUP, KB_INTERSECT_SWAP };
kb_status kb_intersect_start(kb_run *run, const kb_rule *rule);
void kb_intersect_free(kb_run *run);
/* before a SCAN begins */
void kb_scan_order(kb_run *run, const kb_step *step, kb_cursor *cursor);
void kb_intersect_enter(kb_run *run, const kb_step *step, kb_cursor *cursor);
/* as next_row in run.c */
int kb_intersect_next(kb_run *run, const kb_step *step, kb_cursor *cursor);

/* filter.c */
/* 1 if it can run this loop */
int kb_filter_applies(const kb_run *run, const kb_step *step);
/* all rows of the loop, or until `left` is used up */
kb_status kb_filter_rows(kb_run *run, const kb_step *step, kb_cursor *cursor);

/* linear.c, group.c, frontier.c */
typedef struct kb_frontier {          /* what the frontier loop needs for each row of the queue,
                                       * computed once */
    uint32_t key, value;              /* columns: of the target, to look up; of the inner rows, to
                                       * emit */
    uint32_t cost;                    /* steps for a row, up to and including its look-up */
    uint32_t probes;                  /* how many of them are probes */
} kb_frontier;

/* Return the column that differs between the rows of a group. */
static inline uint32_t kb_varying_column(const kb_component *component)
{
    return component->carried == 0;
}

/* Return the id of the row at a place of the queue: initial rows, in the order of groups, then new
 * ones. */
static inline uint32_t kb_row_at(const kb_group *group, uint32_t place)
{
    return place < group->rows && group->order != NULL ? (uint32_t)group->order[place] : place;
}

int kb_frontier_plan(kb_run *run, const kb_component *component, const kb_rule *rule, uint32_t place, kb_frontier *loop);
uint32_t kb_frontier_rows(kb_run *run, const kb_component *component, const kb_rule *rule, const kb_frontier *loop, uint32_t place,
                      uint32_t end);
void kb_mark_linear(kb_plan *plan, kb_component *component);
int kb_group_pays(const kb_run *run, const kb_component *component);
/* takes over the round if that pays */
void kb_group_begin(kb_run *run, const kb_component *component);
kb_status kb_group_run(kb_run *run, const kb_component *component);
void kb_group_end(kb_run *run);

/* dense.c */
void kb_mark_dense(kb_plan *plan, kb_component *component);
/* takes over the rounds of the component if that pays */
void kb_dense_begin(kb_run *run, const kb_component *component);
kb_status kb_dense_run(kb_run *run, const kb_component *component);
void kb_dense_end(kb_run *run);

/* fixpoint.c */
/* 0: it has nothing to do */
int kb_rule_has_views(const kb_run *run, const kb_rule *rule);
/* one rule of a round, from where it was paused; DONE: evaluated, or nothing to do */
kb_status kb_rule_evaluate(kb_run *run, const kb_rule *rule);

/* prepares the relation that the step reads, if any */
kb_status kb_step_start(kb_run *run, const kb_step *step, kb_cursor *cursor);
kb_status kb_rule_start(kb_run *run, const kb_rule *rule);
/* DONE: exhausted; PAUSED: `left` is used up */
kb_status kb_rule_work(kb_run *run, const kb_rule *rule);
void kb_run_unpin(kb_run *run);
kb_status kb_run_no_memory(kb_run *run);                   /* KB_LIMIT if the run's own budget is
                                                            * spent, else KB_NOMEM */

/* staleness.c: 1 if no change of a base relation since the last pass affects the run; recorded in
 * `source`. */
int kb_run_is_unaffected(kb_run *run, kb_source *source, const kb_relation *relation);
/* the same for new rows only */
int kb_rows_are_unaffected(kb_run *run, kb_source *source, const kb_relation *relation);

#endif
