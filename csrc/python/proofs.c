/* proofs.c - the extension module kbplanner._proofs: proofs as Python dicts, from columns.
 * Owns: the order of the nodes of a proof tree or graph, and the dicts that represent them.
 * Never: calls the engine, or recurses along a proof.
 * Integers arrive as bytes of 32-bit numbers, because buffers are no part of the limited API of
 * Python 3.10: one build serves later versions. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define LEAF 0xFFFFFFFFu              /* in place of an instance or step: no rule concludes the
                                       * node */
#define MISSING 0xFFFFFFFEu           /* in place of a step: not replayed yet */
#define ELIDED 0xFFFFFFFFu            /* in place of a first child: the node is cut */
#define RECORD_WORDS 3                /* of a queue: fact, level, first child */

/* --- arguments --- */

typedef struct words {
    const uint32_t *at;
    Py_ssize_t count;
} words;

/* For "O&": read bytes or a bytearray as 32-bit numbers. */
static int read_words(PyObject *object, void *out)
{
    words *numbers = out;
    char *bytes;
    Py_ssize_t size;

    if (PyObject_TypeCheck(object, &PyByteArray_Type)) {
        bytes = PyByteArray_AsString(object);
        size = PyByteArray_Size(object);
    } else if (PyBytes_AsStringAndSize(object, &bytes, &size) != 0) {
        return 0;
    }
    numbers->at = (const uint32_t *)(const void *)bytes;
    numbers->count = size / (Py_ssize_t)sizeof *numbers->at;
    return 1;
}

static PyObject *out_of_range(void)
{
    PyErr_SetString(PyExc_ValueError, "a number of the proof is out of range");
    return NULL;
}

/* --- the order of nodes --- */

typedef struct proof {                /* what a proof consists of, by number */
    words facts;                      /* the rule instance that concludes each fact; LEAF: none */
    words instances;                  /* the step of each rule instance, or MISSING */
    words ends, premises;             /* of each step */
} proof;

/* Return the step of a fact, LEAF or MISSING. */
static uint32_t step_of(const proof *p, uint32_t fact)
{
    uint32_t instance = p->facts.at[fact];

    return instance == LEAF ? LEAF : instance < (size_t)p->instances.count ? p->instances.at[instance] : MISSING;
}

/* Set the premises of a step. Returns 0 with an exception set. */
static int premises_of(const proof *p, uint32_t step, const uint32_t **premises, uint32_t *count)
{
    uint32_t start, end;

    if (step >= (size_t)p->ends.count) {
        out_of_range();
        return 0;
    }
    start = step == 0 ? 0 : p->ends.at[step - 1];
    end = p->ends.at[step];
    if (start > end || end > (size_t)p->premises.count) {
        out_of_range();
        return 0;
    }
    *premises = p->premises.at + start;
    *count = end - start;
    for (uint32_t i = 0; i < *count; i++)
        if ((*premises)[i] >= (size_t)p->facts.count) {
            out_of_range();
            return 0;
        }
    return 1;
}

static uint32_t *records_of(PyObject *queue)
{
    return (uint32_t *)(void *)PyByteArray_AsString(queue);
}

static Py_ssize_t record_count(PyObject *queue)
{
    return PyByteArray_Size(queue) / (Py_ssize_t)(RECORD_WORDS * sizeof(uint32_t));
}

/* Add `count` records to a queue. Returns NULL with an exception set, or the first new record. */
static uint32_t *add_records(PyObject *queue, uint32_t count)
{
    Py_ssize_t size = record_count(queue), record = RECORD_WORDS * (Py_ssize_t)sizeof(uint32_t);

    if (PyByteArray_Resize(queue, (size + (Py_ssize_t)count) * record) != 0)
        return NULL;
    return records_of(queue) + size * RECORD_WORDS;
}

