/* pattern.c - MATCHES and CAPTURE: tests a text against a regular expression that the planner has
 * compiled, and finds the text of a group of it.
 * Owns: the set of active states, all simulated in parallel, so that the time is linear in the text
 * for every pattern. Never: backtracks, or trusts a program that kb_pattern_check has not verified.
 * Thompson, "Regular expression search algorithm" (1968); for groups, Pike's machine, whose threads
 * have an order of preference: Cox, "Regular expression matching: the virtual machine approach"
 * (2009). The compiler and the reference implementation are in pattern.py. */
#include "run/machine.h"

/* Return the words of the instruction at `at`, 0 if it is cut off. */
static uint32_t size_of(const kb_word *program, uint32_t at, uint32_t count)
{
    uint32_t left = count - at;

    switch (program[at]) {
    case KB_PATTERN_ACCEPT:
    case KB_PATTERN_BEGIN:
    case KB_PATTERN_END:
    case KB_PATTERN_OPEN:
    case KB_PATTERN_CLOSE: return 1;
    case KB_PATTERN_JUMP: return left >= 2 ? 2 : 0;
    case KB_PATTERN_SPLIT: return left >= 3 ? 3 : 0;
    case KB_PATTERN_RANGES: return left >= 2 && program[at + 1] <= (left - 2) / 2 ? 2 + 2 * program[at + 1] : 0;
    default: return 0;
    }
}

/* Return 1 if an instruction starts at `target`. */
static int starts(const kb_word *program, uint32_t count, uint32_t target)
{
    uint32_t at = 0;

    while (at < target && at < count)
        at += size_of(program, at, count);
    return at == target && at < count;
}

/* Return the first word at fault, or `count` if the program ends with ACCEPT and every jump leads
 * to an instruction. */
uint32_t kb_pattern_check(const kb_word *program, uint32_t count)
{
    uint32_t size, last = 0;

    for (uint32_t at = 0; at < count; at += size) {
        if ((size = size_of(program, at, count)) == 0)
            return at;
        last = at;
    }
    for (uint32_t at = 0; at < count; at += size_of(program, at, count))
        if (program[at] == KB_PATTERN_JUMP || program[at] == KB_PATTERN_SPLIT)
            for (uint32_t i = 1; i < size_of(program, at, count); i++)
                if (!starts(program, count, program[at + i]))
                    return at + i;
    return program[last] == KB_PATTERN_ACCEPT ? count : last;
}

typedef struct kb_states {            /* a set of places in the program, in insertion order */
    uint32_t *places, *where;         /* where[place]: its index in `places`, valid if below `used`
                                       * and `places` confirms it */
    uint32_t used;
} kb_states;

static int add_state(kb_states *states, uint32_t place)
{
    uint32_t at = states->where[place];

    if (at < states->used && states->places[at] == place)
        return 0;
    states->where[place] = states->used;
    states->places[states->used++] = place;
    return 1;
}

/* Add a state and all that follow from it without reading a character. `places` is also the work
 * list. Return 1 if the program accepts. */
static int follow(const kb_word *program, kb_states *states, uint32_t place, int at_start, int at_end)
{
    uint32_t next = states->used;

    add_state(states, place);
    for (; next < states->used; next++) {
        place = states->places[next];
        switch (program[place]) {
        case KB_PATTERN_ACCEPT: return 1;
        case KB_PATTERN_JUMP: add_state(states, program[place + 1]); break;
        case KB_PATTERN_SPLIT:
            add_state(states, program[place + 1]);
            add_state(states, program[place + 2]);
            break;
        case KB_PATTERN_OPEN:
        case KB_PATTERN_CLOSE: add_state(states, place + 1); break;
        case KB_PATTERN_BEGIN: if (at_start) add_state(states, place + 1); break;
        case KB_PATTERN_END: if (at_end) add_state(states, place + 1); break;
        default: break;
        }
    }
    return 0;
}

static int in_ranges(const kb_word *instruction, uint32_t point)
{
    for (uint32_t i = 0; i < instruction[1]; i++)
        if (point >= instruction[2 + 2 * i] && point <= instruction[3 + 2 * i])
            return 1;
    return 0;
}

kb_status kb_match_pattern(kb_run *run, const kb_step *step, int *goes_on)
{
    const kb_word *program = run->plan->patterns + step->b;
    uint32_t count = step->mark;
    uint32_t *room = kb_scratch(run, (size_t)count * 4, sizeof *room);
    kb_states now, next;
    const char *text, *at, *end;
    size_t len;
    uint64_t work = 1;
    int outcome;

    if (room == NULL)
        return KB_NOMEM;
    memset(room, 0, (size_t)count * 4 * sizeof *room);
    now.places = room;
    now.where = room + count;
    next.places = room + 2 * (size_t)count;
    next.where = room + 3 * (size_t)count;
    now.used = next.used = 0;
    kb_symbol_get(&run->engine->symbols, run->registers[step->a], &text, &len, NULL);
    end = text + len;
    outcome = follow(program, &now, 0, 1, len == 0);
    for (at = text; at < end && !outcome;) {
        uint32_t point = kb_read_point(&at, end);
        kb_states swap;

        next.used = 0;
        work += now.used;
        for (uint32_t i = 0; i < now.used && !outcome; i++) {
            const kb_word *instruction = program + now.places[i];

            if (*instruction == KB_PATTERN_RANGES && in_ranges(instruction, point))
                outcome = follow(program, &next, now.places[i] + 2 + 2 * instruction[1], 0, at == end);
        }
        if (!outcome)
            outcome = follow(program, &next, 0, 0, at == end);   /* a match may start anywhere */
        swap = now;
        now = next;
        next = swap;
    }
    run->left -= (int64_t)(work / 8 + 1);
    run->stats.probes++;
    *goes_on = outcome != (step->compare != 0);
    return KB_OK;
}

