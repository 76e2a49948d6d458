"""MemoryLedger on real CPU tensors: births, deaths, categories, peaks."""

from __future__ import annotations

import copy
import gc
import io
import warnings
import weakref

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from course_lib.memory import CATEGORIES, MemoryLedger, SimulatedOutOfMemoryError

KIB = 1024


def floats(num_bytes: int, **kwargs) -> torch.Tensor:
    return torch.zeros(num_bytes // 4, **kwargs)


def live(ledger: MemoryLedger) -> dict[str, int]:
    return {name: size for name, size in ledger.live_by_category.items() if size}


class TestBirthsAndDeaths:
    def test_counts_a_tensor_while_it_lives(self):
        with MemoryLedger() as ledger:
            x = floats(4 * KIB)
            assert ledger.live_bytes == 4 * KIB
            del x
            assert ledger.live_bytes == 0
        assert ledger.peak_bytes == 4 * KIB

    def test_rounds_up_to_512_bytes_each_storage(self):
        with MemoryLedger() as ledger:
            kept = [torch.zeros(1), torch.zeros(129)]
        assert ledger.live_bytes == 512 + 1024
        del kept

    def test_plain_bytes_on_request(self):
        with MemoryLedger(block_bytes=1) as ledger:
            kept = torch.zeros(3)
        assert ledger.live_bytes == 12
        del kept

    def test_empty_tensors_are_free(self):
        with MemoryLedger() as ledger:
            kept = torch.zeros(0)
        assert ledger.peak_bytes == 0
        del kept

    def test_a_view_keeps_the_whole_storage_and_counts_once(self):
        with MemoryLedger() as ledger:
            x = floats(8 * KIB)
            view = x[:1].view(1, 1).t()
            assert ledger.live_bytes == 8 * KIB
            del x
            assert ledger.live_bytes == 8 * KIB
            del view
            assert ledger.live_bytes == 0

    def test_views_of_tensors_older_than_the_block_do_not_count(self):
        x = floats(8 * KIB)
        with MemoryLedger() as ledger:
            kept = [x.view(2, -1), x.detach(), x.expand(3, -1), x.unbind(), x.split(100)]
            x.add_(1)
            torch._foreach_add_([x], 1.0)
        assert ledger.peak_bytes == 0
        del kept

    def test_in_place_operations_are_free(self):
        with MemoryLedger() as ledger:
            x = floats(4 * KIB)
            x.add_(1).mul_(2).zero_()
            x[3] = 1
            torch.add(x, x, out=x)
            assert ledger.live_bytes == 4 * KIB
        assert ledger.peak_bytes < 6 * KIB

    def test_tensor_from_a_list_counts(self):
        with MemoryLedger() as ledger:
            kept = torch.tensor([0.0] * 256)
            assert ledger.live_bytes == KIB
        del kept

    def test_resize_is_followed(self):
        with MemoryLedger() as ledger:
            x = torch.empty(256)
            x.resize_(1024)
            assert ledger.live_bytes == 4 * KIB
            torch.arange(4096, out=x.resize_(0))
            assert ledger.live_bytes == 16 * KIB
            del x
        assert ledger.live_bytes == 0

    def test_sparse_tensors_count_by_their_parts(self):
        with MemoryLedger() as ledger:
            x = torch.eye(64).to_sparse()
            assert ledger.live_bytes >= 64 * (8 + 8 + 4)
            del x
        assert ledger.live_bytes == 0

    @pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
    def test_compressed_sparse_tensors_count_by_their_parts(self, layout):
        x = torch.eye(64)
        block_size = (4, 4) if layout.startswith("b") else ()
        with MemoryLedger() as ledger, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch calls the layouts a beta
            sparse = getattr(x, f"to_sparse_{layout}")(*([block_size] if block_size else []))
            rows = 64 // block_size[0] if block_size else 64
            values = rows * (block_size[0] * block_size[1] if block_size else 1) * 4
            assert ledger.live_bytes >= (rows + 1) * 8 + rows * 8 + values
            del sparse
        assert ledger.live_bytes == 0

    def test_copies_and_loaded_tensors_count(self):
        older = torch.zeros(256)
        file = io.BytesIO()
        torch.save(older, file)
        file.seek(0)
        with MemoryLedger() as ledger:
            copied = copy.deepcopy({"weight": older})
            assert ledger.live_bytes == KIB
            loaded = torch.load(file)
            assert ledger.live_bytes == 2 * KIB
            del copied, loaded
        assert ledger.live_bytes == 0

    def test_operations_with_several_results(self):
        with MemoryLedger() as ledger:
            values, indices = floats(4 * KIB).sort()
            assert ledger.live_bytes == 4 * KIB + 8 * KIB
            del values
            assert ledger.live_bytes == 8 * KIB
            del indices
        assert ledger.live_bytes == 0

    def test_nothing_it_does_keeps_a_tensor_alive(self):
        ledger = MemoryLedger()
        model = torch.nn.Linear(8, 8)
        ledger.watch(model)
        with ledger:
            y = model(torch.zeros(2, 8))
            references = [
                weakref.ref(y.untyped_storage()),
                weakref.ref(model),
                weakref.ref(model.weight.untyped_storage()),
            ]
            y.sum().backward()
            gradient = weakref.ref(model.weight.grad.untyped_storage())
            del y
            assert references[0]() is None
            del model
            gc.collect()
            assert [reference() for reference in references] == [None] * 3
            assert gradient() is None
            assert ledger.live_bytes == 0

    def test_does_not_change_gradients_or_leave_hooks(self):
        torch.manual_seed(0)
        model, x = torch.nn.Linear(8, 8), torch.randn(2, 8)
        model(x).sum().backward()
        expected = model.weight.grad.clone()
        model.weight.grad = None
        ledger = MemoryLedger()
        ledger.watch(model)
        with ledger:
            model(x).sum().backward()
        assert torch.equal(model.weight.grad, expected)
        assert not model.weight._post_accumulate_grad_hooks

    @hypothesis.given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3000)), max_size=40))
    def test_agrees_with_a_simple_model_of_live_storages(self, actions):
        """Random births, views, copies, deaths: the same sum as counting storages by hand."""
        held: list[torch.Tensor] = []
        with MemoryLedger() as ledger:
            for kind, number in actions:
                if kind == 0 or not held:
                    held.append(torch.empty(number))
                elif kind == 1:
                    held.append(held[number % len(held)][: number % 5])
                elif kind == 2:
                    held.append(held[number % len(held)].clone())
                elif kind == 3:
                    held[number % len(held)].add_(1)
                else:
                    del held[number % len(held)]
                storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in held}
                assert ledger.live_bytes == sum((size + 511) // 512 * 512 for size in storages.values())


class TestCategories:
    def model_and_step(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.Linear(256, 64))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        return model, optimizer, torch.randn(32, 64)

    def test_each_kind_of_tensor_is_found(self):
        model, optimizer, x = self.model_and_step()
        parameters = sum((p.nbytes + 511) // 512 * 512 for p in model.parameters())
        ledger = MemoryLedger()
        ledger.watch(model, optimizer, [x])
        assert ledger.live_by_category["parameter"] == parameters
        assert ledger.live_by_category["buffer"] == 2 * KIB + 512
        assert ledger.live_by_category["input"] == 8 * KIB
        with ledger:
            loss = model(x).square().mean()
            assert ledger.live_by_category["activation"] > 2 * 32 * 256 * 4
            loss.backward()
            assert ledger.live_by_category["gradient"] == parameters
            optimizer.step()
            steps = 512 * len(list(model.parameters()))
            assert ledger.live_by_category["optimizer state"] == 2 * parameters + steps
            optimizer.zero_grad(set_to_none=True)
            assert ledger.live_by_category["gradient"] == 0
            del loss
        assert ledger.live_by_category["activation"] == 0
        assert ledger.live_by_category["temporary"] == 0

    def test_keys_are_the_categories_and_add_up(self):
        model, _, x = self.model_and_step()
        with MemoryLedger() as ledger:
            model(x).sum().backward()
        assert tuple(ledger.peak_by_category) == CATEGORIES == tuple(ledger.live_by_category)
        assert sum(ledger.peak_by_category.values()) == ledger.peak_bytes
        assert all(point.live_bytes == sum(point.by_category.values()) for point in ledger.timeline)
        assert max(point.live_bytes for point in ledger.timeline) == ledger.peak_bytes
        assert ledger.timeline[ledger.peak_index].operation == ledger.peak_operation

    def test_a_model_born_inside_is_found_without_watching(self):
        with MemoryLedger() as ledger:
            model = torch.nn.Linear(64, 64)
            model(torch.randn(2, 64)).sum().backward()
            assert ledger.live_by_category["parameter"] == 64 * 64 * 4 + 512
            assert ledger.live_by_category["gradient"] == 64 * 64 * 4 + 512

    def test_what_a_custom_function_kept_is_an_activation_once_backward_starts(self):
        seen = {}

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x * 2)
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                seen.update(ledger.live_by_category)
                return grad * ctx.saved_tensors[0]

        x = torch.zeros(256, requires_grad=True)
        with MemoryLedger() as ledger:
            Double.apply(x).sum().backward()
        assert seen["activation"] >= 2 * KIB

    def test_the_backward_of_activations_is_temporary(self):
        w = torch.nn.Parameter(torch.randn(64, 64))
        ledger = MemoryLedger()
        x = torch.randn(64, 64, requires_grad=True)
        ledger.watch([w, x])
        with ledger:
            ((x @ w).relu() @ w).sum().backward()
        assert ledger.peak_by_category["temporary"] > 0
        size = 64 * 64 * 4
        assert live(ledger) == {"parameter": size, "input": size, "gradient": 2 * size}

    def test_phases(self):
        model, optimizer, x = self.model_and_step()
        ledger = MemoryLedger()
        ledger.watch(model, optimizer, x)
        with ledger:
            for _ in range(2):
                model(x).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss = model(x).sum()
            loss.item()
        phases = [mark.phase for mark in ledger.marks]
        assert phases == ["forward", "backward", "forward", "backward", "step"]
        assert ledger.marks[0].by_category["activation"] > 0
        assert ledger.marks[1].by_category["activation"] == 0
        assert ledger.phase == "forward"

    def test_recomputation_counts_as_activation_in_backward(self):
        from torch.utils.checkpoint import checkpoint

        block = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 64))
        ledger = MemoryLedger()
        ledger.watch(block)
        with ledger:
            checkpoint(block, torch.randn(64, 64), use_reentrant=False).sum().backward()
        kept = ledger.marks[0].by_category["activation"]
        recomputed = max(p.by_category["activation"] for p in ledger.timeline if p.phase == "backward")
        assert kept < 64 * 1024 * 4 < recomputed


