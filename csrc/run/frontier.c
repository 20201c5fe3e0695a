/* frontier.c - the innermost loops of linear recursion: take a row of the queue, read its index
 * list, append the new rows.
 * Owns: nothing; group.c chooses the rows and keeps the position. Never: grows an array; it stops
 * where there is no capacity. */
#include "run/cursor.h"

#define LONG_LIST 16u                 /* ids; the values of a long list are mostly known already,
                                       * which branches predict well */
#define LARGE_INDEX 65536u            /* keys; a smaller index is in the cache */

/* Prefetch what the look-ups of the coming rows of the queue will read. */
static KB_ALWAYS_INLINE void prefetch(const kb_run *run, const kb_relation *target, const kb_lookup *index,
                                     const kb_relation *inner, uint32_t column, uint32_t place, uint32_t end)
{
    static const uint32_t distance[KB_PREFETCH_STAGES] = { 16, 11, 7, 3 };

    for (uint32_t stage = 0; stage < KB_PREFETCH_STAGES; stage++) {
        uint32_t ahead = place + distance[stage];

        if (ahead < end)
            kb_prefetch_key(index, inner, kb_row(target, kb_row_at(&run->group, ahead))[column], stage);
    }
}

/* Return 1 if the test has the same result for every row of the group. */
static int is_shared(const kb_run *run, const kb_component *component, const kb_step *scan, const kb_step *guard)
{
    const kb_pair *loads = run->plan->pairs + scan->pairs, *keys = run->plan->pairs + guard->pairs;

    for (uint32_t i = 0; i < scan->loads; i++) {
        if (loads[i].column != kb_varying_column(component) && scan->arity == 2)
            continue;
        if (guard->op == KB_OP_COMPARE && (guard->a == loads[i].with || guard->b == loads[i].with))
            return 0;
        for (uint32_t k = 0; guard->op != KB_OP_COMPARE && k < guard->keys; k++)
            if (keys[k].with == loads[i].with)
                return 0;
    }
    return 1;
}

/* Return 1 if the rule has one key, from the row, and guards that hold for all rows of the group.
 * The guards are tested with the row at `place`. */
int kb_frontier_plan(kb_run *run, const kb_component *component, const kb_rule *rule, uint32_t place, kb_frontier *loop)
{
    const kb_step *scan = run->plan->steps + rule->first, *probe = scan + rule->count - 2;
    const kb_pair *loads = run->plan->pairs + scan->pairs;
    const kb_relation *target = run->slots[component->target], *inner = run->slots[probe->slot];
    const kb_sym *row = kb_row(target, kb_row_at(&run->group, place));
    int64_t left = run->left;
    uint64_t probes = run->stats.probes;
    int holds = 1;

    loop->key = KB_NONE;
    loop->value = run->plan->pairs[probe[1].pairs + probe[1].keys].with;
    for (uint32_t i = 0; i < scan->loads; i++) {
        run->registers[loads[i].with] = row[loads[i].column];
        if (probe->keys == 1 && loads[i].with == run->plan->pairs[probe->pairs].with)
            loop->key = loads[i].column;
    }
    if (loop->key == KB_NONE || inner->state != NULL || kb_view_start(run, probe) != 0 || kb_view_end(run, probe) != inner->rows)
        return 0;
    for (uint32_t i = 1; i + 2 < rule->count && holds; i++)
        holds = is_shared(run, component, scan, scan + i) && kb_step_holds(run, scan + i, run->cursors + i);
    loop->cost = (uint32_t)(left - run->left) + 2;
    loop->probes = (uint32_t)(run->stats.probes - probes) + 1;
    run->left = left;
    run->stats.probes = probes;
    return holds;
}

/* Evaluate rows of the queue whose lists are short. Return the first place that was not evaluated:
 * its row needs memory, fuel or the general loop of group.c. */
uint32_t kb_frontier_rows(kb_run *run, const kb_component *component, const kb_rule *rule, const kb_frontier *loop, uint32_t place,
                      uint32_t end)
{
    const kb_step *probe = run->plan->steps + rule->first + rule->count - 2;
    const kb_lookup *index = run->cursors[rule->count - 2].index;
    const kb_relation *inner = run->slots[probe->slot];
    kb_relation *target = run->slots[component->target];
    const kb_group *group = &run->group;
    const kb_sym *values = inner->cells + loop->value;
    uint32_t arity = target->arity, to = kb_varying_column(component), stride = inner->arity, rows = target->rows;
    uint64_t *seen = group->seen, probes = 0;
    int64_t left = run->left;
    uint32_t capacity = rows, first = place, is_large = index->entry_count >= LARGE_INDEX;
    kb_sym *cells = target->cells;
    kb_sym carried = arity == 2 ? cells[(size_t)kb_row_at(group, place) * 2 + component->carried] : 0;

    if (kb_rows_left(run) > target->capacity)
        capacity = target->capacity;
    for (; place < end || (place >= group->tail && place < rows); place++) {
        kb_sym key = cells[(size_t)kb_row_at(group, place) * arity + loop->key];
        uint32_t entry = index->direct ? key < index->size ? index->slots[key] - 1 : KB_NONE : kb_index_find(index, inner, &key);
        const uint32_t *list;
        uint32_t count;

        if (is_large)
            prefetch(run, target, index, inner, loop->key, place, place < group->next ? end : rows);
        if (left <= 0)
            break;
        if (entry == KB_NONE) {
            left -= loop->cost;
            probes += loop->probes;
            continue;
        }
        count = index->entries[entry].count;
        if (count > capacity - rows || left < loop->cost + 2 * (int64_t)count)
            break;
        list = kb_index_list(index, entry);
        left -= loop->cost + 2 * (int64_t)count;
        probes += loop->probes + count;
        /* most are known: predictable branches */
        for (uint32_t i = 0; count >= LONG_LIST && i < count; i++) {
            kb_sym value = values[(size_t)list[i] * stride];
            uint64_t word = seen[value >> 6];

            if (word >> (value & 63) & 1)
                continue;
            if (arity == 2)
                cells[(size_t)rows * 2 + 1 - to] = carried;
            cells[(size_t)rows * arity + to] = value;
            seen[value >> 6] = word | UINT64_C(1) << (value & 63);
            rows++;
        }
        for (uint32_t i = 0; count < LONG_LIST && i < count; i++) {
            kb_sym value = values[(size_t)list[i] * stride];
            uint64_t word = seen[value >> 6], fresh = ~word >> (value & 63) & 1;

            if (arity == 2)
                cells[(size_t)rows * 2 + 1 - to] = carried;
            cells[(size_t)rows * arity + to] = value;
            seen[value >> 6] = word | fresh << (value & 63);
            rows += (uint32_t)fresh;
        }
    }
    run->stats.rows_made += rows - target->rows;
    run->stats.probes += probes;
    /* the row, and guards that pass for all rows of the group */
    for (uint32_t i = 0; i + 2 < rule->count; i++)
        kb_count_step(run, run->plan->steps + rule->first + i, place - first);
    kb_count_step(run, probe, probes - (uint64_t)(place - first) * loop->probes);
    run->left = left;
    target->rows = rows;
    return place;
}
