/* internal.h - what the files of the engine share; not visible outside csrc.
 * Owns: the structs behind the handles and the small inline helpers of the hot paths. Never:
 * policy; each struct is changed only by the file named next to it. */
#ifndef KB_INTERNAL_H
#define KB_INTERNAL_H
#include "kbengine.h"
#include <stdatomic.h>
#include <string.h>

#if defined(__GNUC__)
#define KB_PREFETCH(p) __builtin_prefetch(p)
/* gcc removes calls of functions that only prefetch */
#define KB_ALWAYS_INLINE inline __attribute__((always_inline))
#define KB_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define KB_LOWEST_BIT(x) ((uint32_t)__builtin_ctzll(x))          /* of a word that is not 0 */
#else
#define KB_PREFETCH(p) ((void)(p))
#define KB_ALWAYS_INLINE inline
#define KB_UNLIKELY(x) (x)
static inline uint32_t KB_LOWEST_BIT(uint64_t word)
{
    uint32_t at = 0;

    for (; (word & 1) == 0; word >>= 1)
        at++;
    return at;
}
#endif

#define KB_NONE 0xFFFFFFFFu
#define KB_MAX_ARITY 64u
#define KB_MAX_SYMBOLS 0x7FFFFFFFu
#define KB_MAX_ROWS 0xFFFFFFFDu       /* so that id + 1 and the id past the last differ from
                                       * KB_NO_ROW */

/* memory.c: a heap counts the bytes it allocates, and so does its parent (that of a run: its
 * engine's). */
typedef struct kb_heap {
    struct kb_heap *parent;
    uint64_t used, max;               /* max 0: no budget */
    uint64_t fail_after;              /* fail the n-th allocation from now; 0: never */
    int refused;                      /* 1: the budget of this heap refused an allocation since it
                                       * was last cleared */
} kb_heap;

/* zeroed; NULL: out of memory */
void *kb_alloc(kb_heap *heap, size_t count, size_t size);
/* NULL: out of memory, block unchanged */
void *kb_resize(kb_heap *heap, void *block, size_t count, size_t size);
void kb_release(kb_heap *heap, void *block);
/* counts bytes allocated elsewhere; 0: over the budget */
int kb_heap_charge(kb_heap *heap, uint64_t size);
/* bytes a block was asked for */
size_t kb_capacity(const void *block);
/* bytes a block counts for; 0 for NULL */
uint64_t kb_block_bytes(const void *block);
/* next capacity of a growing array */
uint64_t kb_grow_capacity(uint64_t now, uint64_t need, uint64_t least);

/* equal.c: numbers and instants of which a value has several texts, by value */
typedef struct kb_equals {
    /* ordered by symbol; next: item + 1 */
    struct kb_odd { kb_sym symbol; uint32_t next; } *items;
    uint32_t *slots;                  /* by value: the newest item + 1 */
    uint32_t count, size, seen;       /* seen: symbols processed */
} kb_equals;

/* intern.c */
typedef struct kb_symbols {
    char *bytes;                      /* text of symbol 1, its number if it is one, text of symbol
                                       * 2, ... */
    uint64_t used;
    uint64_t *starts;                 /* by symbol; the entry past the last is `used`; kind in the
                                       * top bits */
    uint64_t *slots;                  /* open addressing: hash << 32 | symbol, 0: free */
    uint32_t count, mask;             /* mask 0: no table yet */
    uint64_t seed;
    const void *maker;                /* the run that made all symbols after `made_from`, which no
                                       * other code has seen yet */
    uint32_t made_from;
    kb_equals equals;
} kb_symbols;

#define KB_KIND_SHIFT 61
#define KB_START_MASK ((UINT64_C(1) << KB_KIND_SHIFT) - 1)

/* integer: of 64 bits; long: a longer whole number; decimal: with a fraction in plain digits;
 * power: with an exponent. An instant is a text that kb_value_get has read as a time. */
enum { KB_KIND_TEXT, KB_KIND_INTEGER, KB_KIND_DECIMAL, KB_KIND_POWER, KB_KIND_LONG, KB_KIND_INSTANT };

