/* engine.c - opening and closing an engine, and the table of relation handles.
 * Owns: the engine struct, and which handle names which relation. Never: looks inside a relation.
 * A handle is number << 24 | place, and no number is reused: an outdated handle is rejected and
 * never names the relation that has its place now. */
#include "internal.h"
#include "dense/team.h"

#define PLACE_BITS 24
#define PLACE_MASK ((1u << PLACE_BITS) - 1)

static void engine_free(kb_engine *engine)
{
    kb_heap *heap = &engine->heap;
    kb_heap last;

    for (uint32_t i = 1; i < engine->handle_count; i++)
        if (engine->handles[i] != NULL) {
            kb_relation_clear(engine->handles[i]);
            kb_release(heap, engine->handles[i]);
        }
    kb_release(heap, engine->handles);
    kb_release(heap, engine->free_handles);
    kb_symbols_free(engine);
    last = *heap;                     /* the heap is inside the block that is freed last */
    kb_release(&last, engine);
}

kb_relation *kb_engine_relation(const kb_engine *engine, kb_rel rel)
{
    uint32_t place = (uint32_t)rel & PLACE_MASK;
    kb_relation *relation;

    if (engine == NULL || place == 0 || place >= engine->handle_count)
        return NULL;
    relation = engine->handles[place];
    return relation != NULL && relation->handle == rel ? relation : NULL;
}

kb_status kb_engine_bind(kb_engine *engine, kb_relation *relation)
{
    uint32_t place;

    if (engine->free_count != 0) {
        place = engine->free_handles[--engine->free_count];
    } else {
        uint32_t count = engine->handle_count == 0 ? 1 : engine->handle_count;
        size_t have = engine->free_handles == NULL ? 0 : kb_capacity(engine->free_handles) / sizeof *engine->free_handles;

        if (count >= have) {
            size_t room = (size_t)kb_grow_capacity(have, count + 1u, 8);
            void *block;

            if (count >= PLACE_MASK)
                return KB_NOMEM;
            if ((block = kb_resize(&engine->heap, engine->handles, room, sizeof *engine->handles)) == NULL)
                return KB_NOMEM;
            engine->handles = block;
            if ((block = kb_resize(&engine->heap, engine->free_handles, room, sizeof *engine->free_handles)) == NULL)
                return KB_NOMEM;
            engine->free_handles = block;   /* last, because its capacity stands for both */
        }
        place = count;
        engine->handles[0] = NULL;
        engine->handle_count = place + 1;
    }
    engine->handles[place] = relation;
    relation->handle = (kb_rel)++engine->binding << PLACE_BITS | place;
    return KB_OK;
}

void kb_engine_unbind(kb_engine *engine, kb_relation *relation)
{
    uint32_t place = (uint32_t)relation->handle & PLACE_MASK;

    if (place == 0)
        return;
    engine->handles[place] = NULL;
    engine->free_handles[engine->free_count++] = place;
    relation->handle = 0;
}

void kb_engine_release(kb_engine *engine)
{
    if (--engine->open_runs == 0 && engine->closed)
        engine_free(engine);
}

kb_status kb_engine_open(const kb_options *options, kb_engine **out)
{
    kb_heap heap;
    kb_engine *engine;

    if (out == NULL)
        return KB_MISUSE;
    memset(&heap, 0, sizeof heap);
    if (options != NULL) {
        heap.max = options->max_bytes;
        heap.fail_after = options->fail_after;
    }
    engine = kb_alloc(&heap, 1, sizeof *engine);
    if (engine == NULL)
        return KB_NOMEM;
    engine->heap = heap;
    engine->threads = options == NULL || options->threads == 0 ? 1
                      : options->threads < KB_TEAM_THREADS ? options->threads : KB_TEAM_THREADS;
    /* random, so that clients cannot choose texts that collide */
    engine->symbols.seed = kb_mix((uint64_t)(uintptr_t)engine);
    *out = engine;
    return KB_OK;
}

void kb_engine_close(kb_engine *engine)
{
    if (engine == NULL || engine->closed)
        return;
    engine->closed = 1;
    if (engine->open_runs == 0)
        engine_free(engine);
}

uint64_t kb_engine_bytes(const kb_engine *engine)
{
    return engine == NULL ? 0 : engine->heap.used;
}

void kb_engine_fail_after(kb_engine *engine, uint64_t allocations)
{
    if (engine != NULL)
        engine->heap.fail_after = allocations;
}
