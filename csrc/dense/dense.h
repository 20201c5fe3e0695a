/* dense.h - what the files share that evaluate recursion by whole rows of bits.
 * Owns: the structs. Never: policy; dense.c decides what is evaluated and when. */
#ifndef KB_DENSE_H
#define KB_DENSE_H
#include "run/cursor.h"
#include "dense/team.h"

#define KB_DENSE_RELATIONS 64u
#define KB_WORDS_PER_STEP 8u          /* words processed for one step of fuel */
#define KB_PROBED 2u                  /* number of the value that a rule's probe loads */
#define KB_RULE_VALUES 3u             /* of a rule that can be tested */
#define KB_BOTH 3u                    /* both columns of the scanned row, tested together */

/* A rule: rows of `from` that are new, joined by their column `join` with `with`. The other column
 * of `from` is column `keep` of the head. Without a join the columns are copied, or exchanged if
 * keep is 0 and join 0. */
typedef struct kb_pair_rule {
    uint32_t from, head, join, keep;
    uint32_t with, key;               /* KB_NONE: no join; the column of `with` that is looked up */
    const kb_step *probe;
    uint32_t tests_pairs;             /* without a join: 1 if a guard tests both columns together */
} kb_pair_rule;

/* The rectangles of a relation by orientation: 0 as it is, 1 with the columns exchanged. */
typedef struct kb_rectangles {
    kb_relation *relation;
    uint32_t slot, primary;           /* primary: the orientation in which new bits are found */
    uint8_t used[2];
    uint8_t shared;                   /* rules of another form read or write it: full[0] is its set,
                                       * and all its rows have cells */
    uint32_t written;                 /* shared: its rows at the start of the round */
    uint64_t *full[2], *fresh[2], *next[2];
    uint32_t *ranges[2];              /* of a row of `fresh`: first word << 16 | end, 0: empty */
    uint64_t bits, fresh_bits;
} kb_rectangles;

/* What one thread of a team uses by itself. */
typedef struct kb_dense_worker {
    uint64_t *passed;                 /* the words of a row that pass the guards */
    uint64_t *joined, *missing;       /* the words that are joined to a head row; those it can still
                                       * receive */
    uint64_t steps, probes, bits;     /* of the current job */
} kb_dense_worker;

struct kb_dense {
    kb_rectangles relations[KB_DENSE_RELATIONS];
    uint32_t count, first, size, words;   /* first: the symbol of bit 0, a multiple of 64 */
    uint32_t row;                     /* of the current rule: the next row of `fresh` */
    uint64_t *masks[KB_RULE_VALUES];          /* by value of a rule: those that pass the guards */
    uint32_t batch;                   /* rows that a team works on together */
    uint64_t *rows;                   /* the memory of the rows below and of the workers */
    uint64_t *reachable;              /* bits that the current rule can add to a head row */
    kb_dense_worker *workers;         /* by number of a part of the work */
    uint32_t worker_count;
    uint8_t is_masked[KB_RULE_VALUES];
    uint8_t in_rule, by_pairs;        /* by_pairs: one OR for each new pair, not for each pair of
                                       * `with` */
};


static inline uint64_t *kb_bit_row(const kb_dense *dense, uint64_t *words, uint32_t row)
{
    return words + (size_t)row * dense->words;
}

static inline uint32_t kb_count_bits(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    return (uint32_t)(word * UINT64_C(0x0101010101010101) >> 56);
}

/* pairwise.c */
/* 1 if the step tests one value of a rule, in `value`: 0 and 1 are the columns of the scanned row,
 * KB_PROBED is the value that the probe loads, KB_BOTH the two columns together, KB_FIXED none of
 * them */
int kb_is_guard(const kb_plan *plan, const kb_step *scan, const kb_step *probe, const kb_step *step, uint32_t *value);
/* 0 if the rule has another form */
int kb_pair_rule_read(const kb_plan *plan, const kb_rule *rule, kb_pair_rule *out);
int kb_emits_to(const kb_plan *plan, const kb_component *component, uint32_t slot);
/* 1 if the rule reads rows that a round of its component has made */
int kb_reads_new_rows(const kb_plan *plan, const kb_component *component, const kb_rule *rule);
/* 1 if the step tests both columns of the row that the rule scans in a relation of the component */
int kb_is_row_guard(const kb_plan *plan, const kb_rule *rule, const kb_step *step);

/* mixed.c */
kb_rectangles *kb_rectangles_of(kb_dense *dense, uint32_t slot);   /* NULL: the relation has none */
/* note the relations that rules of another form read or write */
void kb_mixed_mark(const kb_run *run, const kb_component *component, kb_dense *dense);
/* widen the range of symbols to those that rules of another form can write; 0: out of memory */
int kb_mixed_widen(kb_run *run, const kb_component *component, uint32_t *low, uint32_t *high);
/* make the rectangle the set of a shared relation */
void kb_mixed_share(const kb_dense *dense, kb_rectangles *each);
/* before the search for new bits: the rows that rules have added become bits of `next` */
void kb_mixed_take_heads(const kb_dense *dense, kb_rectangles *each);
/* after it: write the cells of the other new bits, and set the number of all rows */
kb_status kb_mixed_write(const kb_dense *dense, kb_rectangles *each);
/* set the views of the next round; 1 if a relation without rectangles has new rows */
int kb_mixed_end_round(kb_run *run, const kb_component *component);
void kb_widen(const kb_relation *relation, uint32_t first, uint32_t end, uint32_t *low, uint32_t *high);

/* bitjoin.c */
typedef struct kb_bit_join {          /* a rule applied to some new rows of its relation */
    kb_run *run;
    const kb_pair_rule *rule;
    const kb_cursor *cursor;          /* of its probe, if that reads no relation of the component */
    const kb_rectangles *from, *head, *with;   /* with: NULL for any other relation */
    uint32_t row, end;
    atomic_uint next;                 /* the next row that no thread has taken */
} kb_bit_join;

uint64_t kb_bit_join_rows(kb_bit_join *join, kb_team *team);   /* returns the steps it took */

/* rectangles.c */
/* add the bits of a rectangle, with its columns exchanged, to another one */
void kb_add_exchanged(kb_dense *dense, kb_team *team, const uint64_t *from, uint64_t *to);
/* find the bits of `next` that are new: they become `fresh` and part of `full` */
void kb_find_new_bits(kb_dense *dense, kb_team *team, kb_rectangles *each);
/* set the bits of some rows */
void kb_add_cells(const kb_dense *dense, const kb_relation *relation, uint32_t id, uint32_t end, uint32_t side, uint64_t *words);

#endif
