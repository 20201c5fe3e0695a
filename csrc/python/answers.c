/* answers.c - the extension module kbplanner._answers: answers as Python objects and as Arrow.
 * Owns: texts, tuples, and the structs of the Arrow C data interface (arrow.apache.org/docs/format/
 * CDataInterface.html), whose memory a consumer may release in any thread, without the interpreter.
 * Never: calls the engine; its arguments are arrays that the engine has filled.
 * Uses the limited API of Python 3.10: one build serves later versions. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- the Arrow C data interface: these three structs are its ABI --- */

#define ARROW_FLAG_NULLABLE 2

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#define ALIGNMENT 64u                 /* of a buffer, as the format recommends */
#define MAX_BUFFERS 3

static void release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++)
        if (schema->children[i] != NULL) {
            if (schema->children[i]->release != NULL)
                schema->children[i]->release(schema->children[i]);
            free(schema->children[i]);
        }
    if (schema->dictionary != NULL) {
        if (schema->dictionary->release != NULL)
            schema->dictionary->release(schema->dictionary);
        free(schema->dictionary);
    }
    free(schema->children);
    free(schema->private_data);
    schema->release = NULL;
}

static void release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i] != NULL) {
            if (array->children[i]->release != NULL)
                array->children[i]->release(array->children[i]);
            free(array->children[i]);
        }
    if (array->dictionary != NULL) {
        if (array->dictionary->release != NULL)
            array->dictionary->release(array->dictionary);
        free(array->dictionary);
    }
    free(array->children);
    free(array->private_data);
    array->release = NULL;
}

/* Begin a schema with room for children. Returns 0 if out of memory; then it can be released. */
static int begin_schema(struct ArrowSchema *out, const char *format, const char *name, int64_t flags, int64_t n_children)
{
    size_t format_size = strlen(format) + 1, name_size = strlen(name) + 1;
    char *texts = malloc(format_size + name_size);

    memset(out, 0, sizeof *out);
    out->release = release_schema;
    out->private_data = texts;
    out->flags = flags;
    if (n_children != 0 && (out->children = calloc((size_t)n_children, sizeof *out->children)) == NULL)
        return 0;
    out->n_children = n_children;
    if (texts == NULL)
        return 0;
    memcpy(texts, format, format_size);
    memcpy(texts + format_size, name, name_size);
    out->format = texts;
    out->name = texts + format_size;
    return 1;
}

static int copy_schema(const struct ArrowSchema *from, struct ArrowSchema *to)
{
    if (!begin_schema(to, from->format, from->name, from->flags, from->n_children))
        return 0;
    for (int64_t i = 0; i < from->n_children; i++)
        if ((to->children[i] = calloc(1, sizeof *to)) == NULL || !copy_schema(from->children[i], to->children[i]))
            return 0;
    return from->dictionary == NULL
        || ((to->dictionary = calloc(1, sizeof *to)) != NULL && copy_schema(from->dictionary, to->dictionary));
}

/* --- columns, as kbplanner.engine.arrow describes them --- */

/* Read the bytes of a bytes object or a bytearray; None has none. Returns 0 with an exception
 * set. */
static int bytes_of(PyObject *object, const char **bytes, Py_ssize_t *size)
{
    *bytes = NULL;
    *size = 0;
    if (object == Py_None)
        return 1;
    if (PyObject_TypeCheck(object, &PyByteArray_Type)) {
        *size = PyByteArray_Size(object);
        *bytes = PyByteArray_AsString(object);
        return 1;
    }
    return PyBytes_AsStringAndSize(object, (char **)bytes, size) == 0;
}

/* Copy the buffers, a tuple, into one block. Returns 0 with an exception set; then `out` can be
 * released. */