/* Add the premises of one node of a tree that are conclusions. Returns 0 with an exception set. */
static int add_children(PyObject *queue, Py_ssize_t at, const proof *p, const uint32_t *premises, uint32_t count)
{
    uint32_t level = records_of(queue)[at * RECORD_WORDS + 1], derived = 0, *record;

    records_of(queue)[at * RECORD_WORDS + 2] = (uint32_t)record_count(queue);
    for (uint32_t i = 0; i < count; i++)
        derived += p->facts.at[premises[i]] != LEAF;
    if ((record = add_records(queue, derived)) == NULL)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (p->facts.at[premises[i]] != LEAF) {
            record[0] = premises[i];
            record[1] = level + 1;
            record[2] = ELIDED;
            record += RECORD_WORDS;
        }
    return 1;
}

/* Add the premises of one node of a graph that have no name yet, unless these are more than `room`.
 * Returns their number, `room` + 1 if they are too many, or -1 with an exception set. */
static int64_t add_lemmas(PyObject *queue, Py_ssize_t at, uint32_t *names, const uint32_t *premises, uint32_t count, int64_t room)
{
    uint32_t level = records_of(queue)[at * RECORD_WORDS + 1], first = (uint32_t)record_count(queue), unnamed = 0;
    uint32_t *record;

    for (uint32_t i = 0; i < count; i++)
        if (names[premises[i]] == 0)
            names[premises[i]] = first + ++unnamed;
    if (unnamed > room) {
        for (uint32_t i = 0; i < count; i++)
            if (names[premises[i]] > first)
                names[premises[i]] = 0;
        return room + 1;
    }
    records_of(queue)[at * RECORD_WORDS + 2] = first;
    if ((record = add_records(queue, unnamed)) == NULL)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        if (names[premises[i]] > first) {
            uint32_t *own = record + (size_t)(names[premises[i]] - first - 1) * RECORD_WORDS;

            own[0] = premises[i];
            own[1] = level + 1;
            own[2] = ELIDED;
        }
    return unnamed;
}

/* Process records of the queue from `at` on, at most `most` of them, breadth first. `names` is None
 * for a tree, for a graph the names of the facts. Stops at a fact whose step is not replayed. */
static PyObject *order(PyObject *module, PyObject *args)
{
    PyObject *queue, *names_object;
    uint32_t *names = NULL;
    Py_ssize_t at, stop;
    long long nodes, max_nodes, max_depth, most, missing = -1;
    proof p;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!OnLO&O&O&O&LLL:order", &PyByteArray_Type, &queue, &names_object, &at, &nodes,
                          read_words, &p.facts, read_words, &p.instances, read_words, &p.ends, read_words, &p.premises,
                          &max_nodes, &max_depth, &most))
        return NULL;
    if (names_object != Py_None) {
        if (!PyObject_TypeCheck(names_object, &PyByteArray_Type) || PyByteArray_Size(names_object) / 4 < p.facts.count)
            return out_of_range();
        names = records_of(names_object);
    }
    if (at < 0 || most <= 0)
        return out_of_range();
    for (stop = at + (Py_ssize_t)most; at < stop && at < record_count(queue); at++) {
        const uint32_t *record = records_of(queue) + at * RECORD_WORDS, *premises;
        uint32_t fact = record[0], step, count;

        if (fact >= (size_t)p.facts.count)
            return out_of_range();
        step = step_of(&p, fact);
        if (step == LEAF || record[1] >= max_depth)
            continue;
        if (step == MISSING) {
            missing = fact;
            break;
        }
        if (!premises_of(&p, step, &premises, &count))
            return NULL;
        if (names == NULL) {
            if (nodes + count > max_nodes)
                continue;
            if (!add_children(queue, at, &p, premises, count))
                return NULL;
            nodes += count;
        } else {
            int64_t room = max_nodes - nodes, added = add_lemmas(queue, at, names, premises, count, room < 0 ? 0 : room);

            if (added < 0)
                return NULL;
            nodes += added <= room ? added : 0;
        }
    }
    return Py_BuildValue("nLL", at, nodes, missing);
}

/* --- dicts --- */

/* Return a copy of template number `which`, a borrowed dict of a list; NULL with an exception
 * set. */
