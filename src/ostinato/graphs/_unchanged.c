/* The check that runs before every replay: is every watched place still holding the same object?
 *
 * A model has a few thousand such places (parameters, buffers, sub-modules, hooks, attributes). In
 * Python the walk costs more than the replay's launch; here it is a few nanoseconds a place. The
 * Python twin in watch.py does the same and is used where this was not built.
 *
 * `lay_out` writes the places into one flat array, so that a check reads memory in order and makes no
 * call for a place but the lookup itself. The array borrows its objects: the tuples it was laid out
 * from own them, and whoever holds the array holds those too. (If the array owned them, the garbage
 * collector could not see a cycle through it, such as a module that holds its own runner.)
 *
 * Limited API of CPython 3.11, so that one build serves every later version.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum kind { IN_DICT, IN_LIST, ATTRIBUTE, SIZE_OF_DICT, SIZE };

struct place {
    enum kind kind;
    PyObject *held;     /* dict, list or other object */
    PyObject *key;      /* unused for sizes */
    PyObject *expected; /* unused for sizes */
    Py_ssize_t number;  /* list index, or length */
};

struct places {
    Py_ssize_t count;
    struct place at[];
};

static const char *NAME = "ostinato.places";

static void forget(PyObject *capsule) {
    PyMem_Free(PyCapsule_GetPointer(capsule, NAME));
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
    case ATTRIBUTE:
        now = PyObject_GetAttr(p->held, p->key);
        if (now == NULL) PyErr_Clear(); /* an emptied cell or a deleted attribute */
        held = now == NULL ? p->expected == Py_NotImplemented : now == p->expected;
        Py_XDECREF(now);
        return held;
    case SIZE_OF_DICT:
        return PyDict_Size(p->held) == p->number;
    default:
        length = PyObject_Size(p->held);
        return length < 0 ? -1 : length == p->number;
    }
}

static int read_place(struct place *p, PyObject *places, Py_ssize_t i) {
    p->held = PyTuple_GetItem(places, i);
    p->key = PyTuple_GetItem(places, i + 1);
    p->expected = PyTuple_GetItem(places, i + 2);
    p->kind = PyDict_Check(p->held) ? IN_DICT : PyList_Check(p->held) ? IN_LIST : ATTRIBUTE;
    p->number = p->kind == IN_LIST ? PyLong_AsSsize_t(p->key) : 0;
    return p->number == -1 && PyErr_Occurred() ? -1 : 0;
}

static int read_size(struct place *p, PyObject *sizes, Py_ssize_t i) {
    p->held = PyTuple_GetItem(sizes, i);
    p->key = p->expected = NULL;
    p->kind = PyDict_Check(p->held) ? SIZE_OF_DICT : SIZE;
    p->number = PyLong_AsSsize_t(PyTuple_GetItem(sizes, i + 1));
    return p->number == -1 && PyErr_Occurred() ? -1 : 0;
}

PyDoc_STRVAR(lay_out_doc,
"lay_out(places, sizes) -> capsule\n\n"
"places is a flat tuple (container, key, expected, ...), sizes a flat tuple (container, length, ...).\n"
"Both must outlive the result.");

static PyObject *lay_out(PyObject *self, PyObject *args) {
    PyObject *places, *sizes, *capsule;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &places, &PyTuple_Type, &sizes)) return NULL;
    Py_ssize_t triples = PyTuple_Size(places) / 3, pairs = PyTuple_Size(sizes) / 2;
    struct places *all = PyMem_Malloc(sizeof *all + (size_t)(triples + pairs) * sizeof all->at[0]);
    if (all == NULL) return PyErr_NoMemory();
    all->count = triples + pairs;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        int failed = i < triples ? read_place(&all->at[i], places, 3 * i)
                                 : read_size(&all->at[i], sizes, 2 * (i - triples));
        if (failed) {
            PyMem_Free(all);
            return NULL;
        }
    }
    capsule = PyCapsule_New(all, NAME, forget);
    if (capsule == NULL) PyMem_Free(all);
    return capsule;
}

PyDoc_STRVAR(holds_doc,
"holds(capsule) -> bool\n\nReturn whether every place is as it was when it was laid out.");

static PyObject *holds(PyObject *self, PyObject *capsule) {
    const struct places *all = PyCapsule_GetPointer(capsule, NAME);
    if (all == NULL) return NULL;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        int held = same(&all->at[i]);
        if (held < 0) return NULL;
        if (!held) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"lay_out", lay_out, METH_VARARGS, lay_out_doc},
    {"holds", holds, METH_O, holds_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_unchanged", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__unchanged(void) { return PyModule_Create(&module); }
