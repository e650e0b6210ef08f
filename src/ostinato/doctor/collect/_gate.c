/* Stands before a method of a tensor that is called often and seldom worth a look, and says which of
 * the two answers the call: the original, or a function of ours that looks.
 *
 * In Python that question costs a few hundred nanoseconds a call, more than all that is asked. Its twin
 * for machines without a compiler is in gates.py, which also says what is asked of each method.
 *
 * Limited API of CPython 3.11, so that one build serves every later version. The few functions that
 * were exported before they became part of it are declared here.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

#if Py_LIMITED_API < 0x030C0000
typedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *);
PyAPI_FUNC(PyObject *) PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);
PyAPI_FUNC(PyObject *) PyVectorcall_Call(PyObject *, PyObject *, PyObject *);
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
PyAPI_FUNC(PyObject *) PyMethod_New(PyObject *, PyObject *);
#ifndef Py_TPFLAGS_METHOD_DESCRIPTOR
#define Py_TPFLAGS_METHOD_DESCRIPTOR (1UL << 17)
#endif
#define COUNT(nargsf) ((Py_ssize_t)((nargsf) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))

enum question { IS_MASK, IS_ONE_OF, IS_LOOSE, NOTHING };

struct gate {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *original, *look, *attributes;
    PyObject *kinds; /* of arguments that are worth a look: a tuple of types, for IS_ONE_OF */
    enum question question;
    void *slot; /* what `original` wraps, where it is a slot of its class; else NULL */
};

/* In which watch nothing is looked at of what this thread does now; 0 is none. A thread that goes on
 * into the next watch is looked at there until that one says otherwise. */
static _Thread_local unsigned long passes_over_in;
static _Thread_local unsigned long inside_in; /* in which watch this thread is in a step; 0 is none */
static unsigned long watch = 1;
static PyTypeObject *tensor_type;
static PyObject *boolean, *dtype_name, *is_contiguous_name;

static int is_mask(PyObject *index) {
    if (Py_TYPE(index) != tensor_type) return 0;
    PyObject *dtype = PyObject_GetAttr(index, dtype_name);
    if (dtype == NULL) return -1;
    Py_DECREF(dtype);
    return dtype == boolean;
}

static int has_mask(PyObject *index) {
    if (!PyTuple_CheckExact(index)) return is_mask(index);
    int found = 0;
    for (Py_ssize_t i = 0; found == 0 && i < PyTuple_Size(index); i++)
        found = is_mask(PyTuple_GetItem(index, i));
    return found;
}

static int is_one_of(struct gate *gate, PyObject *const *args, Py_ssize_t count) {
    for (Py_ssize_t i = 1; i < count; i++)
        for (Py_ssize_t kind = 0; kind < PyTuple_Size(gate->kinds); kind++)
            if ((PyObject *)Py_TYPE(args[i]) == PyTuple_GetItem(gate->kinds, kind)) return 1;
    return 0;
}

static int is_loose(PyObject *tensor) {
    PyObject *answer = PyObject_CallMethodObjArgs(tensor, is_contiguous_name, NULL);
    if (answer == NULL) return -1;
    Py_DECREF(answer);
    return answer != Py_True;
}

/* Whether a call is worth a look; -1 with an error set where a tensor would not say. */
static int is_worth_a_look(struct gate *gate, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    if (passes_over_in == watch) return 0;
    if (gate->question == NOTHING) return 1;
    if (count == 0 || !PyObject_TypeCheck(args[0], tensor_type)) return 0; /* the original refuses it */
    switch (gate->question) {
    case IS_MASK: return count > 1 ? has_mask(args[1]) : 0;
    case IS_ONE_OF: return names != NULL || is_one_of(gate, args, count);
    default: return is_loose(args[0]);
    }
}

static PyObject *call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    struct gate *gate = (struct gate *)self;
    Py_ssize_t count = COUNT(nargsf);
    int worth = is_worth_a_look(gate, args, count, names);
    if (worth < 0) return NULL;
    if (worth == 0 && gate->slot != NULL && count == 2 && names == NULL
        && PyObject_TypeCheck(args[0], tensor_type))
        return ((binaryfunc)gate->slot)(args[0], args[1]);
    return PyObject_Vectorcall(worth ? gate->look : gate->original, args, nargsf, names);
}