static PyObject *copy_of(PyObject *templates, size_t which)
{
    if (which >= (size_t)PyList_Size(templates))
        return out_of_range();
    return PyDict_Copy(PyList_GetItem(templates, (Py_ssize_t)which));
}

/* Set a value and release it, also if it is NULL. Returns 0 with an exception set. */
static int set_new(PyObject *dict, PyObject *key, PyObject *value)
{
    int is_set = value != NULL && PyDict_SetItem(dict, key, value) == 0;

    Py_XDECREF(value);
    return is_set;
}

/* Return the value of a number in a dict, borrowed; NULL if it has no value, or with an
 * exception. */
static PyObject *value_of(PyObject *dict, uint32_t number)
{
    PyObject *key, *value;

    if (PyDict_Size(dict) == 0 || (key = PyLong_FromUnsignedLong(number)) == NULL)
        return NULL;
    value = PyDict_GetItemWithError(dict, key);
    Py_DECREF(key);
    return value;
}

/* --- trees --- */

typedef struct tree {
    proof p;
    PyObject *args;                   /* by fact: its arguments, a tuple */
    words relations;                  /* by fact */
    PyObject *leaves;                 /* by fact: the row of a stored fact, or (goal, step) of a
                                       * test; None */
    PyObject *goals, *matches;        /* by relation: the row of a conclusion, the step of a stored
                                       * fact */
    words rules;                      /* by step */
    PyObject *applications, *items;   /* by rule: its step, and of each body item ((variable,
                                       * index), ...) */
    PyObject *bindings;               /* by step: a dict */
    PyObject *aggregates;             /* {step: further items of the dict of the step} */
    PyObject *node, *cut;             /* templates: of a node, of the step of an elided node */
    PyObject *queue, *nodes;          /* the queue, and by record the node; None if it is elided */
    PyObject *goal_key, *step_key, *substitution_key, *fact_key, *body_key, *args_key, *metadata_key;
} tree;

/* Return the values of the variables of a body item in a fact. */
static PyObject *matched(const tree *t, uint32_t fact, PyObject *item)
{
    PyObject *args = PyList_GetItem(t->args, fact), *values = PyDict_New();
    Py_ssize_t count = PyTuple_Size(item);

    for (Py_ssize_t i = 0; values != NULL && i < count; i++) {
        PyObject *name, *value;
        Py_ssize_t index;

        if (!PyArg_ParseTuple(PyTuple_GetItem(item, i), "Un", &name, &index)
            || (value = PyTuple_GetItem(args, index)) == NULL
            /* without a text it is unbound */
            || (PyUnicode_Check(value) && PyDict_SetItem(values, name, value) != 0)) {
            Py_DECREF(values);
            return NULL;
        }
    }
    return values;
}

/* Return the row of a conclusion. */
static PyObject *goal_of(const tree *t, uint32_t fact)
{
    PyObject *row = copy_of(t->goals, t->relations.at[fact]);

    if (row != NULL && (!set_new(row, t->args_key, PySequence_List(PyList_GetItem(t->args, fact)))
                        || !set_new(row, t->metadata_key, PyDict_New())))
        Py_CLEAR(row);
    return row;
}

/* Return a node; releases goal, step and substitution, which may be NULL with an exception set. */
static PyObject *node_of(const tree *t, PyObject *goal, PyObject *step, PyObject *substitution)
{
    PyObject *node = goal == NULL || step == NULL || substitution == NULL ? NULL : PyDict_Copy(t->node);

    if (node != NULL && (PyDict_SetItem(node, t->goal_key, goal) != 0 || PyDict_SetItem(node, t->step_key, step) != 0
                         || PyDict_SetItem(node, t->substitution_key, substitution) != 0))
        Py_CLEAR(node);
    Py_XDECREF(goal);
    Py_XDECREF(step);
    Py_XDECREF(substitution);
    return node;
}

