/* group.c - linear recursion, one outer value at a time.
 * Owns: the order of the initial rows, the bitmap of the current group, its queue. Never: runs the
 * first round, or a rule of another form.
 *
 * In `p(x, z) :- p(x, y), e(y, z)` a row makes only rows with its own x. So all rows of one x (a
 * group) are evaluated before those of the next, and whether a row is new is one bit, by its other
 * column, in an array that stays in the cache however large the relation becomes. The set of the
 * relation is not updated during this; it is built on the first look-up (kb_relation_ready). A
 * relation of one column is one group. Each row comes after the row it was made from, and the rows
 * of a group in order of distance. */
#include "run/cursor.h"

#define MIN_ROWS 256u                 /* with fewer rows the bitmap does not pay */
#define MAX_SYMBOLS_PER_ROW 1024u     /* symbols per row, at most: their bits are zeroed and read */
#define BATCH_ROWS 1024u              /* rows of a list for which memory is reserved at once */

static uint32_t target_mark(const kb_run *run, const kb_component *component)
{
    uint32_t mark = component->first_mark;

    while (run->plan->marks[mark] != component->target)
        mark++;
    return mark;
}

/* Return 1 if all rows are in one group. */
static int is_one_group(const kb_relation *target, const kb_component *component)
{
    if (component->carried == KB_FIXED)
        return 1;
    for (uint32_t id = 1; id < target->rows; id++)
        if (target->cells[(size_t)id * 2 + component->carried] != target->cells[component->carried])
            return 0;
    return 1;
}

/* Return 1 if there are enough rows for the bitmap to pay. */
int kb_group_pays(const kb_run *run, const kb_component *component)
{
    uint32_t rows;

    if (!component->linear || run->fresh)
        return 0;
    rows = run->slots[component->target]->rows;
    return rows >= MIN_ROWS && rows >= run->group.retry && rows >= run->engine->symbols.count / MAX_SYMBOLS_PER_ROW;
}

