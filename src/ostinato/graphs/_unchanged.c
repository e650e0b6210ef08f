/* The checks that run before every replay: is every watched place still holding the same object, and
 * does every tensor that was recorded still lie where it lay, in the same layout?
 *
 * A model has a few thousand such places (parameters, buffers, sub-modules, hooks, attributes). In
 * Python the walk costs more than the replay's launch; here it is a few nanoseconds a place while the
 * caches are warm, and ten times that after a launch has emptied them. The Python twin in watch.py does
 * the same and is used where this was not built.
 *
 * In Python 3.12 nearly all of it is not walked at all: it reports each change of a dict that it was
 * asked to watch. As long as none was reported, the places in dicts are as the last walk found them.
 * (Before, it could not; 3.13 assigns attributes past the dict that it reports for.)
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
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <Python.h>
#ifndef _WIN32
#include <dlfcn.h>
#endif
#include <stdint.h>
#include <string.h>

enum kind { IN_DICT, IN_LIST, ATTRIBUTE, SIZE_OF_DICT, SIZE };

struct place {
    enum kind kind;
    PyObject *held;     /* dict, list or other object */
    PyObject *key;      /* unused for sizes */
    PyObject *expected; /* unused for sizes */
    Py_ssize_t number;  /* list index, or length */
};

struct places {
    Py_ssize_t reported; /* the first so many lie in dicts whose changes are reported */
    Py_ssize_t count;
    uint64_t as_of;      /* the changes reported when those were last found to hold; 0: never */
    struct place at[];
};

static const char *NAME = "ostinato.places";

/* Changes reported so far, of any watched dict, plus one. */
static uint64_t changes = 1;
static int watcher = -1;
static int (*watch)(int watcher, PyObject *dict);

/* Called before the change, and only counts: the walk that follows looks at what it was. */
static int note_change(int event, PyObject *dict, PyObject *key, PyObject *value) {
    changes++;
    return 0;
}

/* Not in the limited API, so looked up by name. */
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
        all->at[try_watching(next.held) ? all->reported++ : --others] = next;
    }
    capsule = PyCapsule_New(all, NAME, forget);
    if (capsule == NULL) PyMem_Free(all);
    return capsule;
}

PyDoc_STRVAR(holds_doc,
"holds(capsule) -> bool\n\nReturn whether every place is as it was when it was laid out.");

static PyObject *holds(PyObject *self, PyObject *capsule) {
    struct places *all = PyCapsule_GetPointer(capsule, NAME);
    if (all == NULL) return NULL;
    uint64_t now = changes; /* before the walk: reading an attribute may run code */
    for (Py_ssize_t i = all->as_of == now ? all->reported : 0; i < all->count; i++) {
        int held = same(&all->at[i]);
        if (held < 0) return NULL;
        if (!held) Py_RETURN_FALSE;
    }
    all->as_of = now;
    Py_RETURN_TRUE;
}

/* Tensors are described by torch through DLPack's C exchange API: a few nanoseconds each, where
 * `data_ptr()` from Python takes 200 and a shape and strides 300 more. The structs are DLPack's own
 * (dlpack.h, version 1.3), whose layout is fixed within a major version. */

struct dl_tensor {
    void *data;
    struct { int32_t type, id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

typedef int (*describe_tensor)(void *object, struct dl_tensor *out);

struct exchange {
    struct { uint32_t major, minor; } version;
    struct exchange *previous;
    void *allocate, *own_from_object, *own_to_object;
    describe_tensor describe;
    void *current_stream;
};

struct tensors {
    Py_ssize_t count;
    describe_tensor describe;
    PyObject *list;          /* borrowed, as the places are */
    struct dl_tensor *then;  /* shape and strides point into `sizes` */
    int64_t *sizes;
};

static const char *TENSORS = "ostinato.tensors";

static void free_tensors(struct tensors *all) {
    PyMem_Free(all->then);
    PyMem_Free(all->sizes);
    PyMem_Free(all);
}

static void forget_tensors(PyObject *capsule) {
    free_tensors(PyCapsule_GetPointer(capsule, TENSORS));
}

/* Describes every tensor; returns the numbers that their shapes and strides take, or -1. */
static Py_ssize_t describe_all(struct tensors *all) {
    Py_ssize_t numbers = 0;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        if (all->describe(PyTuple_GetItem(all->list, i), &all->then[i])) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_BufferError, "a tensor of another kind");
            return -1;
        }
        if (all->then[i].strides == NULL && all->then[i].ndim) {
            PyErr_SetString(PyExc_BufferError, "a tensor without strides");
            return -1;
        }
        numbers += 2 * all->then[i].ndim;
    }
    return numbers;
}