static PyObject *leaf_of(const tree *t, uint32_t fact, PyObject *item)
{
    PyObject *leaf = PyList_GetItem(t->leaves, fact), *goal, *step, *substitution;

    if (PyTuple_Check(leaf)) {
        if (!PyArg_ParseTuple(leaf, "OO", &goal, &step))
            return NULL;
        Py_INCREF(step);
    } else {
        goal = leaf;
        step = copy_of(t->matches, t->relations.at[fact]);
        if (step != NULL && PyDict_SetItem(step, t->fact_key, leaf) != 0)
            Py_CLEAR(step);
        if (step == NULL)
            return NULL;
    }
    Py_INCREF(goal);
    substitution = matched(t, fact, item);
    return node_of(t, goal, step, substitution);
}

/* Return the node of a premise; `child` is the next record among the children of its conclusion. */
static PyObject *premise_of(const tree *t, uint32_t fact, uint32_t *child, PyObject *item)
{
    PyObject *node, *goal, *step;

    if (t->p.facts.at[fact] == LEAF)
        return leaf_of(t, fact, item);
    if (*child >= (size_t)PyList_Size(t->nodes))
        return out_of_range();
    node = PyList_GetItem(t->nodes, (*child)++);
    if (node != Py_None) {
        Py_INCREF(node);
        return node;
    }
    if ((goal = goal_of(t, fact)) == NULL)
        return NULL;
    step = PyDict_Copy(t->cut);
    return node_of(t, goal, step, step == NULL ? NULL : matched(t, fact, item));
}

static PyObject *body_of(const tree *t, uint32_t step, uint32_t child)
{
    PyObject *items, *body;
    const uint32_t *premises;
    uint32_t count;
    Py_ssize_t item_count;

    if (!premises_of(&t->p, step, &premises, &count) || t->rules.at[step] >= (size_t)PyList_Size(t->items))
        return PyErr_Occurred() ? NULL : out_of_range();
    items = PyList_GetItem(t->items, t->rules.at[step]);
    item_count = PyTuple_Size(items);
    if (item_count < 0 || (item_count == 0 && count != 0))
        return PyErr_Occurred() ? NULL : out_of_range();
    body = PyList_New(count);
    for (uint32_t i = 0; body != NULL && i < count; i++) {
        PyObject *node = premise_of(t, premises[i], &child, PyTuple_GetItem(items, i % item_count));

        if (node == NULL)
            Py_CLEAR(body);
        else
            PyList_SetItem(body, i, node);
    }
    return body;
}

/* Return the node of a conclusion whose premises are shown, from `child` on. */
static PyObject *conclusion_of(const tree *t, uint32_t fact, uint32_t child)
{
    uint32_t number = step_of(&t->p, fact);
    PyObject *step, *more, *goal, *bindings;

    if (number >= (size_t)t->rules.count || number >= (size_t)PyList_Size(t->bindings))
        return out_of_range();
    if ((step = copy_of(t->applications, t->rules.at[number])) == NULL)
        return NULL;
    if (!set_new(step, t->body_key, body_of(t, number, child)))
        Py_CLEAR(step);
    if (step == NULL)
        return NULL;
    more = value_of(t->aggregates, number);
    if (PyErr_Occurred() || (more != NULL && PyDict_Update(step, more) != 0)) {
        Py_DECREF(step);
        return NULL;
    }
    goal = goal_of(t, fact);
    bindings = PyList_GetItem(t->bindings, number);
    Py_INCREF(bindings);
    return node_of(t, goal, step, bindings);
}

static int is_well_formed(const tree *t)
{
    Py_ssize_t facts = t->p.facts.count;

    return PyList_Size(t->args) >= facts && PyList_Size(t->leaves) >= facts && t->relations.count >= facts
        && t->rules.count >= t->p.ends.count && PyList_Size(t->nodes) >= record_count(t->queue);
}

/* Build the nodes of the records from `stop` - 1 down to `start`: children come before their
 * conclusions, because the queue is in breadth-first order. */