class TestReuse:
    def test_counts_on_after_the_block_and_in_the_next(self):
        ledger = MemoryLedger()
        with ledger:
            x = floats(4 * KIB)
        del x
        assert ledger.live_bytes == 0
        with ledger:
            y = floats(8 * KIB)
        assert ledger.live_bytes == 8 * KIB == ledger.peak_bytes
        del y

    def test_reset_begins_a_new_peak(self):
        with MemoryLedger() as ledger:
            floats(8 * KIB)
            kept = floats(2 * KIB)
            ledger.reset()
            assert (ledger.peak_bytes, ledger.timeline) == (2 * KIB, [])
        del kept

    def test_nested_ledgers_each_count(self):
        with MemoryLedger() as outer:
            a = floats(4 * KIB)
            with MemoryLedger() as inner:
                b = floats(2 * KIB)
            assert (outer.live_bytes, inner.live_bytes) == (6 * KIB, 2 * KIB)
        del a, b

    def test_the_same_ledger_inside_itself(self):
        ledger = MemoryLedger()
        with ledger, ledger:
            a = floats(4 * KIB)
            with ledger:
                b = floats(2 * KIB)
        assert ledger.live_bytes == 6 * KIB
        assert len(ledger.timeline) == 2
        del a, b

    def test_an_exception_in_the_middle_leaves_it_usable(self):
        ledger = MemoryLedger()
        with pytest.raises(ZeroDivisionError), ledger:
            x = floats(4 * KIB)
            1 / 0
        assert ledger.live_bytes == 4 * KIB
        del x
        with ledger:
            assert ledger.live_bytes == 0
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is None

    def test_an_exception_in_backward_leaves_it_usable(self):
        x = torch.zeros(4, requires_grad=True)
        ledger = MemoryLedger()
        y = x * 1
        y.register_hook(lambda grad: 1 / 0)
        with pytest.raises(ZeroDivisionError), ledger:
            y.sum().backward()
        with ledger:
            kept = (x * 2).sum()
        assert ledger.timeline[-1].phase != "backward"
        del kept


