/* machine.h - what the files share that verify plans and run them: decode.c, plan.c, run.c, emit.c, fixpoint.c, session.c.
 * Owns: the structs of plans and runs. Never: policy; each struct is changed only by the file named next to the struct. */
#ifndef KB_MACHINE_H
#define KB_MACHINE_H
#include "internal.h"

/* decode.c and plan.c */
enum {
    KB_OP_END, KB_OP_COMPONENT, KB_OP_RULE, KB_OP_SCAN, KB_OP_PROBE, KB_OP_MEMBER, KB_OP_ABSENT, KB_OP_COMPARE,
    KB_OP_COPY, KB_OP_EMIT, KB_OP_CALL, KB_OP_AGGREGATE, KB_OP_TEST, KB_OP_MATCHES,
    KB_OP_EQUAL, KB_OP_INTERSECT, KB_OPCODES
};
enum {
    KB_FUNCTION_ADD, KB_FUNCTION_SUBTRACT, KB_FUNCTION_MULTIPLY, KB_FUNCTION_DIVIDE, KB_FUNCTION_DIV, KB_FUNCTION_MOD,
    KB_FUNCTION_ABS, KB_FUNCTION_MIN, KB_FUNCTION_MAX, KB_FUNCTION_ROUND,
    KB_FUNCTION_CONCAT, KB_FUNCTION_LOWER, KB_FUNCTION_UPPER, KB_FUNCTION_LENGTH, KB_FUNCTIONS
};
enum { KB_TEST_STARTS, KB_TEST_ENDS, KB_TEST_CONTAINS, KB_TESTS };
enum {
    KB_PATTERN_ACCEPT, KB_PATTERN_RANGES, KB_PATTERN_SPLIT, KB_PATTERN_JUMP, KB_PATTERN_BEGIN, KB_PATTERN_END
};
enum { KB_VIEW_FULL, KB_VIEW_DELTA, KB_VIEW_OLD, KB_VIEWS };
enum { KB_COLUMN_ANY, KB_COLUMN_LOAD, KB_COLUMN_KEY, KB_COLUMN_SAME };

enum { KB_FOLD_COUNT, KB_FOLD_SUM, KB_FOLD_MIN, KB_FOLD_MAX, KB_FOLD_AVG, KB_FOLDS };

#define KB_FIXED 0xFFu
#define KB_PATTERN_MOST 4096u         /* words of a program of MATCHES */

typedef struct kb_pair { uint16_t column, with; } kb_pair;   /* with: a register, or a column for SAME */

typedef struct kb_step {
    uint8_t op, view, compare, arity; /* compare: of COMPARE and TEST, the function of CALL, negated of MATCHES */
    uint8_t keys, loads, sames;       /* how many pairs of each, in this order from `pairs` on */
    uint8_t emits;                    /* an iterating step whose next step is EMIT */
    uint8_t sorts;                    /* SCAN: 1 + the column by which its rows had better come */
    uint8_t meets;                    /* INTERSECT: this is its first part, a PROBE; the next step, a MEMBER, is its second */
    uint8_t row_first, row_last;      /* EMIT of one or two columns: the column of that step's row it comes from, or KB_FIXED */
    uint32_t slot, mark, back;        /* mark: of (component, slot); back: iterating step before this, or KB_NONE */
    uint32_t pairs;
    uint32_t a, b;                    /* registers of COMPARE, COPY and TEST; MATCHES: register, program of `mark` words; a: of the value of CALL; AGGREGATE: how many folds,
                                       * and their pairs, two each: (function, column), (0, register) */
    uint32_t word;                    /* where its operands start in the bytecode */
    uint64_t mask;                    /* the KEY columns */
} kb_step;

