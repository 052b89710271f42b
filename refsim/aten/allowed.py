"""The operators that torch is allowed to run for a file: functions of tensors and numbers, without other effects.

A file names its operators, and torch has some 1,700 of them. Some open files (``aten::from_file``), some skip checks of
memory when the file asks for that (``aten::segment_reduce``), some give memory that nobody wrote, and some draw random
numbers, and some crash on arguments that no model has (``aten::gcd``, ``aten::lstm``). So torch runs only what stands
here, and never an operator that writes into its arguments.
"""

from __future__ import annotations

#: Where an error points to.
PLACE = "refsim/aten/allowed.py"

_ELEMENTWISE = """
    _conj_physical abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2
    arctanh asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
    bitwise_xor ceil celu clamp clamp_max clamp_min clip conj_physical copysign cos cosh deg2rad digamma div divide
    elu eq erf erfc erfinv exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac frexp ge gelu
    greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 igamma igammac isclose
    isfinite isinf isnan isneginf isposinf isreal ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p
    log2 log_sigmoid logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit lt masked_fill
    maximum minimum mish mul multiply mvlgamma nan_to_num ne neg negative nextafter not_equal polygamma positive pow
    prelu rad2deg real reciprocal relu relu6 round rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh
    softplus softshrink sqrt square sub subtract tan tanh threshold true_divide trunc where xlogy special_airy_ai
    special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_entr special_erf special_erfc
    special_erfcx special_erfinv special_exp2 special_expit special_expm1 special_i0 special_i0e special_i1
    special_i1e special_log1p special_log_ndtr special_logit special_modified_bessel_i0 special_modified_bessel_i1
    special_modified_bessel_k0 special_modified_bessel_k1 special_ndtr special_ndtri special_round special_sinc
    special_spherical_bessel_j0 special_xlog1py special_xlogy special_zeta
"""
_REDUCE_AND_SORT = """
    _log_softmax _safe_softmax _softmax all allclose amax amin aminmax any argmax argmin argsort bucketize
    count_nonzero cummax cummin cumprod cumsum diff dist equal kthvalue log_softmax logcumsumexp logsumexp max mean
    median min mode msort nanmean nanmedian nanquantile nansum norm prod quantile renorm searchsorted softmax sort
    special_log_softmax special_logsumexp special_softmax std std_mean sum topk trace trapezoid trapz
    unique_consecutive unique_dim _unique2 var var_mean
"""
_LINEAR = """
    addbmm addmm addmv addr baddbmm bilinear bmm cdist _cdist_forward chain_matmul conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d conv_transpose3d convolution corrcoef cosine_similarity cov cross dot einsum
    fft_fft fft_fft2 fft_fftn fft_fftshift fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_irfft fft_irfft2
    fft_irfftn fft_rfft fft_rfft2 fft_rfftn ger inner kron linalg_cross linalg_diagonal linalg_matmul
    linalg_matrix_norm linalg_multi_dot linalg_norm linalg_vecdot linalg_vector_norm linear matmul mm mv outer
    pairwise_distance pdist scaled_dot_product_attention tensordot vdot
"""
_WINDOWS_AND_NORMS = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d affine_grid_generator avg_pool1d avg_pool2d
    avg_pool3d batch_norm col2im grid_sampler grid_sampler_2d grid_sampler_3d group_norm im2col instance_norm
    layer_norm max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
    max_pool3d_with_indices _native_batch_norm_legit_no_training native_group_norm native_layer_norm
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    rms_norm upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_trilinear3d _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d
"""
_MOVE_AND_MAKE = """
    _to_copy _unsafe_view adjoint alias alias_copy arange atleast_1d atleast_2d atleast_3d block_diag
    broadcast_tensors broadcast_to cartesian_prod cat channel_shuffle chunk clone column_stack combinations complex
    concat concatenate constant_pad_nd contiguous copy detach detach_copy diag diag_embed diagflat diagonal
    diagonal_copy diagonal_scatter dsplit dstack embedding expand expand_as expand_copy eye fill flatten flip fliplr
    flipud full full_like gather glu hsplit hstack imag index index_add index_copy index_fill index_put index_select
    isin lift_fresh lift_fresh_copy linspace logspace mH mT masked_scatter masked_select meshgrid moveaxis movedim
    narrow narrow_copy native_channel_shuffle new_full new_ones new_zeros nonzero numpy_T one_hot ones ones_like pad
    permute permute_copy pixel_shuffle pixel_unshuffle polar ravel repeat repeat_interleave reshape reshape_as
    resolve_conj resolve_neg roll rot90 row_stack scalar_tensor scatter scatter_add scatter_reduce select select_copy
    select_scatter slice slice_copy slice_scatter split split_copy split_with_sizes split_with_sizes_copy squeeze
    squeeze_copy stack sum_to_size swapaxes swapdims t t_copy take take_along_dim tensor_split tile to transpose
    transpose_copy tril tril_indices triu triu_indices type_as unbind unbind_copy unflatten unfold unfold_copy
    unsqueeze unsqueeze_copy vander view view_as view_as_complex view_as_real view_copy vsplit vstack zeros
    zeros_like
"""
_QUANTIZED = """
    choose_qparams choose_qparams_per_token choose_qparams_per_token_asymmetric choose_qparams_symmetric
    dequantize_per_channel dequantize_per_channel_group dequantize_per_tensor dequantize_per_token
    fake_quant_per_channel quantize_per_channel quantize_per_channel_group quantize_per_tensor quantize_per_token
"""

ALLOWED: dict[str, frozenset[str]] = {
    "aten": frozenset(
        f"{_ELEMENTWISE} {_REDUCE_AND_SORT} {_LINEAR} {_WINDOWS_AND_NORMS} {_MOVE_AND_MAKE}".split()
    ),
    "quantized_decomposed": frozenset(_QUANTIZED.split()),
}


def is_allowed(space: str, base: str) -> bool:
    """Whether torch may run ``space::base`` for a file."""
    return base in ALLOWED.get(space, ())