#define NO_MARK UINT32_MAX

typedef struct kb_thread {            /* a place of the program, and the marks of its group in the
                                       * text */
    uint32_t place, start, end;
} kb_thread;

typedef struct kb_threads {           /* by preference; each place once */
    kb_thread *items;
    uint32_t *where;                  /* as in kb_states */
    uint32_t *places;                 /* places reached, including those that only lead on */
    uint32_t reached, used;
} kb_threads;

static int reach(kb_threads *threads, uint32_t place)
{
    uint32_t at = threads->where[place];

    if (at < threads->reached && threads->places[at] == place)
        return 0;
    threads->where[place] = threads->reached;
    threads->places[threads->reached++] = place;
    return 1;
}

/* Add a thread, and instead of a place that reads no character those that it leads to, the
 * preferred one first. Each place is expanded once and leaves at most two on the stack. */
static void add_thread(const kb_word *program, kb_threads *threads, kb_thread *stack, kb_thread thread, uint32_t at,
                       uint32_t len)
{
    uint32_t depth = 0;

    stack[depth++] = thread;
    while (depth != 0) {
        thread = stack[--depth];
        if (!reach(threads, thread.place))
            continue;
        switch (program[thread.place]) {
        case KB_PATTERN_SPLIT:
            stack[depth] = thread;
            stack[depth++].place = program[thread.place + 2];
            thread.place = program[thread.place + 1];
            break;
        case KB_PATTERN_JUMP: thread.place = program[thread.place + 1]; break;
        case KB_PATTERN_OPEN:
            thread.start = at;
            thread.place++;
            break;
        case KB_PATTERN_CLOSE:
            thread.end = at;
            thread.place++;
            break;
        case KB_PATTERN_BEGIN:
        case KB_PATTERN_END:
            if (at != (program[thread.place] == KB_PATTERN_BEGIN ? 0 : len))
                continue;
            thread.place++;
            break;
        default:                      /* ACCEPT and RANGES */
            threads->items[threads->used++] = thread;
            continue;
        }
        stack[depth++] = thread;
    }
}

/* Allocate two lists of threads and a stack; NULL: out of memory. */
static kb_thread *thread_space(kb_run *run, uint32_t count, kb_threads *now, kb_threads *next)
{
    size_t places = count;
    kb_thread *space = kb_scratch(run, 4 * places + 2 + (4 * places + 2) / 3, sizeof *space);
    uint32_t *words;

    if (space == NULL)
        return NULL;
    words = (uint32_t *)(space + 4 * places + 1);
    memset(words, 0, 4 * places * sizeof *words);
    now->items = space;
    next->items = space + places;
    now->where = words;
    now->places = words + places;
    next->where = words + 2 * places;
    next->places = words + 3 * places;
    now->used = now->reached = next->used = next->reached = 0;
    return space + 2 * places;
}

kb_status kb_capture(kb_run *run, const kb_step *step, int *has_value)
{
    const kb_word *program = run->plan->patterns + step->b;
    kb_thread found = { 0, NO_MARK, NO_MARK }, first = { 0, NO_MARK, NO_MARK }, *stack;
    kb_threads now, next;
    const char *text, *at, *end;
    size_t len;
    uint64_t work = 1;
    int is_match = 0;
    kb_text value;

    *has_value = 0;
    kb_symbol_get(&run->engine->symbols, run->registers[step->a], &text, &len, NULL);
    if (len >= NO_MARK)
        return KB_OK;
    if ((stack = thread_space(run, step->mark, &now, &next)) == NULL)
        return KB_NOMEM;
    end = text + len;
    add_thread(program, &now, stack, first, 0, (uint32_t)len);
    for (at = text;;) {
        int is_end = at == end, accepts = 0;
        uint32_t point = is_end ? KB_NO_CHARACTER : kb_read_point(&at, end);
        kb_threads swap;

        next.used = next.reached = 0;
        work += 1 + now.used;
        for (uint32_t i = 0; i < now.used && !accepts; i++) {
            kb_thread thread = now.items[i];
            const kb_word *instruction = program + thread.place;

            if (*instruction == KB_PATTERN_ACCEPT) {   /* preferred to the threads after it */
                found = thread;
                is_match = accepts = 1;
            } else if (!is_end && in_ranges(instruction, point)) {
                thread.place += 2 + 2 * instruction[1];
                add_thread(program, &next, stack, thread, (uint32_t)(at - text), (uint32_t)len);
            }
        }
        if (is_end)
            break;
        if (!is_match)                /* a match may start anywhere, as long as none has started */
            add_thread(program, &next, stack, first, (uint32_t)(at - text), (uint32_t)len);
        if (is_match && next.used == 0)
            break;
        swap = now;
        now = next;
        next = swap;
    }
    run->left -= (int64_t)(work / 8 + 1);
    run->stats.probes++;
    if (found.end == NO_MARK)
        return KB_OK;
    value.bytes = text + found.start;
    value.len = found.end - found.start;
    return kb_make_text(run, run->plan->pairs[step->pairs].with, &value, has_value);
}