void kb_group_begin(kb_run *run, const kb_component *component)
{
    kb_group *group = &run->group;
    kb_relation *target = run->slots[component->target];
    uint32_t done;
    int is_single;

    if (!kb_group_pays(run, component) || kb_relation_write(target) < 0)
        return;
    for (uint32_t r = component->first_rule; r < component->first_rule + component->rules; r++)
        if (run->plan->rules[r].linear && !kb_rule_has_views(run, run->plan->rules + r))
            return;
    done = run->low[target_mark(run, component)];
    is_single = is_one_group(target, component);
    group->retry = target->rows * UINT64_C(2);
    if (done != 0 && !is_single)
        return;
    group->words = run->engine->symbols.count / 64 + 1;
    if ((group->seen = kb_alloc(&run->heap, group->words, sizeof *group->seen)) == NULL)
        return;
    if (!is_single && (group->order = kb_relation_sorted(target, &run->heap, component->carried, 0, target->rows)) == NULL) {
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
    const kb_sym *values = target->cells + kb_varying_column(component);

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

/* Clear the bitmap of the group: row by row, or as a whole where that is less work. */
static void close_group(kb_run *run, const kb_component *component)
{
    kb_group *group = &run->group;
    const kb_relation *target = run->slots[component->target];
    const kb_sym *values = target->cells + kb_varying_column(component);

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

/* Load the row at a place of the queue and set the cursor of the PROBE. Return 0 if a guard
 * fails. */
static int enter(kb_run *run, const kb_rule *rule, const kb_relation *target, uint32_t place)
{
    const kb_step *steps = run->plan->steps + rule->first;
    const kb_pair *loads = run->plan->pairs + steps->pairs;
    const kb_sym *row = kb_row(target, kb_row_at(&run->group, place));

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

/* Count the visible rows among `count` rows of a list. */
static void count_visible(kb_run *run, const kb_step *probe, const uint32_t *list, uint32_t count)
{
    const uint8_t *state = run->slots[probe->slot]->state;
    uint32_t hidden = 0;

    for (uint32_t i = 0; run->profile.steps != NULL && state != NULL && i < count; i++)
        hidden += state[list[i]] != KB_LIVE;
    kb_count_step(run, probe, count - hidden);
}

/* Append the new rows of the list to the relation, without a branch for each. Return KB_PAUSED if
 * `left` is used up. */
static kb_status expand(kb_run *run, const kb_component *component, const kb_step *probe, kb_cursor *cursor)
{
    const kb_relation *inner = run->slots[probe->slot];
    kb_relation *target = run->slots[component->target];
    const kb_step *emit = probe + 1;
    uint32_t column = run->plan->pairs[emit->pairs + emit->keys].with, arity = target->arity, to = kb_varying_column(component);
    kb_sym carried = arity == 2 ? run->registers[run->plan->pairs[emit->pairs + component->carried].with] : 0;
    uint32_t stride = probe->arity;
    uint64_t *seen = run->group.seen;

    while (cursor->at < cursor->end) {
        const uint32_t *list = kb_index_list(cursor->index, cursor->entry) + cursor->at;
        const kb_sym *values = inner->cells + column;
        const uint8_t *state = inner->state;
        uint64_t rows_left = kb_rows_left(run);
        uint32_t count = cursor->end - cursor->at, rows, before = target->rows;
        kb_sym *cells;

        if (run->left <= 0)
            return KB_PAUSED;
        count = count < BATCH_ROWS ? count : BATCH_ROWS;
        count = count < (uint64_t)(run->left + 1) / 2 ? count : (uint32_t)((run->left + 1) / 2);
        if (count > rows_left)
            count = rows_left == 0 ? 1 : (uint32_t)rows_left;
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
        if (rows > rows_left) {
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
        if (kb_indexes_extend(target, before) < 0)
            return KB_NOMEM;
    }
    return KB_OK;
}

/* Evaluate one rule over its whole queue. */
static kb_status work_queue(kb_run *run, const kb_component *component, const kb_rule *rule, uint32_t *queue)
{
    kb_group *group = &run->group;
    const kb_relation *target = run->slots[component->target];
    const kb_step *probe = run->plan->steps + rule->first + rule->count - 2;
    kb_cursor *cursor = run->cursors + rule->count - 2;
    kb_frontier loop;
    kb_status status;
    int is_short_form = -1;

    memset(&loop, 0, sizeof loop);
    for (;;) {
        if (*queue == group->next)
            *queue = group->tail;
        if (*queue == target->rows)
            return KB_OK;
        if (is_short_form < 0)
            is_short_form = target->indexes == NULL && kb_frontier_plan(run, component, rule, *queue, &loop);
        if (!group->inside) {
            if (run->left <= 0)
                return KB_PAUSED;
            if (is_short_form) {
                uint32_t first = *queue, end = first < group->next ? group->next : target->rows;

                *queue = kb_frontier_rows(run, component, rule, &loop, first, end);
                if (*queue != first && (*queue == group->next || *queue == target->rows))
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

/* Return 1 if every rule has reached the end of the queue. */
static int is_finished(const kb_run *run, const kb_component *component)
{
    const kb_group *group = &run->group;
    uint32_t rows = run->slots[component->target]->rows;

    for (uint32_t i = 0; i < component->linear; i++)
        if (group->queues[i] != rows && (group->queues[i] != group->next || group->tail != rows))
            return 0;
    return 1;
}

/* Make the bitmap of a single group the set of the relation: matrix.c has the same
 * representation. */
static void keep_bitmap(kb_run *run, const kb_component *component)
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

kb_status kb_group_run(kb_run *run, const kb_component *component)
{
    kb_group *group = &run->group;
    kb_status status;

    while (group->open || group->next < group->rows) {
        if (!group->open)
            open_group(run, component);
        for (; !is_finished(run, component); run->rule = component->first_rule)
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
    keep_bitmap(run, component);
    run->high[target_mark(run, component)] = run->slots[component->target]->rows;
    kb_group_end(run);
    return KB_DONE;
}
