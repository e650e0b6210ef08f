"""What the names of torch give: tables only.

Which methods of a tensor answer with plain Python, which functions wait for the device, which
build a tensor on the host unless told otherwise. `operations.py` reads them.
"""

from __future__ import annotations


def words(text: str, prefix: str = "") -> frozenset[str]:
    """Return the words of a text, each with a prefix."""
    return frozenset(prefix + word for word in text.split())


ATTRIBUTES_PYTHON = words(
    "shape dtype device ndim is_cuda is_cpu is_mps requires_grad layout names itemsize nbytes "
    "grad_fn is_leaf is_sparse is_nested is_quantized is_meta is_xpu __class__ output_nr"
)
METHODS_PYTHON = words(
    "size dim ndimension numel nelement stride is_contiguous is_floating_point is_complex data_ptr "
    "element_size get_device storage_offset is_pinned is_shared is_set_to is_signed is_inference "
    "untyped_storage storage register_hook backward __len__ has_names is_same_size "
    "tolist item"
)
METHODS_SEVERAL = words(
    "split chunk unbind tensor_split hsplit vsplit dsplit unsafe_chunk "
                            "unsafe_split split_with_sizes"
)  # fmt: skip
# Two results when a dimension is given (max, min, median, mode) or always.
METHODS_PAIR = words(
    "sort topk kthvalue mode cummax cummin frexp slogdet qr geqrf svd eigh "
                         "aminmax std_mean var_mean"
)  # fmt: skip
METHODS_PAIR_BY_DIM = frozenset({"max", "min", "median", "nanmedian"})
METHODS_BOOL = words(
    "eq ne lt le gt ge equal_ isnan isinf isfinite isposinf isneginf isin logical_and logical_or "
    "logical_not logical_xor bool any all greater less greater_equal less_equal not_equal "
    "isclose signbit is_nonzero_ bitwise_not_"
)
# Nothing flows back through these.
NO_GRAD_RESULTS = METHODS_BOOL | words(
    "long int short byte argmax argmin argsort nonzero detach detach_ bincount searchsorted "
    "count_nonzero floor ceil round sign multinomial arange bucketize unique histc argwhere "
    "randint randperm zeros ones full empty zeros_like ones_like full_like empty_like "
    "rand randn rand_like randn_like"
)
# The size of the result is counted on the device and read on the host.
COUNTED = {
    "nonzero": "its result has as many rows as there are true elements",
    "argwhere": "its result has as many rows as there are true elements",
    "masked_select": "its result is as long as there are true elements",
    "unique": "its result is as long as there are different elements",
    "unique_consecutive": "its result is as long as there are different runs",
    "bincount": "its result is as long as the largest element",
}
# One answer that only the host can use: the host waits for it.
HOST_ANSWERS = {
    "equal": "it answers with a Python bool",
    "allclose": "it answers with a Python bool",
    "is_nonzero": "it answers with a Python bool",
}
READS = {
    "item": "copies one value to the host",
    "tolist": "copies every value to the host",
    "numpy": "hands the values to numpy on the host",
    "cpu": "copies the tensor to the host",
}
TRANSPOSES = frozenset({"transpose", "permute", "swapaxes", "swapdims", "movedim", "t", "T", "mT"})

FUNCTIONS_PYTHON = words(
    "is_tensor is_floating_point is_complex numel finfo iinfo device dtype Size is_grad_enabled "
    "get_default_dtype is_inference_mode_enabled is_autocast_enabled get_autocast_dtype "
    "get_autocast_gpu_dtype broadcast_shapes promote_types result_type can_cast "
    "get_num_threads initial_seed manual_seed seed Generator equal allclose is_nonzero "
    "set_num_threads set_grad_enabled no_grad inference_mode enable_grad is_storage "
    "get_rng_state save set_default_dtype set_default_device typename is_autocast_cpu_enabled "
    "get_autocast_cpu_dtype is_autocast_cache_enabled _check _assert vmap",
    "torch.",
)
# Every function below these answers with plain Python.
PACKAGES_PYTHON = (
    "torch.cuda.", "torch.jit.", "torch.compiler.", "torch._dynamo.", "torch.distributed.",
    "torch.backends.", "torch.version.", "torch.utils.", "torch.profiler.", "torch.overrides.",
    "torch.onnx.", "torch.fx.", "torch._C.", "torch.mps.", "torch.xpu.", "torch.accelerator.",
    "torch.nn.init.", "torch.autograd.", "torch.npu.", "torch.amp.", "torch.export.",
)  # fmt: skip
FACTORIES = words(
    "tensor as_tensor asarray zeros ones empty full arange linspace logspace eye rand randn "
    "randint randperm normal from_numpy frombuffer scalar_tensor hann_window hamming_window "
    "tril_indices triu_indices range bartlett_window kaiser_window",
    "torch.",
)
FUNCTIONS_SEVERAL = words(
    "split chunk unbind tensor_split meshgrid broadcast_tensors atleast_1d_ hsplit vsplit dsplit",
    "torch.",
)
TENSOR_MODULES = ("torch.nn.functional.", "torch.ops.", "torch.special.", "torch.linalg.",
                  "torch.fft.", "torch.sparse.")  # fmt: skip
# Modules of torch.nn that answer with more than one tensor.
MODULES_SEVERAL = frozenset(
    {"torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN", "torch.nn.MultiheadAttention",
     "torch.nn.LSTMCell"}
)  # fmt: skip
MODULES_LIST = frozenset({"torch.nn.ModuleList", "torch.nn.ParameterList"})
MODULES_DICT = frozenset({"torch.nn.ModuleDict", "torch.nn.ParameterDict"})

TENSOR_TYPES = words(
    "Tensor FloatTensor LongTensor BoolTensor IntTensor HalfTensor DoubleTensor ByteTensor "
    "nn.Parameter nn.parameter.Parameter ShortTensor BFloat16Tensor nn.Buffer",
    "torch.",
)
PYTHON_TYPES = words(
    "int float bool str bytes complex None torch.dtype torch.device torch.Size torch.Generator "
    "pathlib.Path os.PathLike type torch.memory_format slice"
)
# Names by which nearly everybody calls what only a tensor has: evidence for a bare parameter.
TENSOR_ONLY = words(
    "unsqueeze masked_fill masked_fill_ view view_as expand_as contiguous permute softmax "
    "log_softmax argmax scatter scatter_ gather index_select transpose chunk unbind new_zeros "
    "new_ones new_tensor new_full new_empty is_cuda requires_grad_ detach matmul bmm sigmoid "
    "type_as logsumexp topk cumsum float half bfloat16 bool long squeeze expand flatten "
    "repeat_interleave cuda dim numel tanh exp"
)
LOSS_FUNCTIONS = words(
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div bce_loss "
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss "
    "gaussian_nll_loss hinge_embedding_loss margin_ranking_loss triplet_margin_loss "
    "poisson_nll_loss soft_margin_loss"
)