typedef struct kb_rule {
    uint32_t id, first, count;
    uint32_t viewed, linear;          /* it has a step with a view; group.c: its number among the linear rules */
    uint32_t outer;                 /* 1 + the column of a head of two that its first loop, a SCAN, loads; 0: none */
    uint32_t scan, outer_from;        /* that SCAN, among the steps of the plan, and the column it comes from */
    uint32_t distinct;                /* its head has every value it loads: no head is made twice in one run of it */
} kb_rule;

typedef struct kb_component {
    uint32_t recursive, first_rule, rules, first_mark, marks;
    uint32_t linear, target;          /* group.c: how many of its rules are linear, each with its number; the slot they write */
    uint8_t carried;                  /* the column that their rules hand on unchanged; KB_FIXED: there is only one column */
    uint8_t live;                     /* one linear rule, of any shape: it may go on over what it makes itself */
} kb_component;
typedef struct kb_slot { uint32_t arity, derived, demand, sensitive, component; } kb_slot;   /* component: that emits to it */

struct kb_plan {
    kb_slot *slots;
    kb_component *components;
    kb_rule *rules;
    kb_step *steps;
    kb_pair *pairs;
    uint32_t *marks;                  /* the slot of each mark */
    kb_word *patterns;                /* programs of MATCHES */
    uint32_t slot_count, param_count, register_count, component_count, seed_slot, answer_slot;
    uint32_t rule_count, step_count, pair_count, mark_count, base_count;
    uint32_t pattern_words;
    uint32_t depth, width, folds;     /* deepest rule, widest head, most folds of a step */
};

kb_status kb_plan_decode(const kb_word *code, size_t words, kb_plan *plan, size_t *bad_word);   /* decode.c */

/* run.c and fixpoint.c */
#define KB_BATCH 64u                  /* heads gathered before they go into their relation together */

typedef struct kb_cursor {
    kb_lookup *index;
    uint32_t entry, at, end;
    uint32_t first, words;
    uint32_t marked, how;             /* meet.c: the entry whose list is marked, or KB_NONE; how the two lists meet */
    uint64_t *marks;                  /* by symbol */
    uint64_t *order;                  /* of a SCAN: value << 32 | id in the order of its rows, from `first`; NULL: by id */
} kb_cursor;

typedef struct kb_fold {              /* aggregate.c: one aggregate of the group at work */
    kb_sym best;
    kb_sum sum;
} kb_fold;

typedef struct kb_source {            /* a base relation as the run last saw it */
    kb_rel rel;
    uint32_t slot, rows;
    uint32_t tested;                  /* untouched.c: rows before it do not concern the run, or are worked in */
    uint64_t serial, epoch, changed, moved;
} kb_source;

#define KB_QUEUES 4u                  /* linear rules of a component, at most */

typedef struct kb_group {             /* group.c */
    uint64_t *seen;                   /* NULL: not at work */
    uint64_t *order;                  /* carried value << 32 | id of the first `rows` rows; NULL: one group */
    uint64_t retry;                   /* rows at which to try again */
    uint32_t words, rows, done;       /* rows below `done` have been worked on */
    uint32_t first, next, tail;       /* the group: places first .. next in the order, and all rows from `tail` on */
    uint32_t queues[KB_QUEUES];       /* by rule: the place it has come to */
    uint8_t open, inside;             /* inside: the rule's cursor stands in a list */
} kb_group;

typedef struct kb_profile {           /* profile.c */
    kb_rule_counts *rules;            /* by rule of the plan; NULL: not profiled */
    uint64_t *steps;                  /* by step of the plan: what went on from it */
    uint64_t rows_made, probes, used; /* how far the run had come when a rule was last charged */
    uint8_t at_end;                   /* a component has just come to its end */
} kb_profile;

