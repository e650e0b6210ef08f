/* The checks that run before every replay: is every watched place still holding the same object, does
 * every tensor that was recorded still lie where it lay, and is the call as the one before?
 *
 * The Python twins in watch.py, memo.py and player.py do the same and are used where this was not
 * built. `_places.h` holds the first check, `_tensors.h` the second, and this file the third, which
 * asks the other two on the way: one call from Python instead of a dozen, because after a launch has
 * emptied the caches each Python function costs microseconds.
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

#include "_places.h"
#include "_tensors.h"

/* What recall.py remembers of a call, in this order; from `WATCHED` on, laid out places. */
enum remembered { NAMES, LEAVES, SAME_TENSORS, SETTINGS, WEIGHTS, WATCHED };

enum { MOST_LEAVES = 64 };

/* Collects the leaves of a call that are to be tensors, in order, in a tuple; the others have to be
 * the very objects of then. Returns NULL without an error if the call has another form. */
static PyObject *tensors_of(PyObject *then, PyObject *args, PyObject *kwargs) {
    PyObject *names = PyTuple_GetItem(then, NAMES), *leaves = PyTuple_GetItem(then, LEAVES);
    PyObject *found[MOST_LEAVES], *name = NULL, *leaf = NULL;
    Py_ssize_t positional = PyTuple_Size(args), all = PyTuple_Size(leaves), tensors = 0, at = 0;
    if (positional + PyTuple_Size(names) != all || positional + PyDict_Size(kwargs) != all
        || all > MOST_LEAVES)
        return NULL;
    for (Py_ssize_t i = 0; i < all; i++) {
        PyObject *expected = PyTuple_GetItem(leaves, i);
        if (i < positional) {
            leaf = PyTuple_GetItem(args, i);
        } else {
            PyDict_Next(kwargs, &at, &name, &leaf);
            if (name != PyTuple_GetItem(names, i - positional)) return NULL;
        }
        if (expected == Py_NotImplemented) found[tensors++] = leaf;
        else if (expected != leaf) return NULL;
    }
    if (tensors == positional && tensors == all) return Py_NewRef(args);
    PyObject *result = PyTuple_New(tensors);
    for (Py_ssize_t i = 0; result != NULL && i < tensors; i++) {
        Py_INCREF(found[i]);
        PyTuple_SetItem(result, i, found[i]);
    }
    return result;
}

/* Whether `function(*args)` answers as it did; NULL stands for no arguments. A setting of torch that
 * cannot be read any more, because it is mixed with its newer name, is not as it was. */
static int answers(PyObject *function, PyObject *args, PyObject *expected) {
    PyObject *now = args == NULL ? PyObject_CallNoArgs(function) : PyObject_CallObject(function, args);
    if (now == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return -1;
        PyErr_Clear();
        return 0;
    }
    int same = now == expected ? 1 : PyObject_RichCompareBool(now, expected, Py_EQ);
    Py_DECREF(now);
    return same;
}

static int same_call(PyObject *then, PyObject *args, PyObject *kwargs) {
    PyObject *tensors = tensors_of(then, args, kwargs);
    if (tensors == NULL) return PyErr_Occurred() ? -1 : 0;
    int same = PyTuple_Size(tensors) == 0
        ? 1 : answers(PyTuple_GetItem(then, SAME_TENSORS), tensors, Py_True);
    Py_DECREF(tensors);
    PyObject *settings = PyTuple_GetItem(then, SETTINGS);
    for (Py_ssize_t i = 0; same == 1 && i < PyTuple_Size(settings); i += 2)
        same = answers(PyTuple_GetItem(settings, i), NULL, PyTuple_GetItem(settings, i + 1));
    return same;
}

static int same_surroundings(PyObject *then) {
    int same = 1;
    for (Py_ssize_t i = WATCHED; same == 1 && i < PyTuple_Size(then); i++) {
        struct places *places = PyCapsule_GetPointer(PyTuple_GetItem(then, i), PLACES);
        same = places == NULL ? -1 : places_hold(places);
    }
    if (same != 1) return same;
    struct tensors *weights = PyCapsule_GetPointer(PyTuple_GetItem(then, WEIGHTS), TENSORS);
    return weights == NULL ? -1 : tensors_hold(weights);
}

PyDoc_STRVAR(recalls_doc,
"recalls(then, args, kwargs) -> bool\n\n"
"Return whether a call is as the one that `then` remembers, and all that it reaches is as it was.\n"
"then is a tuple (names of the keyword arguments, leaves with NotImplemented for each tensor, check of\n"
"the tensors, settings as (function, answer, ...), described tensors, laid out places...).");

static PyObject *recalls(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (count != 3 || !PyTuple_Check(given[0]) || PyTuple_Size(given[0]) < WATCHED
        || !PyTuple_Check(given[1]) || !PyDict_Check(given[2])) {
        PyErr_SetString(PyExc_TypeError, "recalls takes a tuple, a tuple and a dict");
        return NULL;
    }
    int same = same_call(given[0], given[1], given[2]);
    if (same == 1) same = same_surroundings(given[0]);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

static PyMethodDef methods[] = {
    {"lay_out", lay_out, METH_VARARGS, lay_out_doc},
    {"holds", holds, METH_O, holds_doc},
    {"describe", describe, METH_VARARGS, describe_doc},
    {"as_described", as_described, METH_O, as_described_doc},
    {"surely_as_described", surely_as_described, METH_O, surely_as_described_doc},
    {"look_at", look_at, METH_VARARGS, look_at_doc},
    {"recalls", (PyCFunction)(void (*)(void))recalls, METH_FASTCALL, recalls_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_unchanged", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__unchanged(void) {
    find_reading();
    find_watching();
    if (find_ordered() < 0) return NULL;
    return PyModule_Create(&module);
}
