/* blocks.c - the set of a run's own relation as bits.
 * Owns: the table of blocks, and the choice between it and the table of row ids. Never: holds the set of a base
 * relation, whose rows are asked for by their id and may be deleted.
 * A block is 64 neighbouring values of the last column under one value of the first, as bits: names that come in
 * together get neighbouring symbols, so that a closure fills its blocks, and to ask whether a pair is there reads
 * one place where a table of ids reads two, in a table that is many times smaller. Where the blocks stay nearly
 * empty they cost more than they give, and the table of ids is kept. */
#include "internal.h"

#define DENSE 4u                      /* rows a block has to hold for the change to blocks */
#define SPARSE 2u                     /* fewer than this, and the change is taken back */

static void put(kb_block *blocks, uint32_t mask, const kb_block *block)
{
    uint32_t at = (uint32_t)kb_mix(block->key) & mask;

    while (blocks[at].key != 0)
        at = (at + 1) & mask;
    blocks[at] = *block;
}

/* A table of twice the size, or at first of 64. */
static kb_status grow(kb_relation *relation)
{
    uint64_t size = relation->blocks == NULL ? 64 : (relation->block_mask + UINT64_C(1)) * 2;
    kb_block *blocks;

    if (size > UINT64_C(0x80000000) || (blocks = kb_alloc(relation->heap, (size_t)size, sizeof *blocks)) == NULL)
        return KB_NOMEM;
    if (relation->blocks != NULL)
        for (uint32_t i = 0; i <= relation->block_mask; i++)
            if (relation->blocks[i].key != 0)
                put(blocks, (uint32_t)(size - 1), relation->blocks + i);
    kb_release(relation->heap, relation->blocks);
    relation->blocks = blocks;
    relation->block_mask = (uint32_t)(size - 1);
    return KB_OK;
}

kb_status kb_blocks_reserve(kb_relation *relation)
{
    if (relation->block_count < (relation->block_mask + UINT64_C(1)) / 2)
        return KB_OK;
    if (relation->rows / SPARSE < relation->block_count && kb_relation_place(relation) == KB_OK) {
        kb_blocks_free(relation);
        return KB_OK;
    }
    return grow(relation);
}

void kb_blocks_free(kb_relation *relation)
{
    kb_release(relation->heap, relation->blocks);
    relation->blocks = NULL;
    relation->block_mask = relation->block_count = 0;
}

void kb_blocks_remove(kb_relation *relation, const kb_sym *row)
{
    uint64_t key = kb_block_key(row, relation->arity);

    kb_block_seek(relation, key, kb_mix(key))->bits &= ~kb_block_bit(row, relation->arity);
}

kb_status kb_blocks_forbid(kb_relation *relation)
{
    if (relation->blocks != NULL && kb_relation_place(relation) < 0)
        return KB_NOMEM;
    relation->by_id = 1;
    kb_blocks_free(relation);
    return KB_OK;
}

int kb_blocks_try(kb_relation *relation)
{
    if (!relation->owned || relation->by_id || relation->arity == 0 || relation->arity > 2)
        return 0;
    for (uint32_t id = 0; id < relation->rows; id++) {
        const kb_sym *row = relation->cells + (size_t)id * relation->arity;
        uint64_t key = kb_block_key(row, relation->arity);
        kb_block *block;

        if (relation->blocks == NULL || relation->block_count >= (relation->block_mask + UINT64_C(1)) / 2)
            if (grow(relation) < 0) {
                kb_blocks_free(relation);
                return 0;
            }
        block = kb_block_seek(relation, key, kb_mix(key));
        relation->block_count += block->key == 0;
        block->key = key;
        block->bits |= kb_block_bit(row, relation->arity);
        if (relation->block_count > relation->rows / DENSE) {
            kb_blocks_free(relation);
            return 0;
        }
    }
    kb_release(relation->heap, relation->slots);
    relation->slots = NULL;
    relation->slot_mask = relation->placed = 0;
    return 1;
}
