/* memory.c - the only allocator of the engine.
 * Owns: the count of every byte allocated, the byte budgets, failure on demand for tests. Never:
 * decides what to do when out of memory; it returns NULL and changes nothing. */
#include "internal.h"
#include <stdlib.h>

/* Each block has its size in front of it, so that freeing and growing need no table. */
typedef union kb_header {
    uint64_t size;
    max_align_t align;
} kb_header;

static int heap_take(kb_heap *heap, uint64_t size)
{
    for (kb_heap *h = heap; h != NULL; h = h->parent) {
        if (h->fail_after != 0 && --h->fail_after == 0)
            return 0;
        if (h->max != 0 && (size > h->max || h->used > h->max - size)) {
            h->refused = 1;
            return 0;
        }
    }
    for (kb_heap *h = heap; h != NULL; h = h->parent)
        h->used += size;
    return 1;
}

static void heap_give(kb_heap *heap, uint64_t size)
{
    for (kb_heap *h = heap; h != NULL; h = h->parent)
        h->used -= size;
}

static int size_of(size_t count, size_t size, size_t *out)
{
    if (size != 0 && count > (SIZE_MAX - sizeof(kb_header)) / size)
        return 0;
    *out = count * size + sizeof(kb_header);
    return 1;
}

void *kb_alloc(kb_heap *heap, size_t count, size_t size)
{
    kb_header *header;
    size_t bytes;

    if (!size_of(count, size, &bytes) || !heap_take(heap, bytes))
        return NULL;
    header = calloc(1, bytes);
    if (header == NULL) {
        heap_give(heap, bytes);
        return NULL;
    }
    header->size = bytes;
    return header + 1;
}

void *kb_resize(kb_heap *heap, void *block, size_t count, size_t size)
{
    kb_header *header = block == NULL ? NULL : (kb_header *)block - 1;
    uint64_t had = header == NULL ? 0 : header->size;
    size_t bytes;

    if (!size_of(count, size, &bytes))
        return NULL;
    if (bytes > had && !heap_take(heap, bytes - had))
        return NULL;
    header = realloc(header, bytes);
    if (header == NULL) {
        if (bytes > had)
            heap_give(heap, bytes - had);
        return NULL;
    }
    if (bytes < had)
        heap_give(heap, had - bytes);
    header->size = bytes;
    return header + 1;
}

void kb_release(kb_heap *heap, void *block)
{
    kb_header *header;

    if (block == NULL)
        return;
    header = (kb_header *)block - 1;
    heap_give(heap, header->size);
    free(header);
}

int kb_heap_charge(kb_heap *heap, uint64_t size)
{
    if (heap->max != 0 && (size > heap->max || heap->used > heap->max - size)) {
        heap->refused = 1;
        return 0;
    }
    heap->used += size;
    return 1;
}

/* Doubles while small, then grows by a quarter: large blocks move by remapping pages, and memory is
 * scarce. */
uint64_t kb_grow_capacity(uint64_t now, uint64_t need, uint64_t least)
{
    uint64_t next = now < 4096 ? now * 2 : now + now / 4;

    if (next < least)
        next = least;
    return next < need ? need : next;
}

size_t kb_capacity(const void *block)
{
    return (size_t)(((const kb_header *)block - 1)->size - sizeof(kb_header));
}

uint64_t kb_block_bytes(const void *block)
{
    return block == NULL ? 0 : ((const kb_header *)block - 1)->size;
}