static int begin_array(struct ArrowArray *out, int64_t length, int64_t null_count, PyObject *buffers)
{
    Py_ssize_t count = buffers == NULL ? 1 : PyTuple_Size(buffers), size;
    size_t total = MAX_BUFFERS * sizeof(void *) + ALIGNMENT;
    const char *bytes;
    char *at;

    memset(out, 0, sizeof *out);
    out->release = release_array;
    if (count < 0 || count > MAX_BUFFERS) {
        PyErr_SetString(PyExc_ValueError, "an array has a tuple of at most three buffers");
        return 0;
    }
    for (Py_ssize_t i = 0; buffers != NULL && i < count; i++) {
        if (!bytes_of(PyTuple_GetItem(buffers, i), &bytes, &size))
            return 0;
        total += (size_t)size + ALIGNMENT;
    }
    if ((out->private_data = malloc(total)) == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    out->length = length;
    out->null_count = null_count;
    out->n_buffers = count;
    out->buffers = out->private_data;
    out->buffers[0] = NULL;
    at = (char *)out->private_data + MAX_BUFFERS * sizeof(void *);
    for (Py_ssize_t i = 0; buffers != NULL && i < count; i++) {
        PyObject *buffer = PyTuple_GetItem(buffers, i);

        if (!bytes_of(buffer, &bytes, &size))
            return 0;
        at += ALIGNMENT - (uintptr_t)at % ALIGNMENT;
        if (size != 0)
            memcpy(at, bytes, (size_t)size);
        out->buffers[i] = buffer == Py_None ? NULL : at;
        at += size;
    }
    return 1;
}

/* A column: name, format, nullable, null count, buffers, and None or the dictionary: format,
 * length, buffers. `schema` or `array` may be NULL. Returns 0 with an exception set. */
static int read_column(PyObject *column, int64_t length, struct ArrowSchema *schema, struct ArrowArray *array)
{
    const char *name, *format, *values_format;
    int is_nullable;
    long long null_count, values_length;
    PyObject *buffers, *dictionary, *values;

    if (!PyArg_ParseTuple(column, "sspLO!O", &name, &format, &is_nullable, &null_count, &PyTuple_Type, &buffers, &dictionary))
        return 0;
    if (schema != NULL && !begin_schema(schema, format, name, is_nullable ? ARROW_FLAG_NULLABLE : 0, 0)) {
        PyErr_NoMemory();
        return 0;
    }
    if (array != NULL && !begin_array(array, length, null_count, buffers))
        return 0;
    if (dictionary == Py_None)
        return 1;
    if (!PyArg_ParseTuple(dictionary, "sLO!", &values_format, &values_length, &PyTuple_Type, &values))
        return 0;
    if (schema != NULL && ((schema->dictionary = calloc(1, sizeof *schema)) == NULL
                           || !begin_schema(schema->dictionary, values_format, "", 0, 0))) {
        PyErr_NoMemory();
        return 0;
    }
    if (array == NULL)
        return 1;
    if ((array->dictionary = calloc(1, sizeof *array)) == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    return begin_array(array->dictionary, values_length, 0, values);
}

/* A struct of all columns, which is how the interface represents a record batch. */
static int read_table(PyObject *columns, int64_t length, struct ArrowSchema *schema, struct ArrowArray *array)
{
    Py_ssize_t count = PyList_Size(columns);

    if (count < 0)
        return 0;
    if (!begin_schema(schema, "+s", "", 0, count)) {
        PyErr_NoMemory();
        return 0;
    }
    if (array != NULL) {
        if (!begin_array(array, length, 0, NULL))
            return 0;
        if (count != 0 && (array->children = calloc((size_t)count, sizeof *array->children)) == NULL) {
            PyErr_NoMemory();
            return 0;
        }
        array->n_children = count;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        schema->children[i] = calloc(1, sizeof *schema);
        if (array != NULL)
            array->children[i] = calloc(1, sizeof *array);
        if (schema->children[i] == NULL || (array != NULL && array->children[i] == NULL)) {
            PyErr_NoMemory();
            return 0;
        }
        if (!read_column(PyList_GetItem(columns, i), length, schema->children[i], array == NULL ? NULL : array->children[i]))
            return 0;
    }
    return 1;
}

/* --- capsules --- */

static void free_schema_capsule(PyObject *capsule)
{
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");

    if (schema->release != NULL)
        schema->release(schema);
    free(schema);
}

static PyObject *arrow_schema(PyObject *module, PyObject *args)
{
    PyObject *columns, *capsule = NULL;
    struct ArrowSchema *schema;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!:arrow_schema", &PyList_Type, &columns))
        return NULL;
    if ((schema = calloc(1, sizeof *schema)) == NULL)
        return PyErr_NoMemory();
    if (read_table(columns, 0, schema, NULL))
        capsule = PyCapsule_New(schema, "arrow_schema", free_schema_capsule);
    if (capsule == NULL) {
        if (schema->release != NULL)
            schema->release(schema);
        free(schema);
    }
    return capsule;
}

typedef struct table {                /* of a stream: one batch */
    struct ArrowSchema schema;
    struct ArrowArray array;          /* released once it was handed out */
} table;

static int stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    table *rows = stream->private_data;

    if (copy_schema(&rows->schema, out))
        return 0;
    out->release(out);
    return ENOMEM;
}

static int stream_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    table *rows = stream->private_data;

    *out = rows->array;               /* at the end: a released array */
    memset(&rows->array, 0, sizeof rows->array);
    return 0;
}