typedef struct kb_number {            /* number.c */
    uint32_t kind;
    int64_t integer;                  /* of an instant: nanoseconds */
    double real;                      /* the nearest double, which may be infinite for plain digits;
                                       * of an instant: seconds since 1970 */
} kb_number;

typedef struct kb_text { const char *bytes; size_t len; } kb_text;
/* a constant with its value */
typedef struct kb_arg { kb_text text; kb_number number; } kb_arg;

void kb_number_parse(const char *text, size_t len, kb_number *out);
/* Both are numbers. 0: equal, or different numbers with the same nearest double */
int kb_number_order(const kb_number *a, const kb_number *b);
/* exact, of two numbers or two instants */
int kb_value_order(const kb_arg *a, const kb_arg *b);
/* 1 if arithmetic and generators take the number as a whole number of 64 bits */
int kb_number_whole(const kb_arg *arg, int64_t *out);
/* instants.c; 0: the text is no instant */
int kb_instant_read(const kb_text *text, kb_number *out);
/* exact.c: also counts it */
void kb_sum_add(kb_sum *sum, const kb_number *number);
/* the double nearest to the sum, which is consumed */
double kb_sum_real(kb_sum *sum);
/* decimal.c: at most 20 bytes; returns their number */
size_t kb_integer_text(int64_t value, char *out);
#define KB_NUMBER_TEXT 32             /* longest number as text, in bytes */

/* digits.c: of a positive finite number, 0.digits * 10^point */
size_t kb_shortest_digits(double value, char *digits, int *point);
/* decimal.c: canonical text; returns its length */
size_t kb_number_text(const kb_number *number, char *out);
/* rounds half away from zero */
double kb_round_decimal(double value, uint32_t places);
/* Make a symbol for a text that a run has computed; a new one is charged to `heap`. */
kb_status kb_symbol_make(kb_engine *engine, const void *maker, kb_heap *heap, const char *text, size_t len, kb_sym *out);
/* makes the symbol visible: only its maker may still roll it back */
void kb_symbol_publish(kb_symbols *symbols, const void *maker, kb_sym sym);
/* 0: not interned */
kb_sym kb_symbol_find(const kb_symbols *symbols, const char *text, size_t len);
/* the run is over; `forget`: roll back the symbols that only it has seen */
void kb_symbols_end_run(kb_engine *engine, const void *maker, int forget);
int kb_begins_word(uint32_t point);   /* words.c */
int kb_is_in_word(uint32_t point);
uint32_t kb_lower(uint32_t point);    /* casing.c */
uint32_t kb_upper(uint32_t point);
void kb_symbols_free(kb_engine *engine);
void kb_symbol_get(const kb_symbols *symbols, kb_sym sym, const char **text, size_t *len, kb_number *number);
/* sort.c: the text and the value, which may be an instant */
void kb_value_get(const kb_symbols *symbols, kb_sym sym, kb_arg *out);
/* the order of two values of the same kind, then of their texts */
int kb_value_text_order(const kb_arg *a, const kb_arg *b);
int kb_symbol_order(const kb_symbols *symbols, kb_sym a, kb_sym b);    /* answer order */
/* COMPARE of the bytecode */
int kb_symbol_test(const kb_symbols *symbols, uint32_t op, kb_sym a, kb_sym b);

/* index.c: key -> ids of rows in ascending order. A list holds at least one id, which may be that
 * of a deleted row. */
typedef struct kb_entry {
    uint32_t key;                     /* the symbol, or the hash of a key of several columns */
    uint32_t at;                      /* place in the pool; the id itself while count is 1 */
    uint32_t count, dead;
} kb_entry;

typedef struct kb_lookup {
    struct kb_lookup *next;
    uint64_t mask;
    uint32_t *slots;                  /* entry + 1: by hash, or by symbol if `direct` */
    kb_entry *entries;
    uint32_t *pool;                   /* blocks of 2, 4, 8, ... ids */
    uint32_t size, direct, entry_count, max_key, pool_used, width;
    uint32_t free_blocks[32];         /* by log2 of the size; a free block holds place + 1 of the
                                       * next */
    uint8_t columns[KB_MAX_ARITY];
} kb_lookup;