class TestCapacity:
    def test_raises_at_the_operation_that_does_not_fit(self):
        with MemoryLedger(capacity_bytes=10 * KIB, gpu_name="GPU 0 (toy)") as ledger:
            x = floats(8 * KIB, requires_grad=True)
            with pytest.raises(torch.OutOfMemoryError) as caught:
                x * 2
        error = caught.value
        assert isinstance(error, SimulatedOutOfMemoryError) and isinstance(error, RuntimeError)
        assert (error.requested_bytes, error.free_bytes, error.capacity_bytes) == (8 * KIB, 2 * KIB, 10 * KIB)
        assert error.operation == "aten.mul.Tensor"
        assert sum(error.live_by_category.values()) == 8 * KIB
        assert str(error).startswith(
            "CUDA out of memory (simulated). Tried to allocate 8,192 bytes. GPU 0 (toy) has a total capacity of "
            "10,240 bytes of which 2,048 bytes is free."
        )
        assert ledger.live_bytes == 8 * KIB

    def test_keeps_its_type_when_it_is_raised_inside_backward(self):
        x = floats(4 * KIB, requires_grad=True)
        with MemoryLedger(capacity_bytes=10 * KIB):
            y = (x * 2).exp()
            with pytest.raises(SimulatedOutOfMemoryError) as caught:
                y.sum().backward()
        assert caught.value.phase == "backward"

    def test_exactly_full_fits(self):
        with MemoryLedger(capacity_bytes=8 * KIB) as ledger:
            kept = floats(8 * KIB)
        assert ledger.peak_bytes == 8 * KIB
        del kept
