/* meet.c - a value that two relations have to agree on: the intersection of two lists (generic join).
 * Owns: the choice of the list that is walked, the marks of the other. Never: moves on to other steps.
 * Where a body closes a cycle, `e(x, y), e(y, z), e(z, x)`, walking all z of y and looking up each would cost the list
 * of y, however short that of x is. With x and y bound, the cheapest of three ways is taken, tuple by tuple: walk the
 * list of y and test each z in the marks of x's list; walk it and look the rows up; walk that of x and look up those of
 * y. Marks stay while x does, so the rows of a SCAN that loads x are sorted by it, and over a whole join the cost is within
 * a factor of the sum of the shorter lists: worst-case optimal (Ngo, Porat, Re, Rudra 2012; Veldhuizen 2014). */
#include "cursor.h"

#define LOOKUP 8u                     /* what looking a row up costs, in rows walked over */
#define OUTER_AT 16u                  /* the same, where it spares looking for each head */
#define SORT_AT 256u                  /* rows of a SCAN that are worth sorting */

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

/* Without the room for marks there are none. */
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

void kb_meet_free(kb_run *run)
{
    for (uint32_t i = 0; i < run->cursor_count; i++) {
        kb_release(&run->heap, run->cursors[i].marks);
        kb_release(&run->heap, run->cursors[i].order);
        run->cursors[i].marks = NULL;
        run->cursors[i].order = NULL;
    }
}

kb_status kb_meet_start(kb_run *run, const kb_rule *rule)
{
    const kb_step *steps = run->plan->steps + rule->first;

    kb_meet_free(run);
    for (uint32_t i = 0; i < rule->count; i++) {
        if (!steps[i].meets)
            continue;
        run->cursors[i + 1].marked = KB_NONE;
        if (kb_index_need(run->slots[steps[i + 1].slot], steps[i + 1].mask & ~(UINT64_C(1) << steps[i + 1].row_first),
                          &run->cursors[i + 1].index) < 0)
            return KB_NOMEM;
    }
    return KB_OK;
}

void kb_meet_order(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_rule *rule = run->plan->rules + run->rule;
    int outer = rule->outer && !run->distinct && step == run->plan->steps + rule->scan && run->target->rows == 0
                && run->head_count == 0 && run->seen == NULL;

    if ((step->sorts || outer) && cursor->order == NULL && cursor->end - cursor->at >= (outer ? OUTER_AT : SORT_AT))
        cursor->order = kb_relation_sorted(run->slots[step->slot], &run->heap, outer ? rule->outer_from : step->sorts - 1u,
                                           cursor->at, cursor->end);
    cursor->first = cursor->at;
    if (outer && cursor->order != NULL && run->target->rows == 0)
        kb_heads_sorted(run);
}

/* The second cursor goes on the list of its relation by all columns but the one they have to agree on. */
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

void kb_meet_enter(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    kb_cursor *other = cursor + 1;
    uint64_t mine, theirs, marking;

    kb_cursor_seek(run, step, cursor);
    if (cursor->at == cursor->end)
        return;
    seek_other(run, step + 1, other);
    mine = cursor->end - cursor->at;
    theirs = other->end - other->at;
    marking = other->marked == other->entry ? mine : mine + 2 * theirs;
    cursor->how = marking < LOOKUP * mine ? KB_MEET_MARKS : KB_MEET_LOOK;
    if (LOOKUP * theirs < (marking < LOOKUP * mine ? marking : LOOKUP * mine))
        cursor->how = KB_MEET_SWAP;
    if (cursor->how == KB_MEET_SWAP || theirs == 0) {
        cursor->at = other->at;
        cursor->end = other->end;
    } else if (cursor->how == KB_MEET_MARKS && other->marked != other->entry && !mark(run, step + 1, other)) {
        cursor->how = KB_MEET_LOOK;
    }
}

/* Is the row that the PROBE would read, with the value loaded, in its view? */
static int is_read(const kb_run *run, const kb_step *step)
{
    const kb_pair *pairs = run->plan->pairs + step->pairs;
    kb_sym row[KB_MAX_ARITY];

    for (uint32_t i = 0; i < step->arity; i++)
        row[pairs[i].column] = run->registers[pairs[i].with];
    return kb_row_is_member(run, step, row);
}

int kb_meet_next(kb_run *run, const kb_step *step, kb_cursor *cursor)
{
    const kb_step *walked = cursor->how == KB_MEET_SWAP ? step + 1 : step;
    const kb_cursor *from = cursor->how == KB_MEET_SWAP ? cursor + 1 : cursor;
    const kb_relation *relation = run->slots[walked->slot];
    const kb_pair *own = run->plan->pairs + step->pairs + step->keys;    /* its one LOAD */
    uint32_t column = walked == step ? own->column : step[1].row_first, arity = walked->arity, at = cursor->at, end = cursor->end;
    const uint64_t *marks = cursor[1].marks;
    const uint32_t *list;
    int64_t left = run->left;
    int found = 0;

    if (at == end)
        return 0;
    list = kb_index_list(from->index, from->entry);
    while (at < end && left > 0 && !found) {
        uint32_t id = list[at++];
        kb_sym value = relation->cells[(size_t)id * arity + column];

        left -= 2;
        if (cursor->how == KB_MEET_MARKS) {
            found = (marks[value >> 6] >> (value & 63) & 1) && kb_visible(relation, id);
            continue;
        }
        run->registers[own->with] = value;
        found = kb_visible(relation, id) && (walked == step ? kb_step_is_member(run, step + 1) : is_read(run, step));
    }
    if (found)
        run->registers[own->with] = relation->cells[(size_t)list[at - 1] * arity + column];
    run->stats.probes += at - cursor->at;
    run->left = left;
    cursor->at = at;
    return found;
}
