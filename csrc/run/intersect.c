/* intersect.c - INTERSECT: the values that two index lists have in common (generic join).
 * Owns: the choice of the list to iterate, and a bitmap of the other. Never: advances other steps.
 *
 * Where a body closes a cycle, `e(x, y), e(y, z), e(z, x)`, iterating all z of y and looking up
 * each would cost the length of the list of y, however short the list of x is. With x and y bound,
 * each tuple takes the cheapest of three strategies: iterate the list of y and test each z in the
 * bitmap of x's list; iterate it and look up the rows; iterate the list of x and look up the rows
 * of y. The bitmap stays while x does, so the rows of a SCAN that loads x are sorted by it. Over a
 * whole join the cost is within a factor of the sum of the shorter lists: worst-case optimal (Ngo,
 * Porat, Re, Rudra 2012; Veldhuizen 2014). */
#include "run/cursor.h"

#define LOOKUP_COST 8u                /* cost of looking up a row, in rows iterated */
#define MIN_SORTED_HEADS 16u          /* rows of a SCAN from which sorting pays if it saves the
                                       * look-up of each head */
#define MIN_SORTED_ROWS 256u          /* rows of a SCAN from which sorting pays otherwise */

static void unmark(kb_run *run, const kb_step *other, kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[other->slot];
    const uint32_t *list;

    if (cursor->marked == KB_NONE)
        return;
    list = kb_index_list(cursor->index, cursor->marked);
    for (uint32_t i = 0; i < cursor->index->entries[cursor->marked].count; i++)
        cursor->marks[relation->cells[(size_t)list[i] * other->arity + other->row_first] >> 6] = 0;
    cursor->marked = KB_NONE;
}

/* Return 0 if there is no memory for the bitmap. */
static int mark(kb_run *run, const kb_step *other, kb_cursor *cursor)
{
    const kb_relation *relation = run->slots[other->slot];
    const uint32_t *list;

    if (cursor->marks == NULL) {
        cursor->words = run->engine->symbols.count / 64 + 1;
        if ((cursor->marks = kb_alloc(&run->heap, cursor->words, sizeof *cursor->marks)) == NULL)
            return 0;
    }
    unmark(run, other, cursor);
    list = kb_index_list(cursor->index, cursor->entry);
    for (uint32_t at = cursor->at; at < cursor->end; at++) {
        kb_sym value = relation->cells[(size_t)list[at] * other->arity + other->row_first];

        if (kb_visible(relation, list[at]))
            cursor->marks[value >> 6] |= UINT64_C(1) << (value & 63);
    }
    cursor->marked = cursor->entry;
    return 1;
}

void kb_intersect_free(kb_run *run)
{
    for (uint32_t i = 0; i < run->cursor_count; i++) {
        kb_release(&run->heap, run->cursors[i].marks);
        kb_release(&run->heap, run->cursors[i].order);
        run->cursors[i].marks = NULL;
        run->cursors[i].order = NULL;
    }
}

kb_status kb_intersect_start(kb_run *run, const kb_rule *rule)
{
    const kb_step *steps = run->plan->steps + rule->first;

    kb_intersect_free(run);
    for (uint32_t i = 0; i < rule->count; i++) {
        if (!steps[i].intersects)
            continue;
        run->cursors[i + 1].marked = KB_NONE;
        if (kb_index_need(run->slots[steps[i + 1].slot], steps[i + 1].mask & ~(UINT64_C(1) << steps[i + 1].row_first),
                          &run->cursors[i + 1].index) < 0)
            return KB_NOMEM;
    }
    return KB_OK;
}

void kb_scan_order(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_rule *rule = run->plan->rules + run->rule;
    int outer = rule->outer && !run->distinct && step == run->plan->steps + rule->scan && run->target->rows == 0
                && !kb_is_bits(run->target) && run->head_count == 0 && run->seen == NULL;

    if ((step->sort_column || outer) && cursor->order == NULL && cursor->end - cursor->at >= (outer ? MIN_SORTED_HEADS : MIN_SORTED_ROWS))
        cursor->order = kb_relation_sorted(run->slots[step->slot], &run->heap, outer ? rule->outer_from : step->sort_column - 1u,
                                           cursor->at, cursor->end);
    cursor->first = cursor->at;
    if (outer && cursor->order != NULL && run->target->rows == 0)
        kb_heads_sorted(run);
}

