/* walk.c - the innermost loops of linear recursion: rows of the queue, their lists, what is new of those.
 * Owns: nothing; group.c says which rows and keeps the place. Never: grows anything; it stops where there is no room. */
#include "cursor.h"

#define LONG_LIST 16u                 /* ids; most of what such a list gives is known, which branches foretell */
#define LARGE_INDEX 65536u            /* keys; fewer are in the cache anyhow */

/* Fetches what the look-ups of the coming places of the queue will read: each stage what an earlier one asked for. */
static KB_ALWAYS_INLINE void prefetch(const kb_run *run, const kb_relation *target, const kb_lookup *index,
                                     const kb_relation *inner, uint32_t column, uint32_t place, uint32_t end)
{
    static const uint32_t distance[] = { 16, 11, 7, 3 };

    for (uint32_t stage = 0; stage < 4; stage++) {
        uint32_t ahead = place + distance[stage], at, slot;
        const kb_entry *entry;
        kb_sym key;

        if (ahead >= end)
            continue;
        key = target->cells[(size_t)kb_row_at(&run->group, ahead) * target->arity + column];
        at = index->direct ? key : (uint32_t)kb_mix(key) & (index->size - 1);
        if (at >= index->size)
            continue;
        if (stage == 0) {
            KB_PREFETCH(index->slots + at);
            continue;
        }
        if ((slot = index->slots[at]) == 0)
            continue;
        entry = index->entries + slot - 1;
        if (stage == 1)
            KB_PREFETCH(entry);
        else if (stage == 2 && entry->count > 1)
            KB_PREFETCH(index->pool + entry->at);
        else if (entry->count == 1)
            KB_PREFETCH(inner->cells + (size_t)entry->at * inner->arity);
        else if (stage == 3)
            for (uint32_t i = 0; i < entry->count && i < 4; i++)
                KB_PREFETCH(inner->cells + (size_t)index->pool[entry->at + i] * inner->arity);
    }
}

/* Does the step test the same for every row of the group? */
static int is_shared(const kb_run *run, const kb_component *component, const kb_step *scan, const kb_step *guard)
{
    const kb_pair *loads = run->plan->pairs + scan->pairs, *keys = run->plan->pairs + guard->pairs;

    for (uint32_t i = 0; i < scan->loads; i++) {
        if (loads[i].column != kb_own_column(component) && scan->arity == 2)
            continue;
        if (guard->op == KB_OP_COMPARE && (guard->a == loads[i].with || guard->b == loads[i].with))
            return 0;
        for (uint32_t k = 0; guard->op != KB_OP_COMPARE && k < guard->keys; k++)
            if (keys[k].with == loads[i].with)
                return 0;
    }
    return 1;
}

/* Has the rule one key, from the row, and guards that hold for all rows of the group? Its row at `place` is looked at. */
int kb_walk_plan(kb_run *run, const kb_component *component, const kb_rule *rule, uint32_t place, kb_walk *walk)
{
    const kb_step *scan = run->plan->steps + rule->first, *probe = scan + rule->count - 2;
    const kb_pair *loads = run->plan->pairs + scan->pairs;
    const kb_relation *target = run->slots[component->target], *inner = run->slots[probe->slot];
    const kb_sym *row = target->cells + (size_t)kb_row_at(&run->group, place) * target->arity;
    int64_t left = run->left;
    uint64_t probes = run->stats.probes;
    int holds = 1;

    walk->key = KB_NONE;
    walk->value = run->plan->pairs[probe[1].pairs + probe[1].keys].with;
    for (uint32_t i = 0; i < scan->loads; i++) {
        run->registers[loads[i].with] = row[loads[i].column];
        if (probe->keys == 1 && loads[i].with == run->plan->pairs[probe->pairs].with)
            walk->key = loads[i].column;
    }
    if (walk->key == KB_NONE || inner->state != NULL || kb_view_start(run, probe) != 0 || kb_view_end(run, probe) != inner->rows)
        return 0;
    for (uint32_t i = 1; i + 2 < rule->count && holds; i++)
        holds = is_shared(run, component, scan, scan + i) && kb_step_holds(run, scan + i, run->cursors + i);
    walk->cost = (uint32_t)(left - run->left) + 2;
    walk->probes = (uint32_t)(run->stats.probes - probes) + 1;
    run->left = left;
    run->stats.probes = probes;
    return holds;
}