/* best.c: what is kept of the rows that agree in all columns but the last; CLASSES: classes.c;
 * FIRST: of the rows that agree in their key, the one that came first */
enum { KB_BEST_NONE, KB_BEST_LEAST, KB_BEST_GREATEST, KB_BEST_CLASSES, KB_BEST_FIRST };

/* rows.c and relation.c */
enum { KB_LIVE = 0, KB_HIDDEN = 1, KB_DEAD = 2 };

typedef struct kb_block {             /* blocks.c: 64 neighbouring values of the last column */
    uint64_t key;                     /* first column << 32 | last column / 64; 0: free, since no
                                       * symbol is 0 */
    uint64_t bits;
} kb_block;

typedef struct kb_matrix {            /* matrix.c: words by first column and last column / 64 */
    uint64_t *words;
    uint32_t top, height, left, width;
    uint32_t filled;                  /* words that are not 0 */
} kb_matrix;

#define KB_ESTIMATES 4u
#define KB_CHANGES 64u                /* changed rows of a relation that are recorded */

typedef struct kb_estimate {          /* estimate.c: the last estimate for some columns; mask 0:
                                       * none */
    uint64_t mask, epoch, distinct;
    uint32_t rows;
} kb_estimate;

typedef struct kb_group_slot {        /* best.c: the live row of a group, and its last value */
    uint32_t row, tag;                /* row: id + 1, 0: free; tag: differs between most groups */
    double value;                     /* the nearest double */
} kb_group_slot;

typedef struct kb_member {            /* classes.c: a name, with the circle of the names of its
                                       * class */
    kb_sym name;
    uint32_t root, next, row;         /* members; the live row of the name */
    uint32_t size;                    /* of a root: the number of names of its class */
} kb_member;

typedef struct kb_relation {
    kb_heap *heap;
    kb_sym *cells;
    uint8_t *state;                   /* NULL while every row is live and visible */
    uint32_t *slots;                  /* the set: id + 1, 0: free; load at most 1/2 */
    kb_block *blocks;                 /* or this is the set, or the matrix; then `slots` finds only
                                       * the rows before `placed` */
    kb_matrix matrix;
    kb_lookup *indexes;
    int64_t *columns[KB_ATTRIBUTES];
    kb_estimate estimates[KB_ESTIMATES];
    uint64_t epoch, serial;
    kb_sym *changes;                  /* a ring of the last KB_CHANGES rows that were deleted,
                                       * hidden or shown */
    uint64_t changed, moved;          /* total of such rows; how often ids changed, or a change was
                                       * not recorded */
    uint32_t arity, rows, capacity, slot_mask, dead, hidden, pins;
    uint32_t key;                     /* leading columns that no two rows share: all of them, but
                                       * for FIRST */
    uint32_t block_mask, block_count, placed;
    uint32_t unwritten;               /* the last rows, which the matrix has and the cells do not
                                       * yet */
    uint32_t by_id;                   /* queried by id while it grows: no blocks */
    uint32_t owned;                   /* by a run: only the run changes it */
    uint32_t best;                    /* best.c: KB_BEST_*; of each group of rows only one is
                                       * live */
    struct kb_group_slot *groups;     /* best.c: the groups; load at most 1/2 */
    kb_member *members;               /* of a relation of classes, in order of appearance */
    uint32_t member_capacity;
    uint32_t group_mask, group_count, unindexed;   /* unindexed: dead rows that the indexes have
                                                    * not */
    struct kb_relation *snapshots;    /* the first snapshot that still copies from this relation */
    struct kb_snapshot *snapshot;     /* of a snapshot, which is never changed */
    kb_rel handle;
} kb_relation;

/* The cells of a row. */
static inline kb_sym *kb_row(const kb_relation *relation, uint32_t id)
{
    return relation->cells + (size_t)id * relation->arity;
}

typedef struct kb_snapshot {
    kb_relation *source, *next;       /* NULL once complete; the next snapshot of the same source */
    uint32_t unsaved, next_block;
    uint8_t saved[];                  /* by block of rows: 1 if copied */
} kb_snapshot;