static PyObject *trees(PyObject *module, PyObject *args)
{
    PyObject *keys;
    Py_ssize_t start, stop;
    tree t;

    (void)module;
    if (!PyArg_ParseTuple(args, "(O&O&O&O&O!O&O!O!O!O&O!O!O!O!O!O!O!)O!O!nn:trees", read_words, &t.p.facts, read_words, &t.p.instances, read_words, &t.p.ends,
                          read_words, &t.p.premises, &PyList_Type, &t.args, read_words, &t.relations, &PyList_Type, &t.leaves,
                          &PyList_Type, &t.goals, &PyList_Type, &t.matches, read_words, &t.rules, &PyList_Type, &t.applications,
                          &PyList_Type, &t.items, &PyList_Type, &t.bindings, &PyDict_Type, &t.aggregates, &PyDict_Type, &t.node,
                          &PyDict_Type, &t.cut, &PyTuple_Type, &keys, &PyByteArray_Type, &t.queue, &PyList_Type, &t.nodes, &start, &stop)
        || !PyArg_ParseTuple(keys, "UUUUUUU", &t.goal_key, &t.step_key, &t.substitution_key, &t.fact_key, &t.body_key, &t.args_key,
                             &t.metadata_key))
        return NULL;
    if (!is_well_formed(&t) || start < 0 || start > stop || stop > record_count(t.queue))
        return out_of_range();
    for (Py_ssize_t at = stop; at-- > start;) {
        const uint32_t *record = records_of(t.queue) + at * RECORD_WORDS;
        PyObject *node;

        if (record[2] == ELIDED)
            continue;
        if (record[0] >= (size_t)t.p.facts.count)
            return out_of_range();
        if ((node = conclusion_of(&t, record[0], record[2])) == NULL)
            return NULL;
        PyList_SetItem(t.nodes, at, node);
    }
    Py_RETURN_NONE;
}

/* --- graphs --- */

typedef struct graph {
    proof p;
    PyObject *args;                   /* by fact: its arguments, a tuple */
    words relations, heights;         /* by fact */
    PyObject *alternatives;           /* by fact */
    PyObject *shapes, *stored;        /* templates by relation: of a fact, of the node of a stored
                                       * fact */
    words rules;                      /* by step */
    PyObject *conclusions, *names;    /* templates by rule: of the node of a conclusion, of its
                                       * rule */
    PyObject *bindings;               /* by step: a dict */
    PyObject *aggregates;             /* {step: further items of the node of its conclusion} */
    PyObject *cut;                    /* template of an elided node */
    PyObject *tests;                  /* {fact: the node of a test} */
    PyObject *queue, *labels;         /* the queue, and by record the name of its node */
    words named;                      /* by fact: its record and one, 0: none */
    PyObject *fact_key, *depth_key, *premises_key, *alternatives_key, *rule_key, *bindings_key, *args_key;
} graph;

static PyObject *labels_of(const graph *g, uint32_t step)
{
    const uint32_t *premises;
    uint32_t count;
    PyObject *list;

    if (!premises_of(&g->p, step, &premises, &count))
        return NULL;
    list = PyList_New(count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        uint32_t name = premises[i] < (size_t)g->named.count ? g->named.at[premises[i]] : 0;

        if (name == 0 || name > (size_t)PyList_Size(g->labels)) {
            Py_DECREF(list);
            return out_of_range();
        }
        PyList_SetItem(list, i, Py_NewRef(PyList_GetItem(g->labels, (Py_ssize_t)name - 1)));
    }
    return list;
}

/* Set what every node of a fact has. Returns 0 with an exception set. */
static int set_fact(const graph *g, PyObject *node, uint32_t fact)
{
    PyObject *shape = copy_of(g->shapes, g->relations.at[fact]);

    if (shape != NULL && !set_new(shape, g->args_key, PySequence_List(PyList_GetItem(g->args, fact))))
        Py_CLEAR(shape);
    return set_new(node, g->fact_key, shape) && set_new(node, g->depth_key, PyLong_FromUnsignedLong(g->heights.at[fact]))
        && PyDict_SetItem(node, g->alternatives_key, PyList_GetItem(g->alternatives, fact)) == 0;
}