static const char *stream_error(struct ArrowArrayStream *stream)
{
    (void)stream;
    return "out of memory";
}

static void release_table(table *rows)
{
    if (rows->schema.release != NULL)
        rows->schema.release(&rows->schema);
    if (rows->array.release != NULL)
        rows->array.release(&rows->array);
    free(rows);
}

static void release_stream(struct ArrowArrayStream *stream)
{
    release_table(stream->private_data);
    stream->release = NULL;
}

static void free_stream_capsule(PyObject *capsule)
{
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");

    if (stream->release != NULL)
        stream->release(stream);
    free(stream);
}

static PyObject *arrow_stream(PyObject *module, PyObject *args)
{
    PyObject *columns, *capsule = NULL;
    struct ArrowArrayStream *stream;
    table *rows;
    long long length;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!L:arrow_stream", &PyList_Type, &columns, &length))
        return NULL;
    stream = calloc(1, sizeof *stream);
    rows = calloc(1, sizeof *rows);
    if (stream == NULL || rows == NULL) {
        PyErr_NoMemory();
    } else if (read_table(columns, length, &rows->schema, &rows->array)) {
        stream->get_schema = stream_schema;
        stream->get_next = stream_next;
        stream->get_last_error = stream_error;
        stream->release = release_stream;
        stream->private_data = rows;
        capsule = PyCapsule_New(stream, "arrow_array_stream", free_stream_capsule);
    }
    if (capsule == NULL) {
        if (rows != NULL)
            release_table(rows);
        free(stream);
    }
    return capsule;
}

/* --- Python objects --- */

static PyObject *texts(PyObject *module, PyObject *args)
{
    PyObject *bytes, *ends, *list;
    const int32_t *offsets;
    const char *text;
    Py_ssize_t count, size;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!:texts", &PyByteArray_Type, &bytes, &PyByteArray_Type, &ends))
        return NULL;
    text = PyByteArray_AsString(bytes);
    size = PyByteArray_Size(bytes);
    offsets = (const int32_t *)(const void *)PyByteArray_AsString(ends);
    count = PyByteArray_Size(ends) / (Py_ssize_t)sizeof *offsets - 1;
    if (count < 0 || offsets[0] != 0) {
        PyErr_SetString(PyExc_ValueError, "the first offset must be 0");
        return NULL;
    }
    if ((list = PyList_New(count)) == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name;

        if (offsets[i + 1] < offsets[i] || offsets[i + 1] > size) {
            PyErr_SetString(PyExc_ValueError, "an offset is out of range");
            name = NULL;
        } else {
            name = PyUnicode_FromStringAndSize(text + offsets[i], offsets[i + 1] - offsets[i]);
        }
        if (name == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, i, name);
    }
    return list;
}

