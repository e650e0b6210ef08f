/* Places that Python reads: dict entries, list items, attributes, and lengths. Part of `_unchanged.c`.
 *
 * A model has a few thousand of them (parameters, buffers, sub-modules, hooks, attributes). In Python
 * the walk costs more than the replay's launch; here it is a few nanoseconds a place while the caches
 * are warm, and ten times that after a launch has emptied them.
 *
 * In Python 3.12 nearly all of it is not walked at all: it reports each change of a dict that it was
 * asked to watch. As long as none was reported, the places in dicts are as the last walk found them.
 * (Before, it could not; 3.13 assigns attributes past the dict that it reports for.)
 *
 * `lay_out` writes the places into one flat array, so that a check reads memory in order and makes no
 * call for a place but the lookup itself. The array borrows its objects: the tuples it was laid out
 * from own them, and whoever holds the array holds those too. (If the array owned them, the garbage
 * collector could not see a cycle through it, such as a module that holds its own runner.)
 */

enum kind {
    IN_DICT, IN_LIST, IN_CELL, OF_FUNCTION, ATTRIBUTE, CONTENTS,
    SIZE_OF_DICT, KEYS_OF_DICT, ORDER, SIZE,
};

struct place {
    enum kind kind;
    PyObject *held;     /* dict, list, set or other object */
    PyObject *key;      /* unused for sizes */
    PyObject *expected; /* of a size the keys in their order, or NULL */
    Py_ssize_t number;  /* list index, length, or which part of a function */
};

struct places {
    Py_ssize_t reported; /* the first so many lie in dicts whose changes are reported */
    Py_ssize_t count;
    uint64_t as_of;      /* the changes reported when those were last found to hold; 0: never */
    struct place at[];
};

static const char *PLACES = "ostinato.places";

/* Changes reported so far, of any watched dict, plus one. */
static uint64_t changes = 1;
static int watcher = -1;
static int (*watch)(int watcher, PyObject *dict);

/* Python's own ways to read a cell and a function, twenty times as quick as their attributes: those
 * go through a descriptor, and those of a function through audit hooks too. */
static PyObject *(*contents)(PyObject *cell); /* a new reference; NULL: it is empty */
static PyTypeObject *cell_type, *function_type;
static PyObject *ordered; /* `OrderedDict`, which keeps an order of its own beside that of the dict */

enum { PARTS = 3 };

static struct {
    const char *attribute, *symbol;
    PyObject *(*read)(PyObject *function); /* borrowed; NULL stands for None */
} parts[PARTS] = {
    {"__code__", "PyFunction_GetCode", NULL},
    {"__defaults__", "PyFunction_GetDefaults", NULL},
    {"__kwdefaults__", "PyFunction_GetKwDefaults", NULL},
};

/* Returns 1 if the very keys come in their order, 0 if not, -1 on an error. */
static int same_keys(const struct place *p) {
    PyObject *key, *value;
    Py_ssize_t at = 0, i = 0;
    if (PyDict_Size(p->held) != p->number) return 0;
    while (i < p->number && PyDict_Next(p->held, &at, &key, &value))
        if (key != PyTuple_GetItem(p->expected, i++)) return 0;
    return i == p->number;
}

/* The same through the iterator of an `OrderedDict`. */
static int same_order(const struct place *p) {
    if (PyDict_Size(p->held) != p->number) return 0;
    if (p->number == 0) return 1;
    int is_plain = Py_TYPE(p->held) == (PyTypeObject *)ordered; /* else a subclass may answer */
    PyObject *keys = is_plain ? PyObject_GetIter(p->held)
                              : PyObject_CallMethod(ordered, "__iter__", "O", p->held);
    PyObject *key;
    if (keys == NULL) return -1;
    int same = 1;
    for (Py_ssize_t i = 0; same && i < p->number; i++) {
        key = PyIter_Next(keys);
        same = key == PyTuple_GetItem(p->expected, i);
        Py_XDECREF(key);
    }
    Py_DECREF(keys);
    return PyErr_Occurred() ? -1 : same;
}

/* A number is equal to a flag, and a set made of either; any other item is what the text says. */
static int same_items(const struct place *p) {
    int same = PyObject_RichCompareBool(p->held, p->expected, Py_EQ);
    if (same != 1) return same;
    PyObject *items = PyObject_GetIter(p->held), *item;
    if (items == NULL) return -1;
    while (same && (item = PyIter_Next(items)) != NULL) {
        same = PyUnicode_CheckExact(item) || PyLong_CheckExact(item);
        Py_DECREF(item);
    }
    Py_DECREF(items);
    return PyErr_Occurred() ? -1 : same;
}