/* Rows of the queue whose lists are short, as tight as it gets; stops at one that needs a closer look. */
uint32_t kb_walk_rows(kb_run *run, const kb_component *component, const kb_rule *rule, const kb_walk *walk, uint32_t place,
                      uint32_t end)
{
    const kb_step *probe = run->plan->steps + rule->first + rule->count - 2;
    const kb_lookup *index = run->cursors[rule->count - 2].index;
    const kb_relation *inner = run->slots[probe->slot];
    kb_relation *target = run->slots[component->target];
    const kb_group *group = &run->group;
    const kb_sym *values = inner->cells + walk->value;
    uint32_t arity = target->arity, to = kb_own_column(component), stride = inner->arity, rows = target->rows;
    uint64_t *seen = group->seen, probes = 0;
    int64_t left = run->left;
    uint32_t most = rows, first = place, far = index->entry_count >= LARGE_INDEX;
    kb_sym *cells = target->cells;
    kb_sym same = arity == 2 ? cells[(size_t)kb_row_at(group, place) * 2 + component->carried] : 0;

    if (run->limits.max_rows == 0 || run->limits.max_rows - (run->stats.rows_made - run->rows_from) > target->capacity)
        most = target->capacity;
    for (; place < end || (place >= group->tail && place < rows); place++) {
        kb_sym key = cells[(size_t)kb_row_at(group, place) * arity + walk->key];
        uint32_t entry = index->direct ? key < index->size ? index->slots[key] - 1 : KB_NONE : kb_index_find(index, inner, &key);
        const uint32_t *list;
        uint32_t count;

        if (far)
            prefetch(run, target, index, inner, walk->key, place, place < group->next ? end : rows);
        if (left <= 0)
            break;
        if (entry == KB_NONE) {
            left -= walk->cost;
            probes += walk->probes;
            continue;
        }
        count = index->entries[entry].count;
        if (count > most - rows || left < walk->cost + 2 * (int64_t)count)
            break;
        list = kb_index_list(index, entry);
        left -= walk->cost + 2 * (int64_t)count;
        probes += walk->probes + count;
        for (uint32_t i = 0; count >= LONG_LIST && i < count; i++) {   /* most are not new: branches foretell that */
            kb_sym value = values[(size_t)list[i] * stride];
            uint64_t word = seen[value >> 6];

            if (word >> (value & 63) & 1)
                continue;
            if (arity == 2)
                cells[(size_t)rows * 2 + 1 - to] = same;
            cells[(size_t)rows * arity + to] = value;
            seen[value >> 6] = word | UINT64_C(1) << (value & 63);
            rows++;
        }
        for (uint32_t i = 0; count < LONG_LIST && i < count; i++) {
            kb_sym value = values[(size_t)list[i] * stride];
            uint64_t word = seen[value >> 6], fresh = ~word >> (value & 63) & 1;

            if (arity == 2)
                cells[(size_t)rows * 2 + 1 - to] = same;
            cells[(size_t)rows * arity + to] = value;
            seen[value >> 6] = word | fresh << (value & 63);
            rows += (uint32_t)fresh;
        }
    }
    run->stats.rows_made += rows - target->rows;
    run->stats.probes += probes;
    for (uint32_t i = 0; i + 2 < rule->count; i++)   /* the row, and guards that all rows of the group pass */
        kb_count_step(run, run->plan->steps + rule->first + i, place - first);
    kb_count_step(run, probe, probes - (uint64_t)(place - first) * walk->probes);
    run->left = left;
    target->rows = rows;
    return place;
}