static PyObject *tuple_of(const uint32_t *codes, Py_ssize_t arity, PyObject **values, Py_ssize_t value_count)
{
    PyObject *tuple = PyTuple_New(arity);

    for (Py_ssize_t i = 0; tuple != NULL && i < arity; i++) {
        if (codes[i] >= (size_t)value_count) {
            Py_DECREF(tuple);
            PyErr_SetString(PyExc_IndexError, "a code is out of range");
            return NULL;
        }
        Py_INCREF(values[codes[i]]);
        PyTuple_SetItem(tuple, i, values[codes[i]]);
    }
    return tuple;
}

static PyObject *tuples(PyObject *module, PyObject *args)
{
    PyObject *bytes, *names, *list = NULL, **values;
    const uint32_t *codes;
    Py_ssize_t arity, start, stop, value_count;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!nnn:tuples", &PyByteArray_Type, &bytes, &PyList_Type, &names, &arity, &start, &stop))
        return NULL;
    codes = (const uint32_t *)(const void *)PyByteArray_AsString(bytes);
    if (arity <= 0 || start < 0 || stop < start || stop > PyByteArray_Size(bytes) / (Py_ssize_t)sizeof *codes / arity) {
        PyErr_SetString(PyExc_ValueError, "the codes have fewer rows");
        return NULL;
    }
    value_count = PyList_Size(names);
    if ((values = malloc(((size_t)value_count + 1) * sizeof *values)) == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < value_count; i++)
        values[i] = PyList_GetItem(names, i);
    list = PyList_New(stop - start);
    for (Py_ssize_t row = start; list != NULL && row < stop; row++) {
        PyObject *tuple = tuple_of(codes + row * arity, arity, values, value_count);

        if (tuple == NULL) {
            Py_DECREF(list);
            list = NULL;
        } else {
            PyObject_GC_UnTrack(tuple);   /* texts and numbers only: it is in no cycle */
            PyList_SetItem(list, row - start, tuple);
        }
    }
    free(values);
    return list;
}

/* Return a copy of a template with the values of a row of the columns, lists. */
static PyObject *dict_of(PyObject *template, PyObject *keys, PyObject *columns, Py_ssize_t row)
{
    PyObject *dict = PyDict_Copy(template);

    for (Py_ssize_t i = 0, width = PyTuple_Size(keys); dict != NULL && i < width; i++)
        if (PyDict_SetItem(dict, PyTuple_GetItem(keys, i), PyList_GetItem(PyTuple_GetItem(columns, i), row)) != 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *dicts(PyObject *module, PyObject *args)
{
    PyObject *template, *keys, *columns, *list;
    Py_ssize_t count;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!nO!O!:dicts", &PyDict_Type, &template, &count, &PyTuple_Type, &keys, &PyTuple_Type, &columns))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(columns); i++)
        if (!PyList_Check(PyTuple_GetItem(columns, i)) || PyList_Size(PyTuple_GetItem(columns, i)) < count)
            count = -1;
    if (count < 0 || PyTuple_Size(columns) != PyTuple_Size(keys)) {
        PyErr_SetString(PyExc_ValueError, "a column has fewer values, or no key");
        return NULL;
    }
    list = PyList_New(count);
    for (Py_ssize_t row = 0; list != NULL && row < count; row++) {
        PyObject *dict = dict_of(template, keys, columns, row);

        if (dict == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, row, dict);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"arrow_schema", arrow_schema, METH_VARARGS, "arrow_schema(columns): a capsule with an ArrowSchema"},
    {"arrow_stream", arrow_stream, METH_VARARGS, "arrow_stream(columns, length): a capsule with an ArrowArrayStream"},
    {"dicts", dicts, METH_VARARGS, "dicts(template, count, keys, columns): copies of a dict with a value of each column"},
    {"texts", texts, METH_VARARGS, "texts(bytes, offsets): the texts between the offsets"},
    {"tuples", tuples, METH_VARARGS, "tuples(codes, values, arity, start, stop): rows of values"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_answers", "Answers as Python objects and as Arrow.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__answers(void)
{
    return PyModuleDef_Init(&definition);
}
