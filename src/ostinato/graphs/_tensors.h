/* Where and how tensors lie: address, device, dtype, shape and strides. Part of `_unchanged.c`.
 *
 * `.data = other` leaves the Python object as it is, and `.data = x.data.t()` the address too; nothing
 * reports either, so every tensor is looked at before every replay. `data_ptr()` from Python takes 200
 * ns, a shape and strides 300 more.
 *
 * Two looks. torch's DLPack exchange describes a tensor in 50 ns and settles every doubt. The quick
 * look takes 5: it compares the bytes in which torch itself keeps all of that, with those of then. No
 * header promises where they are, so quick_look.py finds them by their content and tries them against
 * all that can happen to a tensor; where anything is not as expected, only DLPack is asked. The quick
 * look can only say "as it was"; from anything else the tensor goes on to DLPack. Neither takes a
 * reference: torch refuses to exchange a tensor that somebody else holds too.
 */

/* DLPack's own structs (dlpack.h, version 1.3), whose layout is fixed within a major version. */

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

/* Where to look, in bytes from the beginning of each object. */
struct look {
    Py_ssize_t impl;    /* in the Python object: torch's own tensor; 0: nothing is known */
    Py_ssize_t storage; /* in that: the storage */
    Py_ssize_t layout;  /* and sizes, strides, offset, dtype, device and kind, in one piece */
    Py_ssize_t bytes;   /* so long */
    Py_ssize_t data;    /* in the storage: the address of its memory */
};

static struct look look; /* for tensors that are described from now on */

enum { MOST_INLINE = 5 }; /* dimensions that torch keeps in its tensor itself */

struct tensor {
    char *object;  /* borrowed, as the places are */
    char *impl;    /* NULL: no quick look */
    char *storage;
    char *data;
};

struct tensors {
    Py_ssize_t count;
    describe_tensor describe;
    struct look look;
    struct tensor *at;
    char *layouts;          /* `look.bytes` of each */
    struct dl_tensor *then; /* shape and strides point into `sizes` */
    int64_t *sizes;
};

static const char *TENSORS = "ostinato.tensors";

static void free_tensors(struct tensors *all) {
    PyMem_Free(all->at);
    PyMem_Free(all->layouts);
    PyMem_Free(all->then);
    PyMem_Free(all->sizes);
    PyMem_Free(all);
}

static void forget_tensors(PyObject *capsule) {
    free_tensors(PyCapsule_GetPointer(capsule, TENSORS));
}

static char *pointer_in(const char *object, Py_ssize_t offset) {
    return *(char *const *)(object + offset);
}

/* Returns 1 if the tensor surely lies as it did when the quick look was prepared. */
static int surely_same(const struct tensors *all, Py_ssize_t i) {
    const struct tensor *t = &all->at[i];
    const struct look *at = &all->look;
    return t->impl != NULL && pointer_in(t->object, at->impl) == t->impl
        && pointer_in(t->impl, at->storage) == t->storage
        && pointer_in(t->storage, at->data) == t->data
        && memcmp(t->impl + at->layout, all->layouts + i * at->bytes, (size_t)at->bytes) == 0;
}

/* Returns 1 if it is known that the tensor is of another kind now, such as negated on reading. DLPack
 * has no word for that. */
static int other_kind(const struct tensors *all, Py_ssize_t i) {
    const struct look *at = &all->look;
    if (all->at[i].impl == NULL) return 0;
    Py_ssize_t kind = at->bytes - (Py_ssize_t)sizeof(uint64_t); /* the last word */
    const char *now = pointer_in(all->at[i].object, at->impl) + at->layout;
    return memcmp(now + kind, all->layouts + i * at->bytes + kind, sizeof(uint64_t)) != 0;
}

/* Prepares the quick look at a tensor that lies as described. `plain`: a tensor like any other. */
static void prepare_look(struct tensors *all, Py_ssize_t i, int plain) {
    struct tensor *t = &all->at[i];
    const struct look *at = &all->look;
    const struct dl_tensor *then = &all->then[i];
    t->impl = NULL;
    if (at->impl == 0 || !plain || then->data == NULL || then->ndim > MOST_INLINE) return;
    t->impl = pointer_in(t->object, at->impl);
    t->storage = pointer_in(t->impl, at->storage);
    t->data = pointer_in(t->storage, at->data);
    memcpy(all->layouts + i * at->bytes, t->impl + at->layout, (size_t)at->bytes);
}