/* Set what the node of a conclusion has besides. Returns 0 with an exception set. */
static int set_step(const graph *g, PyObject *node, uint32_t step)
{
    PyObject *more = value_of(g->aggregates, step);

    if (PyErr_Occurred() || (more != NULL && PyDict_Update(node, more) != 0))
        return 0;
    return set_new(node, g->premises_key, labels_of(g, step)) && set_new(node, g->rule_key, copy_of(g->names, g->rules.at[step]))
        && PyDict_SetItem(node, g->bindings_key, PyList_GetItem(g->bindings, step)) == 0;
}

static PyObject *graph_node(const graph *g, const uint32_t *record)
{
    uint32_t fact = record[0], step;
    PyObject *node = value_of(g->tests, fact);

    if (node != NULL || PyErr_Occurred())
        return Py_XNewRef(node);
    step = step_of(&g->p, fact);
    if (step != LEAF && record[2] != ELIDED) {
        if (step >= (size_t)g->rules.count || step >= (size_t)PyList_Size(g->bindings))
            return out_of_range();
        node = copy_of(g->conclusions, g->rules.at[step]);
        if (node != NULL && set_fact(g, node, fact) && set_step(g, node, step))
            return node;
    } else {
        node = step == LEAF ? copy_of(g->stored, g->relations.at[fact]) : PyDict_Copy(g->cut);
        if (node != NULL && set_fact(g, node, fact) && set_new(node, g->premises_key, PyList_New(0)))
            return node;
    }
    Py_XDECREF(node);
    return NULL;
}

/* Return the nodes of the records from `start` to before `stop`. */
static PyObject *graphs(PyObject *module, PyObject *args)
{
    PyObject *keys, *list;
    Py_ssize_t start, stop, count;
    graph g;

    (void)module;
    if (!PyArg_ParseTuple(args, "(O&O&O&O&O!O&O&O!O!O!O&O!O!O!O!O!O!O!)O!O&O!nn:graphs", read_words, &g.p.facts, read_words,
                          &g.p.instances, read_words, &g.p.ends, read_words, &g.p.premises, &PyList_Type, &g.args, read_words,
                          &g.relations, read_words, &g.heights, &PyList_Type, &g.alternatives, &PyList_Type, &g.shapes, &PyList_Type,
                          &g.stored, read_words, &g.rules, &PyList_Type, &g.conclusions, &PyList_Type, &g.names, &PyList_Type,
                          &g.bindings, &PyDict_Type, &g.aggregates, &PyDict_Type, &g.cut, &PyDict_Type, &g.tests, &PyTuple_Type, &keys,
                          &PyByteArray_Type, &g.queue, read_words, &g.named, &PyList_Type, &g.labels, &start, &stop)
        || !PyArg_ParseTuple(keys, "UUUUUUU", &g.fact_key, &g.depth_key, &g.premises_key, &g.alternatives_key, &g.rule_key,
                             &g.bindings_key, &g.args_key))
        return NULL;
    count = g.p.facts.count;
    if (PyList_Size(g.args) < count || g.relations.count < count || g.heights.count < count || PyList_Size(g.alternatives) < count
        || start < 0 || start > stop || stop > record_count(g.queue))
        return out_of_range();
    list = PyList_New(stop - start);
    for (Py_ssize_t at = start; list != NULL && at < stop; at++) {
        const uint32_t *record = records_of(g.queue) + at * RECORD_WORDS;
        PyObject *node = record[0] < (size_t)count ? graph_node(&g, record) : out_of_range();

        if (node == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, at - start, node);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"graphs", graphs, METH_VARARGS, "graphs(proof, queue, names, labels, start, stop): the nodes of a proof graph"},
    {"order", order, METH_VARARGS, "order(queue, names, at, nodes, facts, instances, ends, premises, max_nodes, max_depth, most): breadth first"},
    {"trees", trees, METH_VARARGS, "trees(proof, queue, nodes, start, stop): the nodes of a proof tree"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_proofs", "Proofs as Python dicts.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__proofs(void)
{
    return PyModuleDef_Init(&definition);
}
