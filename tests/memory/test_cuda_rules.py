"""Each rule of CUDA: what it does, and that the CPU does otherwise without it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.memory import GPUS, MemoryLedger, dry_run
from course_lib.memory import autocast as lists
from course_lib.memory.autocast_policy import autocast_flags
from course_lib.memory.cuda_rules import attention_backend, cuda_rules

CALLS = {  # how to call an operation on one half tensor (4, 8)
    "pow.Tensor_Scalar": lambda x: x.pow(2.0),
    "pow.Tensor_Tensor": lambda x: x.pow(x),
    "pow.Scalar": lambda x: torch.pow(2.0, x),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "native_layer_norm": lambda x: torch.native_layer_norm(x, (8,), None, None, 1e-5)[0],
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x),
    "dist": lambda x: torch.dist(x, x),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "logsumexp": lambda x: x.logsumexp(-1),
    "prod": torch.prod,
    "softmax.int": lambda x: x.softmax(-1),
    "log_softmax.int": lambda x: x.log_softmax(-1),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "sum.dim_IntList": lambda x: x.sum(-1),
    "linalg_vector_norm": torch.linalg.vector_norm,
    "norm": torch.norm,
    "mse_loss": lambda x: F.mse_loss(x, x),
    "l1_loss": lambda x: F.l1_loss(x, x),
    "huber_loss": lambda x: F.huber_loss(x, x),
    "kl_div": lambda x: F.kl_div(x, x, reduction="batchmean"),
    "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(4, dtype=torch.long, device=x.device)),
    "cross": lambda x: torch.linalg.cross(x.narrow(1, 0, 3), x.narrow(1, 0, 3).float()),
    "addcmul": lambda x: torch.addcmul(x, x, x.float()),
    "dot": lambda x: torch.dot(x.select(0, 0), x.select(0, 0).float()),
    "scatter_add": lambda x: x.scatter_add(0, torch.zeros(4, 8, dtype=torch.long, device=x.device), x.float()),
    "matmul": lambda x: x @ x.float().t(),
    "linear": lambda x: F.linear(x, torch.zeros(5, 8, device=x.device)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x.float()),
    "mv": lambda x: torch.mv(x, x.select(0, 0).float()),
    "addmv": lambda x: torch.addmv(x.select(1, 0), x, x.select(0, 0).float()),
    "gelu": F.gelu,
    "silu": F.silu,
    "add": lambda x: x + x,
    "mean": torch.mean,
    "cat": lambda x: torch.cat([x, x.float()]),
    "stack": lambda x: torch.stack([x, x]),
    "bmm": lambda x: torch.bmm(x.unsqueeze(0), x.t().unsqueeze(0).float()),
    **{
        name: getattr(torch, name) for name in "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal".split()
    },
    **{name: getattr(torch, name) for name in "rsqrt sinh tan sum".split()},
    "softplus": F.softplus,
}


class Steps(TorchDispatchMode):
    """Notes each operation with the dtypes that go in and come out."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.namespace != "prim":
            outputs = out if isinstance(out, (tuple, list)) else (out,)
            self.seen.append((str(func), *(tuple(x.dtype for x in xs if torch.is_tensor(x)) for xs in (args, outputs))))
        return out