/* Called before the change, and only counts: the walk that follows looks at what it was. */
static int note_change(int event, PyObject *dict, PyObject *key, PyObject *value) {
    changes++;
    return 0;
}

/* Not in the limited API, so looked up by name; what is not found is read as any attribute. */
static void find_reading(void) {
#ifndef _WIN32
    *(void **)&contents = dlsym(RTLD_DEFAULT, "PyCell_Get");
    if (contents != NULL) cell_type = dlsym(RTLD_DEFAULT, "PyCell_Type");
    function_type = dlsym(RTLD_DEFAULT, "PyFunction_Type");
    for (int i = 0; i < PARTS; i++) *(void **)&parts[i].read = dlsym(RTLD_DEFAULT, parts[i].symbol);
#endif
}

/* Returns -1 on an error. */
static int find_ordered(void) {
    PyObject *collections = PyImport_ImportModule("collections");
    if (collections == NULL) return -1;
    ordered = PyObject_GetAttrString(collections, "OrderedDict");
    Py_DECREF(collections);
    return ordered == NULL ? -1 : 0;
}

static void find_watching(void) {
#ifndef _WIN32
    if (Py_Version >> 16 != 0x030C) return;
    int (*add)(int (*)(int, PyObject *, PyObject *, PyObject *));
    *(void **)&add = dlsym(RTLD_DEFAULT, "PyDict_AddWatcher");
    *(void **)&watch = dlsym(RTLD_DEFAULT, "PyDict_Watch");
    if (add != NULL && watch != NULL) watcher = add(note_change);
    if (watcher < 0) PyErr_Clear(); /* an interpreter has eight, and others took them */
#endif
}

/* Returns 1 if the dict's changes will be reported. Not those of a Python module: they are too many,
 * each a walk, and all but a few concern other names. */
static int try_watching(PyObject *dict) {
    if (watcher < 0 || !PyDict_Check(dict)) return 0;
    PyObject *builtins = PyDict_GetItemString(dict, "__builtins__");
    if (builtins != NULL) return 0;
    if (watch(watcher, dict) == 0) return 1;
    PyErr_Clear();
    return 0;
}

static void forget(PyObject *capsule) {
    PyMem_Free(PyCapsule_GetPointer(capsule, PLACES));
}

/* Returns 1 if the place is as it was, 0 if not, -1 on an error that is not a missing key.
 * NotImplemented stands for "nothing there". */
static int same(const struct place *p) {
    PyObject *now = NULL;
    int held;
    Py_ssize_t length;
    switch (p->kind) {
    case IN_DICT:
        now = PyDict_GetItemWithError(p->held, p->key);
        if (now == p->expected) return 1;
        if (now == NULL && PyErr_Occurred()) return -1;
        return now == NULL && p->expected == Py_NotImplemented;
    case IN_LIST:
        if (p->number < PyList_Size(p->held)) now = PyList_GetItem(p->held, p->number);
        return now == NULL ? p->expected == Py_NotImplemented : now == p->expected;
    case IN_CELL:
        now = contents(p->held);
        held = now == NULL ? p->expected == Py_NotImplemented : now == p->expected;
        Py_XDECREF(now);
        return held;
    case OF_FUNCTION:
        now = parts[p->number].read(p->held);
        return (now == NULL ? Py_None : now) == p->expected;
    case ATTRIBUTE:
        now = PyObject_GetAttr(p->held, p->key);
        if (now == NULL) PyErr_Clear(); /* an emptied cell or a deleted attribute */
        held = now == NULL ? p->expected == Py_NotImplemented : now == p->expected;
        Py_XDECREF(now);
        return held;
    case CONTENTS:
        return same_items(p);
    case SIZE_OF_DICT:
        return PyDict_Size(p->held) == p->number;
    case KEYS_OF_DICT:
        return same_keys(p);
    case ORDER:
        return same_order(p);
    default:
        length = PyObject_Size(p->held);
        return length < 0 ? -1 : length == p->number;
    }
}

static int is_called(PyObject *key, const char *name) {
    return PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, name) == 0;
}