struct kb_run {
    kb_engine *engine;
    const kb_plan *plan;
    kb_heap heap;
    kb_limits limits;
    kb_stats stats;
    uint64_t rows_from, steps_from;   /* where the budgets began */
    kb_relation **slots;
    kb_relation *derived;             /* those of the run itself */
    kb_source *sources;
    uint32_t *low, *high;             /* by mark: the views of this round */
    uint32_t *from;                   /* by mark: rows before it are worked in whole; not 0 for demand in a pass of new seeds only */
    kb_sym *registers;
    kb_cursor *cursors;
    kb_sym *heads;                    /* KB_BATCH rows on their way into `target` */
    uint64_t *hashes;
    kb_fold *folds;
    void *scratch;                    /* room for one text, or one match */
    kb_relation *target;
    uint32_t head_count, derived_count, source_count, cursor_count;
    kb_group group;
    int64_t left;                     /* steps until the next look at fuel, budgets and the cancel flag */
    int64_t chunk;                    /* what `left` began with; 0 between two chunks */
    kb_profile profile;
    uint32_t component, rule, depth;
    uint64_t *seen;                   /* emit.c: what the heads of the present outer value have in their other column */
    uint32_t seen_words, seen_from;   /* the first row of that value */
    uint8_t outer;                  /* as of the rule at work, where its heads come by that column; else 0 */
    uint8_t distinct;                 /* heads of the rule at work are new as they come */
    uint8_t entering;                 /* the step at `depth` starts, it does not go on */
    uint8_t folding;                  /* a group is open */
    uint8_t in_pass, in_round, in_rule, first_pass, started;
    uint8_t fresh;                    /* the first round of this component in this pass is not over */
    kb_status status;
    atomic_int cancelled;
};

/* profile.c: charges the rule at work with what was done since a rule was last charged. */
void kb_profile_charge(kb_run *run);
void kb_profile_end(kb_run *run);

/* Called before `run->rule` goes on to another rule. */
static inline void kb_charge(kb_run *run)
{
    if (KB_UNLIKELY(run->profile.rules != NULL))
        kb_profile_charge(run);
}

/* Counts rows or combinations that passed a step. */
static inline void kb_count_step(kb_run *run, const kb_step *step, uint64_t count)
{
    if (KB_UNLIKELY(run->profile.steps != NULL))
        run->profile.steps[step - run->plan->steps] += count;
}

/* The values of the KEY columns, in the order of the columns. */
static inline const kb_sym *kb_gather(const kb_run *run, const kb_step *step, kb_sym *key)
{
    const kb_pair *pairs = run->plan->pairs + step->pairs;

    key[0] = 0;
    for (uint32_t i = 0; i < step->keys; i++)
        key[i] = run->registers[pairs[i].with];
    return key;
}

/* Do the KEY columns of a SCAN and the SAME columns of either loop hold in this row? */
static inline int kb_row_fits(const kb_run *run, const kb_step *step, const kb_sym *row)
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
int kb_function_takes(uint32_t function, uint32_t count);   /* is this number of arguments allowed? */
kb_status kb_compute(kb_run *run, const kb_step *step, int *has_value);

kb_status kb_compute_text(kb_run *run, const kb_step *step, const kb_sym *args, int *has_value);   /* strings.c */

/* strings.c and pattern.c */
#define KB_TEXT_MOST 65536u           /* bytes; a longer text is no value */
#define KB_BYTES_A_STEP 64u           /* of text that are worked on for one step of fuel */
#define KB_NO_POINT 0x110000u         /* past the last character: a byte that starts none */

uint32_t kb_read_point(const char **at, const char *end);
void *kb_scratch(kb_run *run, size_t count, size_t size);                /* NULL: no room; what was there is gone */
int kb_text_test(kb_run *run, const kb_step *step);
uint32_t kb_pattern_check(const kb_word *program, uint32_t count);
kb_status kb_match_pattern(kb_run *run, const kb_step *step, int *goes_on);

/* aggregate.c: OK: the next group is in the registers; DONE: no group is left; PAUSED: `left` is used up */
kb_status kb_aggregate(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering);

/* equal.c: OK: the next text that is the same number is in the register; DONE: no text is left */
kb_status kb_equal(kb_run *run, const kb_step *step, kb_cursor *cursor, int entering);

