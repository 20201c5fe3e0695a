/* group.c - linear recursion, one outer value at a time.
 * Owns: the order of the rows it begins with, the bits of what the present outer value has, its queue. Never: runs the
 * first round, or a rule of another shape.
 * In `p(x, z) :- p(x, y), e(y, z)` a row makes only rows with its own x. So the rows of one x are worked to their end
 * before those of the next, and whether a row is new is one bit by its other column, in an array that stays in the
 * cache however large the relation becomes. The set of the relation is not updated during this; it is built when a caller
 * asks for it (kb_relation_ready). A relation of one column is one group. Each row comes after the row it was made
 * from, and the rows of a group in the order of their distance. */
#include "cursor.h"

#define LEAST_ROWS 256u               /* fewer are done before the bits are set up */
#define SYMBOLS_A_ROW 1024u           /* symbols there may be for each row: their bits are zeroed and read */
#define SLICE 1024u                   /* rows of a list for which room is made at once */

static uint32_t target_mark(const kb_run *run, const kb_component *component)
{
    uint32_t mark = component->first_mark;

    while (run->plan->marks[mark] != component->target)
        mark++;
    return mark;
}

/* Are the rows all of one group? */
static int is_one_group(const kb_relation *target, const kb_component *component)
{
    if (component->carried == KB_FIXED)
        return 1;
    for (uint32_t id = 1; id < target->rows; id++)
        if (target->cells[(size_t)id * 2 + component->carried] != target->cells[component->carried])
            return 0;
    return 1;
}

/* Are there rows enough to set up the bits for? */
int kb_group_pays(const kb_run *run, const kb_component *component)
{
    uint32_t rows;

    if (!component->linear || run->fresh)
        return 0;
    rows = run->slots[component->target]->rows;
    return rows >= LEAST_ROWS && rows >= run->group.retry && rows >= run->engine->symbols.count / SYMBOLS_A_ROW;
}

void kb_group_begin(kb_run *run, const kb_component *component)
{
    kb_group *group = &run->group;
    kb_relation *target = run->slots[component->target];
    uint32_t done;
    int one;

    if (!kb_group_pays(run, component))
        return;
    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++)
        if (run->plan->rules[r].linear && !kb_rule_has_views(run, run->plan->rules + r))
            return;
    done = run->low[target_mark(run, component)];
    one = is_one_group(target, component);
    group->retry = target->rows * UINT64_C(2);
    if (done != 0 && !one)
        return;
    group->words = run->engine->symbols.count / 64 + 1;
    if ((group->seen = kb_alloc(&run->heap, group->words, sizeof *group->seen)) == NULL)
        return;
    if (!one && (group->order = kb_relation_sorted(target, &run->heap, component->carried, 0, target->rows)) == NULL) {
        kb_release(&run->heap, group->seen);
        group->seen = NULL;
        return;
    }
    kb_release(target->heap, target->slots);
    target->slots = NULL;
    target->slot_mask = target->placed = 0;
    kb_bits_free(target);
    group->done = done;
    group->rows = target->rows;
    group->next = 0;
    group->open = 0;
}

void kb_group_end(kb_run *run)
{
    kb_release(&run->heap, run->group.seen);
    kb_release(&run->heap, run->group.order);
    memset(&run->group, 0, sizeof run->group);
}

static void open_group(kb_run *run, const kb_component *component)
{
    kb_group *group = &run->group;
    const kb_relation *target = run->slots[component->target];
    const kb_sym *values = target->cells + kb_own_column(component);

    group->first = group->next;
    while (group->next < group->rows
           && (group->order == NULL || group->order[group->next] >> 32 == group->order[group->first] >> 32)) {
        kb_sym value = values[(size_t)kb_row_at(group, group->next++) * target->arity];

        group->seen[value >> 6] |= UINT64_C(1) << (value & 63);
    }
    group->tail = target->rows;
    group->open = 1;
    group->inside = 0;
    for (uint32_t i = 0; i < KB_QUEUES; i++)
        group->queues[i] = group->order == NULL ? group->done : group->first;
}