static inline uint64_t kb_mix(uint64_t key)
{
    key *= UINT64_C(0x9E3779B97F4A7C15);
    key ^= key >> 32;
    key *= UINT64_C(0xD6E8FEB86659FD93);
    return key ^ key >> 29;
}

static inline uint64_t kb_hash_row(const kb_sym *row, uint32_t arity)
{
    uint64_t hash;

    if (arity == 2)
        return kb_mix((uint64_t)row[0] << 32 | row[1]);
    if (arity == 1)
        return kb_mix(row[0]);
    hash = arity;
    for (uint32_t i = 0; i < arity; i++)
        hash = kb_mix(hash ^ row[i]);
    return hash;
}

static inline int kb_same_row(const kb_sym *a, const kb_sym *b, uint32_t arity)
{
    if (arity == 2)
        return a[0] == b[0] && a[1] == b[1];
    for (uint32_t i = 0; i < arity; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

/* The block of a row of one or two columns. */
static inline uint64_t kb_block_key(const kb_sym *row, uint32_t arity)
{
    return arity == 2 ? (uint64_t)row[0] << 32 | row[1] >> 6 : UINT64_C(1) << 32 | row[0] >> 6;
}

static inline uint64_t kb_block_bit(const kb_sym *row, uint32_t arity)
{
    return UINT64_C(1) << (row[arity - 1] & 63);
}

/* Return the first slot to search for a block: four neighbouring blocks share a cache line. */
static inline uint32_t kb_block_home(uint64_t key)
{
    return (uint32_t)kb_mix(key >> 2) << 2 | (uint32_t)(key & 3);
}

/* Return the block, or the free slot where it would go. */
static inline kb_block *kb_block_seek(const kb_relation *relation, uint64_t key)
{
    uint32_t at = kb_block_home(key) & relation->block_mask;

    while (relation->blocks[at].key != key && relation->blocks[at].key != 0)
        at = (at + 1) & relation->block_mask;
    return relation->blocks + at;
}

/* Return the id of the row with the key of `row` that is live or hidden, or KB_NO_ROW. A relation
 * with blocks needs kb_relation_place first. */
static inline uint32_t kb_relation_find(const kb_relation *relation, const kb_sym *row, uint64_t hash)
{
    uint32_t at, slot;

    if (relation->slots == NULL)
        return KB_NO_ROW;
    for (at = (uint32_t)hash & relation->slot_mask; (slot = relation->slots[at]) != 0;
         at = (at + 1) & relation->slot_mask)
        if (kb_same_row(kb_row(relation, slot - 1), row, relation->key))
            return slot - 1;
    return KB_NO_ROW;
}

/* Return the id of a whole row, as kb_relation_find. */
static inline uint32_t kb_relation_locate(const kb_relation *relation, const kb_sym *row)
{
    uint32_t id = kb_relation_find(relation, row, kb_hash_row(row, relation->key));

    return id == KB_NO_ROW || relation->key == relation->arity || kb_same_row(kb_row(relation, id), row, relation->arity)
               ? id : KB_NO_ROW;
}

static inline int kb_is_bits(const kb_relation *relation)
{
    return relation->blocks != NULL || relation->matrix.words != NULL;
}

/* Return the word at a, b, or NULL if it is outside the rectangle. */
static inline uint64_t *kb_matrix_word(const kb_matrix *matrix, uint32_t a, uint32_t b)
{
    if (a - matrix->top >= matrix->height || b - matrix->left >= matrix->width)
        return NULL;
    return matrix->words + (size_t)(a - matrix->top) * matrix->width + (b - matrix->left);
}

/* Return 1 if the pair is in a set of bits. A relation of one column has 1 as its first value. */
static inline int kb_bits_have(const kb_relation *relation, kb_sym first, kb_sym last)
{
    const uint64_t *word;

    if (relation->blocks != NULL)
        return kb_block_seek(relation, (uint64_t)first << 32 | last >> 6)->bits >> (last & 63) & 1;
    word = kb_matrix_word(&relation->matrix, first, last >> 6);
    return word != NULL && (*word >> (last & 63) & 1);
}

/* Return 1 if the row is live or hidden. */
static inline int kb_relation_has(const kb_relation *relation, const kb_sym *row)
{
    if (!kb_is_bits(relation))
        return kb_relation_find(relation, row, kb_hash_row(row, relation->key)) != KB_NO_ROW;
    return kb_bits_have(relation, relation->key == 2 ? row[0] : 1, row[relation->key - 1]);
}

/* Prefetch what the next look-up of the row will read first, and return its hash. */
static KB_ALWAYS_INLINE uint64_t kb_relation_prefetch(const kb_relation *relation, const kb_sym *row)
{
    uint64_t key, hash;

    if (!kb_is_bits(relation)) {
        hash = kb_hash_row(row, relation->key);
        if (relation->slots != NULL)
            KB_PREFETCH(relation->slots + ((uint32_t)hash & relation->slot_mask));
        return hash;
    }
    key = kb_block_key(row, relation->key);
    if (relation->blocks != NULL)
        KB_PREFETCH(relation->blocks + (kb_block_home(key) & relation->block_mask));
    else
        KB_PREFETCH(kb_matrix_word(&relation->matrix, (uint32_t)(key >> 32), (uint32_t)key));
    return key;
}

static inline int kb_visible(const kb_relation *relation, uint32_t id)
{
    return relation->state == NULL || relation->state[id] == KB_LIVE;
}

void kb_relation_init(kb_relation *relation, kb_heap *heap, uint32_t arity);
void kb_relation_clear(kb_relation *relation);
/* before these rows change */
void kb_snapshots_save(kb_relation *source, uint32_t first, size_t count);
void kb_snapshots_end(kb_relation *relation);
/* afterwards `slots` finds every row */
kb_status kb_relation_place(kb_relation *relation);
/* afterwards the set has every row, in any representation */
kb_status kb_relation_ready(kb_relation *relation);
/* afterwards the cells have every row */
kb_status kb_relation_write(kb_relation *relation);
/* capacity for `more` rows */
kb_status kb_relation_reserve(kb_relation *relation, uint32_t more);
/* Return the rows start .. end sorted by a column and then by id, as value << 32 | id; NULL: out of
 * memory. */
uint64_t *kb_relation_sorted(const kb_relation *relation, kb_heap *heap, uint32_t column, uint32_t start, uint32_t end);
/* `id` receives the id of the row, new or old; KB_NO_ROW for an old row of a relation with
 * blocks. */
kb_status kb_relation_add(kb_relation *relation, const kb_sym *row, uint32_t *id, int *fresh);
/* a row that does not exist yet */
kb_status kb_relation_append(kb_relation *relation, const kb_sym *row);
/* rolls back the newest rows */
void kb_relation_truncate(kb_relation *relation, uint32_t rows);
/* removes it from the table of ids */
void kb_relation_unplace(kb_relation *relation, uint32_t id);
void kb_relation_compact(kb_relation *relation);

/* blocks.c and matrix.c */
/* from slots to bits, if they pay */
int kb_bits_try(kb_relation *relation);
/* capacity for the row; may change back to slots */
kb_status kb_bits_reserve(kb_relation *relation, const kb_sym *row);
/* back to slots, permanently */
kb_status kb_bits_forbid(kb_relation *relation);
/* its capacity is reserved */
void kb_bits_add(kb_relation *relation, const kb_sym *row);
void kb_bits_remove(kb_relation *relation, const kb_sym *row);
void kb_bits_free(kb_relation *relation);
void kb_blocks_free(kb_relation *relation);
kb_status kb_blocks_from_matrix(kb_relation *relation);
/* from blocks that are all inside the edges */
kb_status kb_matrix_make(kb_relation *relation, kb_matrix edges);
kb_status kb_matrix_reserve(kb_relation *relation, uint32_t a, uint32_t b);
void kb_matrix_free(kb_relation *relation);
/* 1 if a row has these values of two columns; 0: any value */
int kb_matrix_may_have(const kb_matrix *matrix, const kb_sym *values);

/* index.c */
/* an existing or new index */
kb_status kb_index_need(kb_relation *relation, uint64_t mask, kb_lookup **out);
kb_lookup *kb_index_have(const kb_relation *relation, uint64_t mask);
kb_status kb_index_add(kb_lookup *index, const kb_relation *relation, uint32_t id);
/* adds the rows from `first` on to every index */
kb_status kb_indexes_extend(kb_relation *relation, uint32_t first);
/* the newest id, if it has it */
void kb_index_undo(kb_lookup *index, const kb_relation *relation, uint32_t id);
void kb_index_died(kb_lookup *index, const kb_relation *relation, uint32_t id);
void kb_index_free_all(kb_relation *relation);
/* entry or KB_NONE */
uint32_t kb_index_find(const kb_lookup *index, const kb_relation *relation, const kb_sym *key);

static inline const uint32_t *kb_index_list(const kb_lookup *index, uint32_t entry)
{
    const kb_entry *e = index->entries + entry;

    return e->count == 1 ? &e->at : index->pool + e->at;
}

static inline uint32_t kb_index_seek(const kb_lookup *index, const kb_relation *relation, const kb_sym *key)
{
    if (index->direct)
        return key[0] < index->size ? index->slots[key[0]] - 1 : KB_NONE;   /* 0 - 1 is KB_NONE */
    return kb_index_find(index, relation, key);
}

/* Return the first place in an ascending list that holds `id` or more. */
static inline uint32_t kb_lower_bound(const uint32_t *list, uint32_t count, uint32_t id)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (list[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* match.c: kb_match for a relation without a handle */
kb_status kb_relation_match(const kb_engine *engine, kb_relation *relation, const kb_sym *pattern, uint32_t flags,
                            uint64_t *cursor, kb_sym *rows, uint32_t *ids, size_t room, size_t *filled);

/* estimate.c */
uint64_t kb_estimate_distinct(kb_relation *relation, uint64_t mask);   /* 0: unknown */

/* attributes.c */
int64_t kb_attribute_default(uint32_t attribute);
kb_status kb_attributes_grow(kb_relation *relation, uint32_t capacity);
int64_t kb_attribute_cell(const kb_relation *relation, uint32_t attribute, uint32_t id);
void kb_attributes_reset(kb_relation *relation, uint32_t first, uint32_t end);

/* engine.c */
struct kb_engine {
    kb_heap heap;
    kb_symbols symbols;
    kb_relation **handles;            /* by the low bits of a handle; place 0 is not used */
    uint64_t binding;                 /* number of handles ever assigned */
    uint32_t *free_handles;           /* a stack of places to reuse */
    uint32_t handle_count, free_count;
    uint64_t serial;                  /* of the newest relation; never reused */
    uint32_t open_runs;
    int closed;                       /* 1: the last run to close frees it */
    uint32_t threads;                 /* that evaluate a large recursion, at least 1 */
};

kb_relation *kb_engine_relation(const kb_engine *engine, kb_rel rel);  /* NULL: no such relation */
/* NULL: none, or one of a run, or a snapshot: the caller of the engine must not change it */
kb_relation *kb_engine_writable(const kb_engine *engine, kb_rel rel);
/* KB_MISUSE: none, or an incomplete snapshot. Its cells have every row. */
kb_status kb_engine_readable(const kb_engine *engine, kb_rel rel, kb_relation **out);
kb_status kb_engine_bind(kb_engine *engine, kb_relation *relation);    /* assigns a handle */
void kb_engine_unbind(kb_engine *engine, kb_relation *relation);
void kb_engine_release(kb_engine *engine);                             /* a run was closed */

/* Return 1 if each item is a symbol of the engine. */
static inline int kb_symbols_exist(const kb_engine *engine, const kb_sym *syms, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (syms[i] - 1 >= engine->symbols.count)   /* 0 - 1 is the largest number */
            return 0;
    return 1;
}

/* The first premise of an instance of a ground program. */
static inline uint32_t kb_first_premise(const uint32_t *ends, uint32_t instance)
{
    return instance == 0 ? 0 : ends[instance - 1];
}

#endif