/* Says how an attribute is read; for a part of a function, sets `number`. */
static enum kind kind_of_attribute(struct place *p) {
    if (cell_type != NULL && Py_TYPE(p->held) == cell_type)
        return is_called(p->key, "cell_contents") ? IN_CELL : ATTRIBUTE;
    if (function_type == NULL || Py_TYPE(p->held) != function_type) return ATTRIBUTE;
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].read == NULL || !is_called(p->key, parts[i].attribute)) continue;
        p->number = i;
        return OF_FUNCTION;
    }
    return ATTRIBUTE;
}

static int read_place(struct place *p, PyObject *places, Py_ssize_t i) {
    p->held = PyTuple_GetItem(places, i);
    p->key = PyTuple_GetItem(places, i + 1);
    p->expected = PyTuple_GetItem(places, i + 2);
    p->number = 0;
    p->kind = PyDict_Check(p->held) ? IN_DICT : PyList_Check(p->held) ? IN_LIST
            : PyObject_TypeCheck(p->held, &PySet_Type) ? CONTENTS : kind_of_attribute(p);
    if (p->kind == IN_LIST) p->number = PyLong_AsSsize_t(p->key);
    return p->number == -1 && PyErr_Occurred() ? -1 : 0;
}

static int read_size(struct place *p, PyObject *sizes, Py_ssize_t i) {
    p->held = PyTuple_GetItem(sizes, i);
    p->key = p->expected = NULL;
    p->kind = PyDict_Check(p->held) ? SIZE_OF_DICT : SIZE;
    PyObject *then = PyTuple_GetItem(sizes, i + 1);
    if (p->kind == SIZE_OF_DICT && PyTuple_Check(then)) {
        p->kind = PyObject_TypeCheck(p->held, (PyTypeObject *)ordered) ? ORDER : KEYS_OF_DICT;
        p->expected = then;
        p->number = PyTuple_Size(then);
        return 0;
    }
    p->number = PyLong_AsSsize_t(then);
    return p->number == -1 && PyErr_Occurred() ? -1 : 0;
}

PyDoc_STRVAR(lay_out_doc,
"lay_out(places, sizes) -> capsule\n\n"
"places is a flat tuple (container, key, expected, ...), sizes a flat tuple (container, length, ...).\n"
"Of a dict a tuple of its keys may stand for the length: then their order counts as well.\n"
"A set as the container stands for its items, all of them together: key is ignored.\n"
"Both must outlive the result.");

static PyObject *lay_out(PyObject *self, PyObject *args) {
    PyObject *places, *sizes, *capsule;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &places, &PyTuple_Type, &sizes)) return NULL;
    Py_ssize_t triples = PyTuple_Size(places) / 3, pairs = PyTuple_Size(sizes) / 2;
    struct places *all = PyMem_Malloc(sizeof *all + (size_t)(triples + pairs) * sizeof all->at[0]);
    if (all == NULL) return PyErr_NoMemory();
    all->count = triples + pairs;
    all->reported = 0;
    all->as_of = 0;
    Py_ssize_t others = all->count;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        struct place next;
        int failed = i < triples ? read_place(&next, places, 3 * i)
                                 : read_size(&next, sizes, 2 * (i - triples));
        if (failed) {
            PyMem_Free(all);
            return NULL;
        }
        all->at[next.kind != ORDER && try_watching(next.held) ? all->reported++ : --others] = next;
    }
    capsule = PyCapsule_New(all, PLACES, forget);
    if (capsule == NULL) PyMem_Free(all);
    return capsule;
}

/* Returns 1 if every place is as it was when it was laid out, 0 if not, -1 on an error. */
static int places_hold(struct places *all) {
    uint64_t now = changes; /* before the walk: reading an attribute may run code */
    for (Py_ssize_t i = all->as_of == now ? all->reported : 0; i < all->count; i++) {
        int held = same(&all->at[i]);
        if (held != 1) return held;
    }
    all->as_of = now;
    return 1;
}

PyDoc_STRVAR(holds_doc,
"holds(capsule) -> bool\n\nReturn whether every place is as it was when it was laid out.");

static PyObject *holds(PyObject *self, PyObject *capsule) {
    struct places *all = PyCapsule_GetPointer(capsule, PLACES);
    int held = all == NULL ? -1 : places_hold(all);
    return held < 0 ? NULL : PyBool_FromLong(held);
}