/* Describes every tensor; returns the numbers that their shapes and strides take, or -1. */
static Py_ssize_t describe_all(struct tensors *all) {
    Py_ssize_t numbers = 0;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        struct dl_tensor *then = &all->then[i];
        if (all->describe(all->at[i].object, then)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_BufferError, "a tensor of another kind");
            return -1;
        }
        if (then->strides == NULL && then->ndim) {
            PyErr_SetString(PyExc_BufferError, "a tensor without strides");
            return -1;
        }
        numbers += 2 * then->ndim;
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
"describe(tensors, plain, exchange) -> capsule\n\n"
"tensors is a tuple that must outlive the result, plain a tuple of bools: which of them are of torch's\n"
"own kind with memory of their own; exchange torch's `__dlpack_c_exchange_api__`.\n"
"Raises BufferError, or what torch raises, if DLPack has no words for one of them.");

static PyObject *describe(PyObject *self, PyObject *args) {
    PyObject *list, *plain, *given, *capsule = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &list, &PyTuple_Type, &plain, &given))
        return NULL;
    const struct exchange *api = PyCapsule_GetPointer(given, "dlpack_exchange_api");
    if (api == NULL) return NULL;
    if (api->version.major != 1 || PyTuple_Size(plain) != PyTuple_Size(list)) {
        PyErr_SetString(PyExc_BufferError, "another major version of DLPack, or too few bools");
        return NULL;
    }
    struct tensors *all = PyMem_Calloc(1, sizeof *all);
    if (all == NULL) return PyErr_NoMemory();
    size_t room = (size_t)PyTuple_Size(list) + 1;
    all->count = PyTuple_Size(list);
    all->describe = api->describe;
    all->at = PyMem_Calloc(room, sizeof *all->at);
    all->look = look;
    all->layouts = PyMem_Calloc(room, (size_t)look.bytes + 1);
    all->then = PyMem_Calloc(room, sizeof *all->then);
    Py_ssize_t numbers = -1;
    if (all->at != NULL && all->layouts != NULL && all->then != NULL) {
        for (Py_ssize_t i = 0; i < all->count; i++)
            all->at[i].object = (char *)PyTuple_GetItem(list, i);
        numbers = describe_all(all);
    }
    if (numbers >= 0) all->sizes = PyMem_Calloc((size_t)numbers + 1, sizeof *all->sizes);
    if (all->sizes != NULL) {
        keep_sizes(all);
        for (Py_ssize_t i = 0; i < all->count; i++)
            prepare_look(all, i, PyTuple_GetItem(plain, i) == Py_True);
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

enum { AHEAD = 8, LINE = 64 };

/* The launch before has emptied the caches, and each tensor is three objects far apart: the next ones
 * are fetched meanwhile. An address that is no longer true does no harm here. */
static void fetch(const struct tensor *t) {
#if defined(__GNUC__)
    __builtin_prefetch(t->object);
    if (t->impl == NULL) return;
    __builtin_prefetch(t->impl);
    __builtin_prefetch(t->impl + LINE);
    __builtin_prefetch(t->impl + 2 * LINE);
    __builtin_prefetch(t->storage);
#endif
}

/* Returns 1 if every tensor lies as it did when it was described. */
static int tensors_hold(struct tensors *all) {
    for (Py_ssize_t i = 0; i < all->count; i++) {
        struct dl_tensor now;
        if (i + AHEAD < all->count) fetch(&all->at[i + AHEAD]);
        if (surely_same(all, i)) continue;
        if (other_kind(all, i)) return 0;
        if (all->describe(all->at[i].object, &now)) {
            PyErr_Clear(); /* it became one that DLPack has no words for */
            return 0;
        }
        if (!same_tensor(&all->then[i], &now)) return 0;
        prepare_look(all, i, all->at[i].impl != NULL);
    }
    return 1;
}

PyDoc_STRVAR(as_described_doc,
"as_described(capsule) -> bool\n\n"
"Return whether every tensor has the address, device, dtype, shape and strides it had.");

static PyObject *as_described(PyObject *self, PyObject *capsule) {
    struct tensors *all = PyCapsule_GetPointer(capsule, TENSORS);
    return all == NULL ? NULL : PyBool_FromLong(tensors_hold(all));
}

PyDoc_STRVAR(surely_as_described_doc,
"surely_as_described(capsule) -> int\n\n"
"Return how many of the tensors a quick look finds as they were, without asking DLPack.");

static PyObject *surely_as_described(PyObject *self, PyObject *capsule) {
    const struct tensors *all = PyCapsule_GetPointer(capsule, TENSORS);
    if (all == NULL) return NULL;
    long found = 0;
    for (Py_ssize_t i = 0; i < all->count; i++) found += surely_same(all, i);
    return PyLong_FromLong(found);
}

PyDoc_STRVAR(look_at_doc,
"look_at(impl, storage, layout, bytes, data)\n\n"
"Say where quick looks at tensors described from now on find what they compare; `impl` 0: nowhere.");

static PyObject *look_at(PyObject *self, PyObject *args) {
    if (!PyArg_ParseTuple(args, "nnnnn", &look.impl, &look.storage, &look.layout, &look.bytes,
                          &look.data))
        return NULL;
    Py_RETURN_NONE;
}