/* Set the second cursor to the list of its relation for all columns but the common one. */
static void seek_other(const kb_run *run, const kb_step *other, kb_cursor *cursor)
{
    const kb_pair *pairs = run->plan->pairs + other->pairs;
    kb_sym key[KB_MAX_ARITY];
    uint32_t width = 0;

    for (uint32_t i = 0; i < other->keys; i++)
        if (pairs[i].column != other->row_first)
            key[width++] = run->registers[pairs[i].with];
    kb_cursor_seek_key(run, other, cursor, key);
}

void kb_intersect_enter(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    kb_cursor *other = cursor + 1;
    uint64_t first_count, second_count, bitmap_cost;

    kb_cursor_seek(run, step, cursor);
    if (cursor->at == cursor->end)
        return;
    seek_other(run, step + 1, other);
    first_count = cursor->end - cursor->at;
    second_count = other->end - other->at;
    bitmap_cost = other->marked == other->entry ? first_count : first_count + 2 * second_count;
    cursor->strategy = bitmap_cost < LOOKUP_COST * first_count ? KB_INTERSECT_MARKS : KB_INTERSECT_LOOKUP;
    if (LOOKUP_COST * second_count < (bitmap_cost < LOOKUP_COST * first_count ? bitmap_cost : LOOKUP_COST * first_count))
        cursor->strategy = KB_INTERSECT_SWAP;
    if (cursor->strategy == KB_INTERSECT_SWAP || second_count == 0) {
        cursor->at = other->at;
        cursor->end = other->end;
    } else if (cursor->strategy == KB_INTERSECT_MARKS && other->marked != other->entry && !mark(run, step + 1, other)) {
        cursor->strategy = KB_INTERSECT_LOOKUP;
    }
}

/* Return 1 if the row that the PROBE would read for the loaded value is in its view. */
static int is_in_first(const kb_run *run, const kb_step *step)
{
    const kb_pair *pairs = run->plan->pairs + step->pairs;
    kb_sym row[KB_MAX_ARITY];

    for (uint32_t i = 0; i < step->arity; i++)
        row[pairs[i].column] = run->registers[pairs[i].with];
    return kb_row_is_member(run, step, row);
}

int kb_intersect_next(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_step *iterated = cursor->strategy == KB_INTERSECT_SWAP ? step + 1 : step;
    const kb_cursor *from = cursor->strategy == KB_INTERSECT_SWAP ? cursor + 1 : cursor;
    const kb_relation *relation = run->slots[iterated->slot];
    const kb_pair *own = run->plan->pairs + step->pairs + step->keys;    /* its one LOAD */
    uint32_t column = iterated == step ? own->column : step[1].row_first, arity = iterated->arity, at = cursor->at, end = cursor->end;
    const uint64_t *marks = cursor[1].marks;
    const uint32_t *list;
    int64_t left = run->left;
    int is_match = 0;

    if (at == end)
        return 0;
    list = kb_index_list(from->index, from->entry);
    while (at < end && left > 0 && !is_match) {
        uint32_t id = list[at++];
        kb_sym value = relation->cells[(size_t)id * arity + column];

        left -= 2;
        if (cursor->strategy == KB_INTERSECT_MARKS) {
            is_match = (marks[value >> 6] >> (value & 63) & 1) && kb_visible(relation, id);
            continue;
        }
        run->registers[own->with] = value;
        is_match = kb_visible(relation, id) && (iterated == step ? kb_step_is_member(run, step + 1) : is_in_first(run, step));
    }
    if (is_match)
        run->registers[own->with] = relation->cells[(size_t)list[at - 1] * arity + column];
    run->stats.probes += at - cursor->at;
    run->left = left;
    cursor->at = at;
    return is_match;
}