class TestAutocast:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("name", CALLS)
    def test_an_operation_returns_what_cuda_returns(self, name, dtype):
        """The oracle is torch's own CUDA policy, asked with fake CUDA tensors."""
        with FakeTensorMode(), autocast_flags("cuda", dtype), torch.no_grad():
            expected = CALLS[name](torch.empty(4, 8, dtype=dtype, device="cuda")).dtype
        with cuda_rules(), FakeTensorMode(), torch.autocast("cpu", dtype):
            assert CALLS[name](torch.empty(4, 8, dtype=dtype)).dtype == expected

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("name", CALLS)
    def test_an_operation_takes_the_steps_that_cuda_takes(self, name, dtype):
        """The same operations inside, in the same precisions: what is kept and what is copied follows from them.

        `cross_entropy` is the surprise: CUDA autocast takes its log_softmax in the low precision, and casts after it.
        """
        with FakeTensorMode(), autocast_flags("cuda", dtype), torch.no_grad():
            x = torch.empty(4, 8, dtype=dtype, device="cuda")
            with Steps() as expected:
                CALLS[name](x)
        with cuda_rules(), FakeTensorMode(), torch.autocast("cpu", dtype), torch.no_grad():
            x = torch.empty(4, 8, dtype=dtype)
            with Steps() as ours:
                CALLS[name](x)
        assert ours.seen == expected.seen

    def test_cross_entropy_takes_log_softmax_in_half(self):
        with cuda_rules(), FakeTensorMode(), torch.autocast("cpu", torch.float16), Steps() as steps:
            CALLS["cross_entropy"](torch.empty(4, 8, dtype=torch.float16))
        assert ("aten._log_softmax.default", (torch.float16,), (torch.float16,)) in steps.seen

    def test_the_cpu_does_otherwise(self):
        x = torch.ones(4, 8, dtype=torch.bfloat16)
        with torch.autocast("cpu", torch.bfloat16):
            alone = {name: CALLS[name](x).dtype for name in ("softmax.int", "layer_norm", "exp", "sum", "norm")}
        with cuda_rules(), torch.autocast("cpu", torch.bfloat16):
            ruled = {name: CALLS[name](x).dtype for name in alone}
        assert set(alone.values()) == {torch.bfloat16}
        assert set(ruled.values()) == {torch.float32}

    def test_the_lists_are_those_of_the_installed_torch(self):
        typed = {*lists.FP32, *lists.FP32_RESULT, *lists.FP32_NORM, *lists.WIDEST, *lists.LOW, *lists.BANNED}
        names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
        registered = {name[6:] for name in names if lists.has_autocast_kernel(name[6:], "CUDA")}
        assert typed == registered

    def test_binary_cross_entropy_is_refused(self):
        p = torch.rand(4)
        with torch.autocast("cpu", torch.bfloat16):
            F.binary_cross_entropy(p, p)
        with (
            cuda_rules(),
            torch.autocast("cpu", torch.bfloat16),
            pytest.raises(RuntimeError, match=r"unsafe to autocast.*binary_cross_entropy_with_logits"),
        ):
            F.binary_cross_entropy(p, p)

    def test_a_dtype_that_the_caller_chose_stays(self):
        x = torch.ones(4, dtype=torch.bfloat16)
        with cuda_rules(), torch.autocast("cpu", torch.bfloat16):
            assert x.softmax(-1, dtype=torch.float64).dtype == torch.float64
            assert x.sum(dtype=torch.bfloat16).dtype == torch.bfloat16
            assert torch.ones(4, dtype=torch.float64).exp().dtype == torch.float64

    def test_gone_after_the_block_even_after_an_exception(self):
        x = torch.ones(4, 8, dtype=torch.bfloat16)
        with pytest.raises(ZeroDivisionError), cuda_rules():
            1 / 0
        with torch.autocast("cpu", torch.bfloat16):
            assert x.softmax(-1).dtype == torch.bfloat16

    def test_gradients_are_unchanged(self):
        x = torch.randn(4, 8, requires_grad=True)
        x.softmax(-1).log_softmax(-1)[:, 0].sum().backward()
        expected, x.grad = x.grad, None
        with cuda_rules():
            x.softmax(-1).log_softmax(-1)[:, 0].sum().backward()
        torch.testing.assert_close(x.grad, expected)


def kept_bytes(function, *args):
    with MemoryLedger(block_bytes=1) as ledger:
        out = function(*args)
    return ledger.live_bytes - out.nbytes


class TestDropout:
    def test_keeps_one_byte_an_element_where_the_cpu_keeps_two(self):
        x = torch.randn(1000, dtype=torch.bfloat16, requires_grad=True)
        assert kept_bytes(F.dropout, x, 0.5) == 2000
        with cuda_rules():
            assert kept_bytes(F.dropout, x, 0.5) == 1000

    def test_drops_and_scales_as_before(self):
        torch.manual_seed(0)
        with cuda_rules():
            out = F.dropout(torch.ones(10000), 0.25)
            assert torch.equal(F.dropout(out, 0.0), out)
            assert torch.equal(F.dropout(out, 0.5, training=False), out)
        values = out.unique()
        torch.testing.assert_close(values, torch.tensor([0, 4 / 3]))
        assert (out == 0).float().mean() == pytest.approx(0.25, abs=0.02)


class TestSoftmax:
    def test_half_to_float_copies_nothing_where_bfloat16_does(self):
        peaks = {}
        for dtype in (torch.float16, torch.bfloat16):
            report = dry_run(
                lambda dtype=dtype: torch.empty(1024, 1024, dtype=dtype, requires_grad=True),
                lambda x: F.softmax(x, -1, dtype=torch.float32).sum().backward(),
            )
            peaks[dtype] = max(p.live_bytes for p in report.timeline if p.phase == "forward") - report.start_bytes
        assert peaks[torch.float16] == pytest.approx(4 * 2**20, rel=0.01)
        assert peaks[torch.bfloat16] == pytest.approx(8 * 2**20, rel=0.01)


