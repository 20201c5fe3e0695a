/* bestfirst.c - linear recursion through a relation of best rows, one row at a time.
 * Owns: the queue of rows that have not been read yet. Never: adds a row; that is best.c.
 *
 * After the first round of such a component, rows leave the queue in the order of their values, the
 * best first. Where no rule makes a value better than the one it reads, as with distances that are
 * not negative, each row that leaves the queue is final, and each group is read once: Dijkstra, "A
 * note on two problems in connexion with graphs" (1959), for any number of starts. The first row
 * that is better than one before it shows that values improve on the way. From then on rows leave
 * the queue in the order in which they came, since best-first order could then read a group
 * exponentially often; this order reads each row at most once for each round that would have read
 * it (Bellman, "On a routing problem", 1958). Rows that have been replaced since are skipped. */
#include "run/machine.h"
#include <math.h>

static void sift_up(kb_queued *items, uint32_t at)
{
    kb_queued item = items[at];

    while (at != 0 && item.value < items[(at - 1) / 4].value) {
        items[at] = items[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    items[at] = item;
}

static void sift_down(kb_queued *items, uint32_t count)
{
    kb_queued item = items[0];
    uint32_t at = 0;

    for (;;) {
        uint32_t first = at * 4 + 1, least = first, end = count - first < 4 ? count : first + 4;

        if (first >= count)
            break;
        for (uint32_t i = first + 1; i < end; i++)
            least = items[i].value < items[least].value ? i : least;
        if (items[least].value >= item.value)
            break;
        items[at] = items[least];
        at = least;
    }
    items[at] = item;
}

kb_status kb_queue_add(kb_run *run, uint32_t id, double value)
{
    kb_queue *queue = &run->queue;

    if (queue->count == queue->capacity) {
        uint64_t capacity = kb_grow_capacity(queue->capacity, queue->capacity + UINT64_C(1), 64);
        void *block;

        if (capacity > UINT32_MAX || (block = kb_resize(&run->heap, queue->items, (size_t)capacity, sizeof *queue->items)) == NULL)
            return KB_NOMEM;
        queue->items = block;
        queue->capacity = (uint32_t)capacity;
    }
    queue->items[queue->count].value = queue->is_least ? value : -value;
    queue->items[queue->count++].id = id;
    if (!queue->is_fifo)
        sift_up(queue->items, queue->count - 1);
    return KB_OK;
}

/* Take the next row. Return 0 if the queue is empty. */
static int take(kb_run *run, uint32_t *id)
{
    kb_queue *queue = &run->queue;
    const kb_relation *relation = run->slots[run->plan->components[run->component].target];

    while (queue->count > queue->next) {
        kb_queued item = queue->items[queue->next];

        if (queue->is_fifo) {
            queue->next++;
            if (queue->next == queue->count)
                queue->next = queue->count = 0;
        } else {
            queue->items[0] = queue->items[--queue->count];
            if (queue->count != 0)
                sift_down(queue->items, queue->count);
        }
        if (!kb_visible(relation, item.id))
            continue;
        if (!queue->is_fifo && item.value < queue->last)
            queue->is_fifo = 1;       /* the items that are left keep some order */
        queue->last = item.value;
        *id = item.id;
        return 1;
    }
    return 0;
}

kb_status kb_queue_begin(kb_run *run, const kb_component *component)
{
    kb_queue *queue = &run->queue;
    const kb_relation *relation = run->slots[component->target];
    const kb_rule *rule = run->plan->rules + component->first_rule;
    uint32_t mark;

    if (!component->best_first || run->fresh)
        return KB_OK;
    while (!rule->linear)
        rule++;
    mark = run->plan->steps[rule->first].mark;
    queue->active = 1;
    queue->is_fifo = 0;
    queue->is_least = relation->best == KB_BEST_LEAST;
    queue->is_open = 0;
    queue->count = queue->next = 0;
    queue->mark = mark;
    queue->last = -HUGE_VAL;
    for (uint32_t id = run->low[mark]; id < run->high[mark]; id++)
        if (kb_visible(relation, id) && kb_queue_add(run, id, kb_best_value(run, relation, id)) < 0)
            return KB_NOMEM;
    run->rule = component->first_rule + component->rules;   /* no rule has been started */
    return KB_OK;
}

/* Load the registers of a linear rule from a row of the queue. Return 0 if its SCAN does not accept
 * the row. */
static int load_row(kb_run *run, const kb_rule *rule, uint32_t id)
{
    const kb_step *scan = run->plan->steps + rule->first;
    const kb_pair *loads = run->plan->pairs + scan->pairs + scan->keys;
    const kb_sym *row = kb_row(run->slots[scan->slot], id);

    run->left--;
    if (kb_has_checks(scan) && !kb_row_matches(run, scan, row))
        return 0;
    for (uint32_t i = 0; i < scan->loads; i++)
        run->registers[loads[i].with] = row[loads[i].column];
    kb_count_step(run, scan, 1);
    return 1;
}

/* Make a rule the current one. Views are those of the round: the rows before the first of the queue
 * have been read. */
static kb_status use_rule(kb_run *run, uint32_t number)
{
    const kb_rule *rule = run->plan->rules + number;
    kb_status status;

    if (run->rule == number)
        return KB_OK;
    kb_charge(run);
    run->rule = number;
    if ((status = kb_rule_start(run, rule)) < 0)
        return status;
    run->cursors->at = run->cursors->end = 0;   /* the loop over the rows is here */
    return KB_OK;
}

kb_status kb_queue_run(kb_run *run, const kb_component *component)
{
    kb_queue *queue = &run->queue;
    uint32_t end = component->first_rule + component->rules;
    kb_status status;

    for (;;) {
        if (!queue->is_open) {
            if (run->left <= 0)
                return KB_PAUSED;
            if (!take(run, &queue->id))
                break;
            queue->is_open = 1;
            queue->rule = component->first_rule;
            queue->is_inside = 0;
        }
        for (; queue->rule < end; queue->rule++) {
            const kb_rule *rule = run->plan->rules + queue->rule;

            if (!rule->linear)
                continue;
            if (!queue->is_inside) {
                if (!kb_queue_has_views(run, rule))
                    continue;
                if ((status = use_rule(run, queue->rule)) < 0)
                    return status;
                if (!load_row(run, rule, queue->id))
                    continue;
                run->depth = 1;
                run->entering = 1;
                queue->is_inside = 1;
            }
            if ((status = kb_rule_work(run, rule)) != KB_DONE)
                return status;
            if ((status = kb_heads_flush(run)) < 0)
                return status;
            queue->is_inside = 0;
        }
        queue->is_open = 0;
    }
    kb_charge(run);
    run->high[queue->mark] = run->slots[component->target]->rows;
    kb_queue_end(run);
    return KB_DONE;
}

/* Return 1 if no view of the rule besides its SCAN of the queue is empty. */
int kb_queue_has_views(const kb_run *run, const kb_rule *rule)
{
    const kb_step *steps = run->plan->steps + rule->first;

    for (uint32_t i = 1; i < rule->count; i++) {
        if (!kb_step_reads_view(steps + i))
            continue;
        if ((steps[i].view == KB_VIEW_OLD ? run->low : run->high)[steps[i].mark] == run->from[steps[i].mark])
            return 0;
    }
    return 1;
}

void kb_queue_end(kb_run *run)
{
    kb_release(&run->heap, run->queue.items);
    memset(&run->queue, 0, sizeof run->queue);
}