static PyObject *bind(PyObject *self, PyObject *object, PyObject *type) {
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

/* Pickled by name, as a function is. */
static PyObject *reduce(PyObject *self, PyObject *unused) {
    return PyObject_GetAttrString(self, "__qualname__");
}

static int visit_all(PyObject *self, visitproc visit, void *arg) {
    struct gate *gate = (struct gate *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(gate->original);
    Py_VISIT(gate->look);
    Py_VISIT(gate->attributes);
    Py_VISIT(gate->kinds);
    return 0;
}

static int clear(PyObject *self) {
    struct gate *gate = (struct gate *)self;
    Py_CLEAR(gate->look);
    Py_CLEAR(gate->attributes);
    return 0;
}

static void end(PyObject *self) {
    struct gate *gate = (struct gate *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_CLEAR(gate->original);
    Py_CLEAR(gate->kinds);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef methods_of_a_gate[] = {{"__reduce__", reduce, METH_NOARGS, NULL}, {NULL}};
static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct gate, call), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(struct gate, attributes), READONLY, NULL},
    {NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_call, PyVectorcall_Call}, {Py_tp_descr_get, bind}, {Py_tp_traverse, visit_all},
    {Py_tp_clear, clear},            {Py_tp_dealloc, end},    {Py_tp_methods, methods_of_a_gate},
    {Py_tp_members, members},        {0, NULL},
};
static PyType_Spec spec = {
    "ostinato.doctor.collect._gate.Gate", sizeof(struct gate), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
        | Py_TPFLAGS_METHOD_DESCRIPTOR,
    slots,
};
static PyObject *gate_type;

/* The function behind `Tensor.__getitem__`, which is called as `x[i]` calls it: without a tuple. */
static void *slot_of(PyObject *original, enum question question) {
    if (question != IS_MASK || Py_TYPE(original) != &PyWrapperDescr_Type) return NULL;
    PyObject *name = PyObject_GetAttrString(original, "__name__");
    PyObject *owner = PyObject_GetAttrString(original, "__objclass__");
    void *slot = NULL;
    if (name != NULL && owner != NULL && PyUnicode_CompareWithASCIIString(name, "__getitem__") == 0)
        slot = PyType_GetSlot((PyTypeObject *)owner, Py_mp_subscript);
    Py_XDECREF(name);
    Py_XDECREF(owner);
    PyErr_Clear();
    return slot;
}

PyDoc_STRVAR(make_doc,
"gate(question, original, look, kinds) -> callable\n\n"
"Return a method that answers by `look` where a call is worth it, and by `original` elsewhere.\n"
"question: 0, whether an index has a boolean mask; 1, whether there are keywords or an argument of\n"
"exactly one of the types `kinds`; 2, whether the tensor does not lie contiguously; 3, nothing.\n"
"While the thread passes over what it does, no call is worth it.");

static PyObject *make(PyObject *module, PyObject *given) {
    int question;
    PyObject *original, *look, *kinds;
    if (!PyArg_ParseTuple(given, "iOOO!", &question, &original, &look, &PyTuple_Type, &kinds)) return NULL;
    if (question < IS_MASK || question > NOTHING) {
        PyErr_Format(PyExc_ValueError, "there is no question %d: it is 0 to 3", question);
        return NULL;
    }
    struct gate *gate = PyObject_GC_New(struct gate, (PyTypeObject *)gate_type);
    if (gate == NULL) return NULL;
    gate->call = call;
    gate->original = Py_NewRef(original);
    gate->look = Py_NewRef(look);
    gate->kinds = Py_NewRef(kinds);
    gate->attributes = NULL;
    gate->question = question;
    gate->slot = slot_of(original, question);
    PyObject_GC_Track(gate);
    return (PyObject *)gate;
}

PyDoc_STRVAR(pass_over_doc,
"pass_over(whether)\n\n"
"Let this thread's calls through every gate without a look from now on, or no longer.");

static PyObject *pass_over(PyObject *module, PyObject *whether) {
    passes_over_in = whether == Py_True ? watch : 0;
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(be_inside_doc,
"be_inside(whether)\n\n"
"Say that this thread is in a step from now on, or no longer.");

static PyObject *be_inside(PyObject *module, PyObject *whether) {
    inside_in = whether == Py_True ? watch : 0;
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(is_inside_doc, "is_inside() -> bool\n\nReturn whether this thread is in a step.");

static PyObject *is_inside(PyObject *module, PyObject *unused) {
    return Py_NewRef(inside_in == watch ? Py_True : Py_False);
}

PyDoc_STRVAR(begin_doc, "begin()\n\nBegin another watch: every thread is looked at.");

static PyObject *begin(PyObject *module, PyObject *unused) {
    watch++;
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"be_inside", be_inside, METH_O, be_inside_doc},
    {"begin", begin, METH_NOARGS, begin_doc},
    {"gate", make, METH_VARARGS, make_doc},
    {"is_inside", is_inside, METH_NOARGS, is_inside_doc},
    {"pass_over", pass_over, METH_O, pass_over_doc},
    {NULL},
};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_gate", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__gate(void) {
    PyObject *torch = PyImport_ImportModule("torch");
    if (torch == NULL) return NULL;
    tensor_type = (PyTypeObject *)PyObject_GetAttrString(torch, "Tensor");
    boolean = PyObject_GetAttrString(torch, "bool");
    Py_DECREF(torch);
    dtype_name = PyUnicode_InternFromString("dtype");
    is_contiguous_name = PyUnicode_InternFromString("is_contiguous");
    gate_type = PyType_FromSpec(&spec);
    if (tensor_type == NULL || boolean == NULL || dtype_name == NULL || is_contiguous_name == NULL
        || gate_type == NULL)
        return NULL;
    return PyModule_Create(&module);
}