/* Takes the bits of the group back; by row, or all of them where that is less. */
static void close_group(kb_run *run, const kb_component *component)
{
    kb_group *group = &run->group;
    const kb_relation *target = run->slots[component->target];
    const kb_sym *values = target->cells + kb_own_column(component);

    group->open = 0;
    if (group->words < target->rows - group->tail)
        memset(group->seen, 0, group->words * sizeof *group->seen);
    for (uint32_t place = group->first; group->words >= target->rows - group->tail && place < target->rows; place++) {
        if (place == group->next)
            place = group->tail;
        if (place < target->rows)
            group->seen[values[(size_t)kb_row_at(group, place) * target->arity] >> 6] = 0;
    }
}

/* Loads the row at the turn's place of the queue and sets the cursor of its PROBE; 0: a guard says no. */
static int enter(kb_run *run, const kb_rule *rule, const kb_relation *target, uint32_t place)
{
    const kb_step *steps = run->plan->steps + rule->first;
    const kb_pair *loads = run->plan->pairs + steps->pairs;
    const kb_sym *row = target->cells + (size_t)kb_row_at(&run->group, place) * target->arity;

    for (uint32_t i = 0; i < steps->loads; i++)
        run->registers[loads[i].with] = row[loads[i].column];
    run->left--;
    kb_count_step(run, steps, 1);
    for (uint32_t i = 1; i + 2 < rule->count; i++) {
        if (!kb_step_holds(run, steps + i, run->cursors + i))
            return 0;
        kb_count_step(run, steps + i, 1);
    }
    kb_cursor_seek(run, steps + rule->count - 2, run->cursors + rule->count - 2);
    run->left--;
    run->stats.probes++;
    return 1;
}

/* Of `count` rows of a list, those that are there. */
static void count_visible(kb_run *run, const kb_step *probe, const uint32_t *list, uint32_t count)
{
    const uint8_t *state = run->slots[probe->slot]->state;
    uint32_t hidden = 0;

    for (uint32_t i = 0; run->profile.steps != NULL && state != NULL && i < count; i++)
        hidden += state[list[i]] != KB_LIVE;
    kb_count_step(run, probe, count - hidden);
}

/* The rows of the list that are new go behind the last, without a branch for each. KB_PAUSED: `left` is used up. */
static kb_status expand(kb_run *run, const kb_component *component, const kb_step *probe, kb_cursor *cursor)
{
    const kb_relation *inner = run->slots[probe->slot];
    kb_relation *target = run->slots[component->target];
    const kb_step *emit = probe + 1;
    uint32_t column = run->plan->pairs[emit->pairs + emit->keys].with, arity = target->arity, to = kb_own_column(component);
    kb_sym carried = arity == 2 ? run->registers[run->plan->pairs[emit->pairs + component->carried].with] : 0;
    uint32_t stride = probe->arity;
    uint64_t *seen = run->group.seen;

    while (cursor->at < cursor->end) {
        const uint32_t *list = kb_index_list(cursor->index, cursor->entry) + cursor->at;
        const kb_sym *values = inner->cells + column;
        const uint8_t *state = inner->state;
        uint64_t room = run->limits.max_rows == 0 ? UINT64_MAX : run->limits.max_rows - (run->stats.rows_made - run->rows_from);
        uint32_t count = cursor->end - cursor->at, rows, before = target->rows;
        kb_sym *cells;

        if (run->left <= 0)
            return KB_PAUSED;
        count = count < SLICE ? count : SLICE;
        count = count < (uint64_t)(run->left + 1) / 2 ? count : (uint32_t)((run->left + 1) / 2);
        if (count > room)
            count = room == 0 ? 1 : (uint32_t)room;
        if (target->capacity - before < count && kb_relation_reserve(target, count) < 0)
            return KB_NOMEM;
        cells = target->cells + (size_t)before * arity;
        rows = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t id = list[i];
            kb_sym value = values[(size_t)id * stride];
            uint64_t word = seen[value >> 6], fresh = ~word >> (value & 63) & (state == NULL || state[id] == KB_LIVE);

            if (arity == 2)
                cells[(size_t)rows * 2 + 1 - to] = carried;
            cells[(size_t)rows * arity + to] = value;
            seen[value >> 6] = word | fresh << (value & 63);
            rows += (uint32_t)fresh;
        }
        if (rows > room) {
            seen[cells[to] >> 6] &= ~(UINT64_C(1) << (cells[to] & 63));
            run->stats.budget = KB_BUDGET_ROWS;
            return KB_LIMIT;
        }
        cursor->at += count;
        target->rows += rows;
        run->stats.rows_made += rows;
        run->stats.probes += count;
        run->left -= 2 * (int64_t)count;
        count_visible(run, probe, list, count);
        for (kb_lookup *index = target->indexes; index != NULL; index = index->next)
            for (uint32_t id = before; id < target->rows; id++)
                if (kb_index_add(index, target, id) < 0)
                    return KB_NOMEM;
    }
    return KB_OK;
}

