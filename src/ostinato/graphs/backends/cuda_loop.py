"""A captured graph run again and again by the device itself: a WHILE node of the driver.

    begin -> while(goes on): [ the captured graph -> again ]

`begin` and `again` are one small kernel: it looks whether the loop goes on. The captured graph goes
in as a child; edges for programmatic launch inside it stay. On an H200 one round costs about 4 us
beside the graph's own time.

The driver is reached through cuda-bindings, which torch's CUDA wheels bring along; where it, the
driver or the compiler of kernels is too old or missing, `NoLoop` says so.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import Any

import torch

from ostinato.graphs.backends.ending import Ending

_SOURCE = """
extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(
    cudaGraphConditionalHandle handle, unsigned int value);

// control: replays so far, the most, rings heard. flags: `count` numbers of `size` bytes each.
extern "C" __global__ void look(
    cudaGraphConditionalHandle handle, volatile long long *control, const char *flags,
    long long count, long long step, int size, const volatile long long *rung, int is_first)
{
  int is_missing = 0;
  for (long long i = threadIdx.x; i < count; i += blockDim.x) {
    const char *at = flags + i * step;
    int is_set = 0;
    for (int byte = 0; byte < size; ++byte) is_set |= at[byte];
    is_missing |= !is_set;
  }
  is_missing = __syncthreads_or(is_missing);
  if (threadIdx.x) return;
  long long replays = is_first ? 0 : control[0] + 1;
  control[0] = replays;
  int goes_on = replays < control[1] && (count == 0 || is_missing);
  if (!is_first && rung && *rung != control[2]) goes_on = 0;
  cudaGraphSetConditional(handle, goes_on);
}
"""
_THREADS = 128


class NoLoop(Exception):
    """This graph cannot be looped by the device; says why. Never leaves the backend."""


class DeviceLoop:
    """One captured graph in a loop.

    Args:
        graph: Captured with `keep_graph`; copied, so it may be used by itself as well.
        ending: When the loop ends. Its tensors are kept alive.
        device_index: The device of the graph.

    Raises:
        NoLoop: The driver cannot.

    Capture:
        Unsafe to build; waits for nothing.
    """

    __slots__ = ("_driver", "_ending", "_exec", "_graph", "_launch")

    def __init__(self, graph: torch.cuda.CUDAGraph, ending: Ending, device_index: int) -> None:
        self._ending = ending
        self._graph: Any = None
        self._exec: Any = None
        try:
            self._driver = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise NoLoop(f"cuda-bindings cannot be imported: {error}") from error
        try:
            with torch.cuda.device(device_index):
                self._build(graph, _look(device_index))
        except (RuntimeError, AttributeError, TypeError) as error:
            self.release()
            raise NoLoop(f"the driver's loop could not be built: {error}") from error
        self._launch = self._driver.cuGraphLaunch

    def _build(self, graph: torch.cuda.CUDAGraph, look: Any) -> None:
        driver = self._driver
        (context,) = _ask(driver.cuCtxGetCurrent())
        (self._graph,) = _ask(driver.cuGraphCreate(0))
        (handle,) = _ask(driver.cuGraphConditionalHandleCreate(self._graph, context, 0, 0))
        begin = self._add_look(self._graph, [], look, handle, is_first=True)
        loop = driver.CUgraphNodeParams()
        loop.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        loop.conditional.handle = handle
        loop.conditional.type = driver.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        loop.conditional.size = 1
        loop.conditional.ctx = context
        _ask(_add_node(driver)(self._graph, [begin], None, 1, loop))
        body = loop.conditional.phGraph_out[0]
        step = driver.CUgraph(int(graph.raw_cuda_graph()))
        (child,) = _ask(driver.cuGraphAddChildGraphNode(body, None, 0, step))
        self._add_look(body, [child], look, handle, is_first=False)
        (self._exec,) = _ask(driver.cuGraphInstantiate(self._graph, 0))
        # Otherwise the first launch pays for bringing the graph to the device.
        _ask(driver.cuGraphUpload(self._exec, torch.cuda.current_stream().cuda_stream))

    def _add_look(
        self, graph: Any, after: list[Any], look: Any, handle: Any, *, is_first: bool
    ) -> Any:
        node = self._driver.CUDA_KERNEL_NODE_PARAMS()
        node.func = look
        node.gridDimX = node.gridDimY = node.gridDimZ = 1
        node.blockDimX, node.blockDimY, node.blockDimZ = _THREADS, 1, 1
        node.sharedMemBytes = 0
        node.kernelParams = self._arguments(handle, is_first=is_first)
        (added,) = _ask(self._driver.cuGraphAddKernelNode(graph, after, len(after), node))
        return added

    def _arguments(self, handle: Any, *, is_first: bool) -> tuple[Any, Any]:
        flags, bell = self._ending.flags, self._ending.bell
        values: tuple[int, ...] = (
            int(handle),
            self._ending.control.data_ptr(),
            0 if flags is None else flags.data_ptr(),
            0 if flags is None else flags.numel(),
            0 if flags is None else flags.stride(0) * flags.element_size(),
            0 if flags is None else flags.element_size(),
            0 if bell is None else bell.rung.data_ptr(),
            int(is_first),
        )
        whole, address, short = ctypes.c_longlong, ctypes.c_void_p, ctypes.c_int
        kinds = (ctypes.c_uint64, address, address, whole, whole, short, address, short)
        return values, kinds

    def launch(self, raw_stream: int) -> None:
        """Queue the loop; it runs as `ending` was armed before, in the order of the stream."""
        _ask(self._launch(self._exec, raw_stream))

    def release(self) -> None:
        """Give the driver's memory back; the loop must not be running."""
        if self._exec is not None:
            self._driver.cuGraphExecDestroy(self._exec)
        if self._graph is not None:
            self._driver.cuGraphDestroy(self._graph)
        self._exec = self._graph = None


def _ask(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    code, *rest = answer
    if int(code) != 0:
        raise RuntimeError(str(code))
    return tuple(rest)


def _add_node(driver: Any) -> Any:
    """The call that takes data of edges: version 12 of the bindings has it under another name."""
    return getattr(driver, "cuGraphAddNode_v2", None) or driver.cuGraphAddNode


@cache
def _look(device_index: int) -> Any:
    """Compile the kernel for a device; it stays loaded until the process ends."""
    driver = importlib.import_module("cuda.bindings.driver")
    nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    major, minor = torch.cuda.get_device_capability(device_index)
    options = [b"--std=c++17", f"--gpu-architecture=sm_{major}{minor}".encode()]
    (program,) = _ask(nvrtc.nvrtcCreateProgram(_SOURCE.encode(), b"look.cu", 0, [], []))
    _ask(nvrtc.nvrtcCompileProgram(program, len(options), options))
    (size,) = _ask(nvrtc.nvrtcGetCUBINSize(program))
    binary = bytes(size)
    _ask(nvrtc.nvrtcGetCUBIN(program, binary))
    (module,) = _ask(driver.cuModuleLoadData(binary))
    (look,) = _ask(driver.cuModuleGetFunction(module, b"look"))
    return look