class TestAttention:
    @pytest.mark.parametrize("gpu, dtype, options, expected", [
        ("T4", torch.float16, {}, "efficient"),
        ("T4", torch.float32, {}, "efficient"),
        ("T4", torch.bfloat16, {}, "math"),
        ("T4", torch.float16, {"has_grouped_heads": True}, "math"),
        ("T4", torch.float16, {"head_dim": 60}, "math"),
        ("V100-16GB", torch.float16, {}, "efficient"),
        ("A100-80GB", torch.bfloat16, {}, "flash"),
        ("A100-80GB", torch.float16, {"dropout": 0.1, "has_grouped_heads": True}, "flash"),
        ("A100-80GB", torch.float32, {}, "efficient"),
        ("A100-80GB", torch.bfloat16, {"has_mask": True}, "efficient"),
        ("A100-80GB", torch.bfloat16, {"head_dim": 320}, "efficient"),
        ("A100-80GB", torch.bfloat16, {"is_causal": True, "q_len": 4, "k_len": 8}, "efficient"),
        ("RTX4090", torch.bfloat16, {"head_dim": 256, "dropout": 0.1}, "efficient"),
        ("RTX4090", torch.bfloat16, {"head_dim": 256}, "flash"),
        ("H100", torch.bfloat16, {}, "flash"),
        (None, torch.bfloat16, {}, "flash"),
        ("A100-80GB", torch.float64, {}, "math"),
    ])  # fmt: skip
    def test_the_kernel_of_a_gpu(self, gpu, dtype, options, expected):
        assert attention_backend(gpu, dtype, **options) == expected

    def test_the_switches_of_sdpa_kernel_are_obeyed(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.MATH):
            assert attention_backend("H100", torch.bfloat16) == "math"
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            assert attention_backend("H100", torch.bfloat16) == "efficient"

    def kept(self, gpu, dtype, *, dropout=0.0, mask=None, kv_heads=8, seq=512):
        """Bytes that one attention keeps beside q, k and v."""

        def build():
            q = torch.empty(2, 8, seq, 64, dtype=dtype, requires_grad=True)
            k, v = (torch.empty(2, kv_heads, seq, 64, dtype=dtype, requires_grad=True) for _ in range(2))
            return q, k, v, None if mask is None else torch.empty(seq, seq, dtype=mask)

        def step(q, k, v, mask):
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=mask is None, enable_gqa=kv_heads != 8
            )
            out.sum().backward()

        return dry_run(build, step, gpu=gpu).mark("forward").by_category["activation"]

    def test_flash_keeps_the_output_and_the_log_sum_exp(self):
        out, logsumexp = 2 * 8 * 512 * 64 * 2, 2 * 8 * 512 * 4
        for dropout in (0.0, 0.1):  # the CPU's own attention with dropout would store every score
            assert self.kept("A100-80GB", torch.bfloat16, dropout=dropout) == pytest.approx(out + logsumexp, abs=4096)
        assert self.kept("A100-80GB", torch.bfloat16, kv_heads=2) == pytest.approx(out + logsumexp, abs=4096)

    def test_efficient_pads_the_log_sum_exp_to_32(self):
        out, logsumexp = 2 * 8 * 500 * 64 * 2, 2 * 8 * 512 * 4
        assert self.kept("T4", torch.float16, seq=500) == pytest.approx(out + logsumexp, abs=4096)

    def test_math_stores_every_score(self):
        assert self.kept("T4", torch.bfloat16) > 2 * 8 * 512 * 512 * 2

    @pytest.mark.parametrize("mask", [torch.bool, torch.float16], ids=str)
    def test_a_mask_takes_the_efficient_kernel(self, mask):
        scores = 2 * 8 * 512 * 512 * 2
        assert self.kept("A100-80GB", torch.float16, mask=mask) < scores / 2

    def test_a_head_of_odd_width_is_padded(self):
        def step(q):
            out = F.scaled_dot_product_attention(q, q, q)
            assert out.shape == q.shape
            out.sum().backward()
            assert q.grad.shape == q.shape

        dry_run(lambda: torch.empty(2, 4, 32, 60, dtype=torch.bfloat16, requires_grad=True), step, gpu="H100")


class TestForeach:
    def test_adamw_takes_its_buffer_as_on_cuda(self):
        def build(**options):
            model = torch.nn.Linear(512, 512)
            return model, torch.optim.AdamW(model.parameters(), **options), torch.empty(1, 512)

        def step(model, optimizer, x):
            model(x).sum().backward()
            optimizer.step()

        size = 4 * 512 * 513
        default = dry_run(build, step).peak_bytes
        assert default == dry_run(lambda: build(foreach=True), step).peak_bytes
        assert default == pytest.approx(5 * size, rel=0.01)
        assert dry_run(lambda: build(foreach=False), step).peak_bytes >= default  # one layer: the same buffers


def test_every_gpu_has_a_source_and_sane_figures():
    names = [
        "T4",
        "V100-16GB",
        "V100-32GB",
        "RTX3090",
        "RTX4090",
        "A100-40GB",
        "A100-80GB",
        "L4",
        "H100",
        "H200",
        "B200",
    ]
    assert list(GPUS) == names
    for gpu in GPUS.values():
        assert gpu.source and gpu.capacity_source
        assert gpu.has_bf16 == (gpu.capability >= (8, 0)) == bool(gpu.bf16_flops) == bool(gpu.tf32_flops)
        assert gpu.fp16_flops == pytest.approx(gpu.bf16_flops or gpu.fp16_flops, rel=0.01)
        assert gpu.fp32_flops < gpu.fp16_flops
    assert GPUS["T4"].usable_bytes / 2**30 == pytest.approx(14.7, abs=0.2)