static void keep_sizes(struct tensors *all) {
    int64_t *at = all->sizes;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        struct dl_tensor *then = &all->then[i];
        size_t ndim = (size_t)then->ndim;
        if (ndim) {
            memcpy(at, then->shape, ndim * sizeof *at);
            memcpy(at + ndim, then->strides, ndim * sizeof *at);
        }
        then->shape = at;
        then->strides = at + ndim;
        at += 2 * ndim;
    }
}

PyDoc_STRVAR(describe_doc,
"describe(tensors, exchange) -> capsule\n\n"
"tensors is a tuple that must outlive the result, exchange torch's `__dlpack_c_exchange_api__`.\n"
"Raises BufferError, or what torch raises, if DLPack has no words for one of them.");

static PyObject *describe(PyObject *self, PyObject *args) {
    PyObject *list, *given, *capsule = NULL;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &list, &given)) return NULL;
    const struct exchange *api = PyCapsule_GetPointer(given, "dlpack_exchange_api");
    if (api == NULL) return NULL;
    if (api->version.major != 1) {
        PyErr_SetString(PyExc_BufferError, "another major version of DLPack");
        return NULL;
    }
    struct tensors *all = PyMem_Calloc(1, sizeof *all);
    if (all == NULL) return PyErr_NoMemory();
    all->count = PyTuple_Size(list);
    all->describe = api->describe;
    all->list = list;
    all->then = PyMem_Calloc((size_t)all->count + 1, sizeof *all->then);
    Py_ssize_t numbers = all->then == NULL ? -1 : describe_all(all);
    if (numbers >= 0) all->sizes = PyMem_Calloc((size_t)numbers + 1, sizeof *all->sizes);
    if (all->sizes != NULL) {
        keep_sizes(all);
        capsule = PyCapsule_New(all, TENSORS, forget_tensors);
    }
    if (capsule == NULL) free_tensors(all);
    return capsule == NULL && !PyErr_Occurred() ? PyErr_NoMemory() : capsule;
}

static int same_tensor(const struct dl_tensor *then, const struct dl_tensor *now) {
    size_t bytes = (size_t)then->ndim * sizeof *then->shape;
    return now->data == then->data && now->ndim == then->ndim
        && now->dtype.code == then->dtype.code && now->dtype.bits == then->dtype.bits
        && now->dtype.lanes == then->dtype.lanes
        && now->device.type == then->device.type && now->device.id == then->device.id
        && (bytes == 0 || (memcmp(now->shape, then->shape, bytes) == 0
                           && memcmp(now->strides, then->strides, bytes) == 0));
}

PyDoc_STRVAR(as_described_doc,
"as_described(capsule) -> bool\n\n"
"Return whether every tensor has the address, device, dtype, shape and strides it had.");

static PyObject *as_described(PyObject *self, PyObject *capsule) {
    const struct tensors *all = PyCapsule_GetPointer(capsule, TENSORS);
    if (all == NULL) return NULL;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        struct dl_tensor now;
        if (all->describe(PyTuple_GetItem(all->list, i), &now)) {
            PyErr_Clear(); /* it became one that DLPack has no words for */
            Py_RETURN_FALSE;
        }
        if (!same_tensor(&all->then[i], &now)) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"lay_out", lay_out, METH_VARARGS, lay_out_doc},
    {"holds", holds, METH_O, holds_doc},
    {"describe", describe, METH_VARARGS, describe_doc},
    {"as_described", as_described, METH_O, as_described_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_unchanged", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__unchanged(void) {
    find_watching();
    return PyModule_Create(&module);
}
