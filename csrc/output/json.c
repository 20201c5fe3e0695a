/* json.c - answers as JSON text, written once, directly from the symbols.
 * Owns: the JSON form of a text and an integer (RFC 8259, with the shortest escapes). Never: names
 * the keys of a row; the caller passes the pieces between the values. */
#include "internal.h"

#define NUMBER_ROOM 20u               /* the longest 64-bit integer, with its sign */
#define ESCAPE_ROOM 6u                /* \u00XX */
#define TAIL_ROOM 512u                /* bytes that follow the arguments, usually about 120 */

typedef struct kb_writer {
    char *at, *end;
} kb_writer;

/* 0: written as it is; 'u': as \u00XX; otherwise the letter after the backslash */
static const char escapes[256] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b', 't', 'n', 'u', 'f', 'r', 'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    ['"'] = '"', ['\\'] = '\\',
};

static int put(kb_writer *writer, const char *bytes, size_t len)
{
    if (len > (size_t)(writer->end - writer->at))
        return 0;
    if (len != 0)
        memcpy(writer->at, bytes, len);
    writer->at += len;
    return 1;
}

/* Return 1 if none of 8 bytes is escaped: no byte is below 0x20, a quote or a backslash. */
static int is_plain_word(const char *text)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t word, quote, backslash;

    memcpy(&word, text, sizeof word);
    quote = word ^ ones * '"';
    backslash = word ^ ones * '\\';
    return ((((word - ones * 0x20) | (quote - ones) | (backslash - ones)) & ~word) & tops) == 0;
}

static int put_text(kb_writer *writer, const char *text, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    char *at = writer->at;
    size_t room = (size_t)(writer->end - at), i = 0;

    if (room < 2 || len > (room - 2) / ESCAPE_ROOM)
        return 0;                     /* it might fit, but the next slice has space in any case */
    *at++ = '"';
    for (; len - i >= 8 && is_plain_word(text + i); i += 8, at += 8)
        memcpy(at, text + i, 8);
    for (; i < len; i++) {
        char escape = escapes[(unsigned char)text[i]];

        if (escape == 0) {
            *at++ = text[i];
            continue;
        }
        *at++ = '\\';
        *at++ = escape;
        if (escape == 'u') {
            memcpy(at, "00", 2);
            at[2] = digits[(unsigned char)text[i] >> 4];
            at[3] = digits[(unsigned char)text[i] & 15];
            at += 4;
        }
    }
    *at++ = '"';
    writer->at = at;
    return 1;
}

static int put_integer(kb_writer *writer, int64_t value)
{
    char digits[NUMBER_ROOM];

    return put(writer, digits, kb_integer_text(value, digits));
}

static int put_optional(kb_writer *writer, int64_t value, int is_stored)
{
    return is_stored ? put_integer(writer, value) : put(writer, "null", 4);
}

/* Write the attributes of the stored row, or null for a row that was not asserted. */
static int put_values(kb_writer *writer, const kb_relation *stored, uint32_t id, const char *const *pieces, const size_t *lengths)
{
    int is_stored = id != KB_NO_ROW;
    int64_t created = 0, from = 0, until = INT64_MAX, life = 0;

    if (is_stored) {
        created = kb_attribute_cell(stored, KB_CREATED_AT, id);
        from = kb_attribute_cell(stored, KB_VALID_FROM, id);
        until = kb_attribute_cell(stored, KB_VALID_UNTIL, id);
        life = kb_attribute_cell(stored, KB_TTL, id);
    }
    return put(writer, pieces[KB_JSON_CREATED], lengths[KB_JSON_CREATED]) && put_optional(writer, created, is_stored)
        && put(writer, pieces[KB_JSON_FROM], lengths[KB_JSON_FROM])
        && put_optional(writer, from == 0 ? created : from == KB_EPOCH ? 0 : from, is_stored)
        && put(writer, pieces[KB_JSON_UNTIL], lengths[KB_JSON_UNTIL])
        && put_optional(writer, until, is_stored && until != INT64_MAX)
        && put(writer, pieces[KB_JSON_TTL], lengths[KB_JSON_TTL]) && put_optional(writer, life, life != 0)
        && put(writer, pieces[KB_JSON_END], lengths[KB_JSON_END]);
}

/* What follows the arguments of a row that was not asserted is the same for all of them. `tail` has
 * space for TAIL_ROOM bytes; returns 0 if it does not fit. */
static size_t constant_tail(char *tail, const char *const *pieces, const size_t *lengths)
{
    kb_writer writer = {tail, tail + TAIL_ROOM};

    return put_values(&writer, NULL, KB_NO_ROW, pieces, lengths) ? (size_t)(writer.at - tail) : 0;
}

static int put_row(kb_writer *writer, const kb_engine *engine, const kb_relation *stored, const kb_sym *row, uint32_t arity,
                   const char *const *pieces, const size_t *lengths, const char *tail, size_t tail_len)
{
    uint32_t id = KB_NO_ROW;

    if (!put(writer, pieces[KB_JSON_HEAD], lengths[KB_JSON_HEAD]))
        return 0;
    for (uint32_t i = 0; i < arity; i++) {
        const char *text;
        size_t len;

        kb_symbol_get(&engine->symbols, row[i], &text, &len, NULL);
        if ((i != 0 && !put(writer, ",", 1)) || !put_text(writer, text, len))
            return 0;
    }
    if (stored != NULL) {
        id = kb_relation_find(stored, row, kb_hash_row(row, arity));
        if (id != KB_NO_ROW && !kb_visible(stored, id))
            id = KB_NO_ROW;
    }
    if (id == KB_NO_ROW && tail_len != 0)
        return put(writer, tail, tail_len);
    return put_values(writer, stored, id, pieces, lengths);
}

/* Find the relation in which rows of this arity may be stored; 0 names none. */
static kb_status find_stored(const kb_engine *engine, kb_rel stored, uint32_t arity, kb_relation **out)
{
    kb_status status;

    *out = NULL;
    if (stored == 0)
        return KB_OK;
    if ((status = kb_engine_readable(engine, stored, out)) < 0)
        return status;
    return (*out)->owned || (*out)->arity != arity || (*out)->columns[KB_CONFIDENCE] != NULL ? KB_MISUSE : KB_OK;
}

kb_status kb_rows_json(const kb_engine *engine, kb_rel stored, const kb_sym *rows, uint32_t arity, size_t count,
                       const char *const *pieces, const size_t *lengths, char *bytes, size_t room, size_t *done, size_t *written)
{
    kb_relation *relation;
    kb_status status;
    kb_writer writer = {bytes, bytes + room};
    char tail[TAIL_ROOM];
    size_t i, tail_len;

    if (engine == NULL || pieces == NULL || lengths == NULL || bytes == NULL || done == NULL || written == NULL
        || arity > KB_MAX_ARITY || (rows == NULL && arity != 0 && count != 0))
        return KB_MISUSE;
    if ((status = find_stored(engine, stored, arity, &relation)) < 0)
        return status;
    tail_len = constant_tail(tail, pieces, lengths);
    for (i = 0; i < count; i++) {
        char *start = writer.at;

        if (!kb_symbols_exist(engine, rows + i * arity, arity))
            return KB_MISUSE;         /* each row is checked once, not again in every later slice */
        if ((i != 0 && !put(&writer, ",", 1))
            || !put_row(&writer, engine, relation, rows + i * arity, arity, pieces, lengths, tail, tail_len)) {
            writer.at = start;
            break;
        }
    }
    *done = i;
    *written = (size_t)(writer.at - bytes);
    return KB_OK;
}
