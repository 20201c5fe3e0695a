/* json.c - answers as the JSON text that leaves the server, written once, straight from the symbols.
 * Owns: how a text and an integer look in JSON (RFC 8259, escapes as short as they can be). Never: what the keys
 * of a row are called; the pieces between the values come from the caller. */
#include "internal.h"

#define NUMBER_ROOM 20u               /* the longest 64-bit integer, with its sign */
#define ESCAPE_ROOM 6u                /* \u00XX */

typedef struct kb_writer {
    char *at, *end;
} kb_writer;

/* 0: goes out as it is; 'u': \u00XX; else the letter after the backslash */
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

static int put_text(kb_writer *writer, const char *text, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    char *at = writer->at;
    size_t room = (size_t)(writer->end - at);

    if (room < 2 || len > (room - 2) / ESCAPE_ROOM)
        return 0;                     /* perhaps it would fit; the next slice has room for it in any case */
    *at++ = '"';
    for (size_t i = 0; i < len; i++) {
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
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (value < 0)
        digits[--at] = '-';
    return put(writer, digits + at, sizeof digits - at);
}

static int put_optional(kb_writer *writer, int64_t value, int there)
{
    return there ? put_integer(writer, value) : put(writer, "null", 4);
}

static int64_t cell(const kb_relation *relation, uint32_t attribute, uint32_t id)
{
    return relation->columns[attribute] == NULL ? kb_attribute_default(attribute) : relation->columns[attribute][id];
}

/* The values after the arguments: the stored row's, or null for a row that was not asserted. */
static int put_values(kb_writer *writer, const kb_relation *stored, uint32_t id, const char *const *pieces, const size_t *lengths)
{
    int there = id != KB_NO_ROW;
    int64_t created = 0, from = 0, until = INT64_MAX, life = 0;

    if (there) {
        created = cell(stored, KB_CREATED_AT, id);
        from = cell(stored, KB_VALID_FROM, id);
        until = cell(stored, KB_VALID_UNTIL, id);
        life = cell(stored, KB_TTL, id);
    }
    return put(writer, pieces[KB_JSON_CREATED], lengths[KB_JSON_CREATED]) && put_optional(writer, created, there)
        && put(writer, pieces[KB_JSON_FROM], lengths[KB_JSON_FROM])
        && put_optional(writer, from == 0 ? created : from == KB_EPOCH ? 0 : from, there)
        && put(writer, pieces[KB_JSON_UNTIL], lengths[KB_JSON_UNTIL])
        && put_optional(writer, until, there && until != INT64_MAX)
        && put(writer, pieces[KB_JSON_TTL], lengths[KB_JSON_TTL]) && put_optional(writer, life, life != 0)
        && put(writer, pieces[KB_JSON_END], lengths[KB_JSON_END]);
}

static int put_row(kb_writer *writer, const kb_engine *engine, const kb_relation *stored, const kb_sym *row, uint32_t arity,
                   const char *const *pieces, const size_t *lengths)
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
    return put_values(writer, stored, id, pieces, lengths);
}

kb_status kb_rows_json(const kb_engine *engine, kb_rel stored, const kb_sym *rows, uint32_t arity, size_t count,
                       const char *const *pieces, const size_t *lengths, char *bytes, size_t room, size_t *done, size_t *written)
{
    const kb_relation *relation = NULL;
    kb_writer writer = {bytes, bytes + room};
    size_t i;

    if (engine == NULL || pieces == NULL || lengths == NULL || bytes == NULL || done == NULL || written == NULL
        || arity > KB_MAX_ARITY || (rows == NULL && arity != 0 && count != 0))
        return KB_MISUSE;
    if (stored != 0) {
        relation = kb_engine_readable(engine, stored);
        if (relation == NULL || relation->owned || relation->arity != arity || relation->columns[KB_CONFIDENCE] != NULL)
            return KB_MISUSE;
    }
    for (size_t j = 0; j < count * arity; j++)
        if (rows[j] - 1 >= engine->symbols.count)
            return KB_MISUSE;
    for (i = 0; i < count; i++) {
        char *start = writer.at;

        if ((i != 0 && !put(&writer, ",", 1))
            || !put_row(&writer, engine, relation, rows + i * arity, arity, pieces, lengths)) {
            writer.at = start;
            break;
        }
    }
    *done = i;
    *written = (size_t)(writer.at - bytes);
    return KB_OK;
}