/* One rule over all there is in its queue. */
static kb_status work_queue(kb_run *run, const kb_component *component, const kb_rule *rule, uint32_t *queue)
{
    kb_group *group = &run->group;
    const kb_relation *target = run->slots[component->target];
    const kb_step *probe = run->plan->steps + rule->first + rule->count - 2;
    kb_cursor *cursor = run->cursors + rule->count - 2;
    kb_walk walk;
    kb_status status;
    int plain = -1;

    memset(&walk, 0, sizeof walk);
    for (;;) {
        if (*queue == group->next)
            *queue = group->tail;
        if (*queue == target->rows)
            return KB_OK;
        if (plain < 0)
            plain = target->indexes == NULL && kb_walk_plan(run, component, rule, *queue, &walk);
        if (!group->inside) {
            if (run->left <= 0)
                return KB_PAUSED;
            if (plain) {
                uint32_t was = *queue, end = was < group->next ? group->next : target->rows;

                *queue = kb_walk_rows(run, component, rule, &walk, was, end);
                if (*queue != was && (*queue == group->next || *queue == target->rows))
                    continue;
                if (run->left <= 0)
                    return KB_PAUSED;
            }
            if (!enter(run, rule, target, *queue)) {
                ++*queue;
                continue;
            }
            group->inside = 1;
        }
        if ((status = expand(run, component, probe, cursor)) != KB_OK)
            return status;
        group->inside = 0;
        ++*queue;
    }
}

/* Has every rule come to the end of the queue? */
static int is_worked(const kb_run *run, const kb_component *component)
{
    const kb_group *group = &run->group;
    uint32_t rows = run->slots[component->target]->rows;

    for (uint32_t i = 0; i < component->linear; i++)
        if (group->queues[i] != rows && (group->queues[i] != group->next || group->tail != rows))
            return 0;
    return 1;
}

/* The bits of a single group are what matrix.c holds: they become the set. */
static void keep_bits(kb_run *run, const kb_component *component)
{
    kb_group *group = &run->group;
    kb_relation *target = run->slots[component->target];
    kb_matrix *matrix = &target->matrix;

    if (group->order != NULL || component->carried == 1)
        return;
    matrix->words = group->seen;
    matrix->top = target->arity == 1 ? 1 : target->cells[0];
    matrix->height = 1;
    matrix->left = 0;
    matrix->width = group->words;
    for (uint32_t i = 0; i < group->words; i++)
        matrix->filled += matrix->words[i] != 0;
    group->seen = NULL;
}

kb_status kb_group_work(kb_run *run, const kb_component *component)
{
    kb_group *group = &run->group;
    kb_status status;

    while (group->open || group->next < group->rows) {
        if (!group->open)
            open_group(run, component);
        for (; !is_worked(run, component); run->rule = component->first_rule)
            for (; run->rule < component->first_rule + component->rules; run->rule++) {
                const kb_rule *rule = run->plan->rules + run->rule;

                if (!rule->linear)
                    continue;
                if (!run->in_rule && (status = kb_rule_start(run, rule)) < 0)
                    return status;
                run->in_rule = 1;
                if ((status = work_queue(run, component, rule, group->queues + rule->linear - 1)) != KB_OK)
                    return status;
                run->in_rule = 0;
                kb_charge(run);
            }
        if (group->order != NULL)
            close_group(run, component);
        group->open = 0;
    }
    keep_bits(run, component);
    run->high[target_mark(run, component)] = run->slots[component->target]->rows;
    kb_group_end(run);
    return KB_DONE;
}