/* emit.c */
kb_status kb_heads_flush(kb_run *run);
kb_status kb_emit_rows(kb_run *run, const kb_step *step, kb_cursor *cursor);   /* all rows of a loop before EMIT, or `left` */
void kb_heads_sorted(kb_run *run);    /* from now on the heads of the rule come by its outer column, into an empty relation */
void kb_heads_end(kb_run *run);
kb_status kb_emit_one(kb_run *run, const kb_step *step);

/* run.c */
int kb_step_holds(kb_run *run, const kb_step *step, const kb_cursor *cursor);      /* a test, or a SCAN without columns */

int kb_step_is_member(const kb_run *run, const kb_step *step);
int kb_step_is_absent(const kb_run *run, const kb_step *step, const kb_cursor *cursor);
int kb_row_is_member(const kb_run *run, const kb_step *step, const kb_sym *row);   /* in the view of the step */

/* meet.c */
enum { KB_MEET_MARKS, KB_MEET_LOOK, KB_MEET_SWAP };   /* walk the first list, test marks or look up; walk the second, look up */
kb_status kb_meet_start(kb_run *run, const kb_rule *rule);
void kb_meet_free(kb_run *run);
void kb_meet_order(kb_run *run, const kb_step *step, kb_cursor *cursor);           /* a SCAN before it begins */
void kb_meet_enter(kb_run *run, const kb_step *step, kb_cursor *cursor);
int kb_meet_next(kb_run *run, const kb_step *step, kb_cursor *cursor);             /* as next_row in run.c */

/* sift.c */
int kb_sifts(const kb_run *run, const kb_step *step);                               /* can it work this loop? */
kb_status kb_sift_rows(kb_run *run, const kb_step *step, kb_cursor *cursor);       /* all rows of the loop, or `left` */

/* linear.c, group.c, walk.c */
typedef struct kb_walk {              /* what the usual rule needs for each row of the queue, looked up once */
    uint32_t key, value;              /* columns: of the target that is looked up; of the inner rows that goes on */
    uint32_t cost;                    /* steps for a row, up to and with its look-up */
    uint32_t probes;                  /* how many of them are probes */
} kb_walk;

/* Which column of the relation tells the rows of a group apart? */
static inline uint32_t kb_own_column(const kb_component *component)
{
    return component->carried == 0;
}

/* The id of the row at a place of the queue: first come rows there were, in the order of groups, then new ones. */
static inline uint32_t kb_row_at(const kb_group *group, uint32_t place)
{
    return place < group->rows && group->order != NULL ? (uint32_t)group->order[place] : place;
}

int kb_walk_plan(kb_run *run, const kb_component *component, const kb_rule *rule, uint32_t place, kb_walk *walk);
uint32_t kb_walk_rows(kb_run *run, const kb_component *component, const kb_rule *rule, const kb_walk *walk, uint32_t place,
                      uint32_t end);
void kb_group_mark(kb_plan *plan, kb_component *component);
int kb_group_pays(const kb_run *run, const kb_component *component);
void kb_group_begin(kb_run *run, const kb_component *component);                  /* takes over the round, if that pays */
kb_status kb_group_work(kb_run *run, const kb_component *component);
void kb_group_end(kb_run *run);

/* fixpoint.c */
int kb_rule_has_views(const kb_run *run, const kb_rule *rule);                    /* 0: it has nothing to do */

kb_status kb_rule_start(kb_run *run, const kb_rule *rule);
kb_status kb_rule_work(kb_run *run, const kb_rule *rule);   /* DONE: exhausted; PAUSED: `left` is used up */
void kb_run_unpin(kb_run *run);

/* untouched.c: what has changed in a base relation since the run worked leaves what it has as it is; noted in `source`. */
int kb_run_untouched(kb_run *run, kb_source *source, const kb_relation *relation);
int kb_rows_untouched(kb_run *run, kb_source *source, const kb_relation *relation);   /* the same of new rows only */

#endif
