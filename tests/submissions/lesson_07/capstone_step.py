# %% accepted: without the cache of weight casts, whole logits, counts as Python numbers
def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox import hidden_states

    model.zero_grad()
    total = int((targets != -100).sum())
    result = 0.0
    half = plan.precision == "fp16"
    for i in range(0, len(tokens), plan.micro_batch):
        x, y = tokens[i : i + plan.micro_batch], targets[i : i + plan.micro_batch]
        n = int((y != -100).sum())
        if n == 0:
            continue
        with torch.autocast("cpu", dtype=torch.float16, enabled=half, cache_enabled=plan.weight_cast_cache):
            logits = model.lm_head(hidden_states(model, x, plan.checkpoint_blocks)).float()
            if plan.chunk_tokens:
                pieces = zip(logits.flatten(0, 1).split(plan.chunk_tokens), y.flatten().split(plan.chunk_tokens))
                loss = sum(F.cross_entropy(a, b, reduction="sum") for a, b in pieces) / total
            else:
                loss = F.cross_entropy(logits.flatten(0, 1), y.flatten()) * n / total
        del logits
        scaler.scale(loss).backward()
        result += loss.item()
    scaler.step(optimizer)
    scaler.update()
    return result


def capstone_plan():
    from course_lib.toolbox import Plan

    return Plan("fp16", "sdpa", 1, 32, checkpoint_blocks=22, optimizer="adamw8bit", weight_cast_cache=False)

# %% accepted: sums of losses, gradients divided after unscaling, its own checkpointing
from torch.utils.checkpoint import checkpoint


def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox import chunked_cross_entropy

    for p in model.parameters():
        p.grad = None
    device = tokens.device.type
    valid = (targets != -100).sum()
    mean = torch.zeros(())
    for x, y in zip(tokens.split(plan.micro_batch), targets.split(plan.micro_batch)):
        share = (y != -100).sum() / valid
        with torch.autocast(device, dtype=torch.half, enabled=plan.precision == "fp16"):
            h = model.wte(x) + model.wpe.weight[: x.shape[1]]
            for k, block in enumerate(model.blocks):
                h = checkpoint(block, h, use_reentrant=False) if k < plan.checkpoint_blocks else block(h)
            h = model.ln_f(h).flatten(0, 1)
            loss = chunked_cross_entropy(h, model.wte.weight, y.flatten(), plan.chunk_tokens or len(h))
        scaler.scale(loss * share).backward()
        mean += loss.detach() * share
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return float(mean)


def capstone_plan():
    from course_lib.toolbox import Plan

    return Plan(precision="fp16", attention="sdpa", micro_batch=1, accumulation=32, checkpoint_blocks=22, chunk_tokens=256, optimizer="adamw8bit")

# %% rejected: shrinks_the_global_batch
from course_lib.toolbox import capstone_step


def capstone_plan():
    from course_lib.toolbox import Plan

    return Plan("fp16", "sdpa", 1, 1, checkpoint_blocks=22, chunk_tokens=512, optimizer="adamw8bit")

# %% rejected: does_not_fit
from course_lib.toolbox import capstone_step


def capstone_plan():
    from course_lib.toolbox import Plan

    return Plan("fp16", "sdpa", 1, 32, checkpoint_blocks=22, chunk_tokens=512, optimizer="adamw")

# %% rejected: does_not_fit
from course_lib.toolbox import capstone_step


def capstone_plan():
    from course_lib.toolbox import Plan

    return Plan("fp16", "sdpa", 1, 32, checkpoint_blocks=0, chunk_tokens=512, optimizer="adamw8bit")

# %% rejected: does_not_fit
from course_lib.toolbox import capstone_step


def capstone_plan():
    from course_lib.toolbox import Plan

    return Plan("fp16", "sdpa", 1, 32, checkpoint_blocks=22, optimizer="adamw8bit")

# %% rejected: -
# bf16 on a T4.
from course_lib.toolbox import capstone_step


def capstone_plan():
    from course_lib.toolbox import Plan

    return Plan("bf16", "sdpa", 1, 32, checkpoint_blocks=22, chunk_tokens=512, optimizer="adamw8bit")

# %% rejected: mean_of_means
from course_lib.toolbox import capstone_plan


def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox.capstone import micro_batch_loss

    optimizer.zero_grad()
    mean = 0.0
    for x, y in zip(tokens.split(plan.micro_batch), targets.split(plan.micro_batch)):
        with torch.autocast("cpu", dtype=torch.float16, enabled=plan.precision == "fp16"):
            loss = micro_batch_loss(model, x, y, plan) / plan.accumulation
        scaler.scale(loss).backward()
        mean += loss.item()
    scaler.step(optimizer)
    scaler.update()
    return mean

# %% rejected: sum_instead_of_mean
from course_lib.toolbox import capstone_plan


def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox.capstone import micro_batch_loss

    optimizer.zero_grad()
    mean = 0.0
    for x, y in zip(tokens.split(plan.micro_batch), targets.split(plan.micro_batch)):
        with torch.autocast("cpu", dtype=torch.float16, enabled=plan.precision == "fp16"):
            loss = micro_batch_loss(model, x, y, plan)
        scaler.scale(loss).backward()
        mean += loss.item()
    scaler.step(optimizer)
    scaler.update()
    return mean / plan.accumulation

# %% rejected: steps_with_scaled_gradients
from course_lib.toolbox import capstone_plan


def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox.capstone import micro_batch_loss

    optimizer.zero_grad()
    mean, valid = 0.0, (targets != -100).sum()
    for x, y in zip(tokens.split(plan.micro_batch), targets.split(plan.micro_batch)):
        with torch.autocast("cpu", dtype=torch.float16, enabled=plan.precision == "fp16"):
            loss = micro_batch_loss(model, x, y, plan) * (y != -100).sum() / valid
        scaler.scale(loss).backward()
        mean += loss.item()
    if all(p.grad.isfinite().all() for p in model.parameters()):
        optimizer.step()
    elif scaler.is_enabled():
        scaler.update(scaler.get_scale() / 2)
    return mean

# %% rejected: updates_the_scale_per_micro_batch
from course_lib.toolbox import capstone_plan


def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox.capstone import micro_batch_loss

    optimizer.zero_grad()
    mean, valid = 0.0, (targets != -100).sum()
    total = [torch.zeros_like(p) for p in model.parameters()]
    for x, y in zip(tokens.split(plan.micro_batch), targets.split(plan.micro_batch)):
        with torch.autocast("cpu", dtype=torch.float16, enabled=plan.precision == "fp16"):
            loss = micro_batch_loss(model, x, y, plan) * (y != -100).sum() / valid
        model.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if scaler.is_enabled() and not scaler._found_inf_per_device(optimizer):
            pass
        for t, p in zip(total, model.parameters()):
            t += p.grad
        mean += loss.item()
        bad = not all(p.grad.isfinite().all() for p in model.parameters())
        scaler.update()
    if all(t.isfinite().all() for t in total):
        for t, p in zip(total, model.parameters()):
            p.grad = t
        optimizer.step()
    optimizer.zero_grad()
    return mean

# %% rejected: steps_on_overflow
from course_lib.toolbox import capstone_plan


def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox.capstone import micro_batch_loss

    optimizer.zero_grad()
    mean, valid = 0.0, (targets != -100).sum()
    for x, y in zip(tokens.split(plan.micro_batch), targets.split(plan.micro_batch)):
        with torch.autocast("cpu", dtype=torch.float16, enabled=plan.precision == "fp16"):
            loss = micro_batch_loss(model, x, y, plan) * (y != -100).sum() / valid
        scaler.scale(loss).backward()
        mean += loss.item()
    for p in model.parameters():
        p.grad /= scaler.get_scale()
    optimizer.step()
    return mean

# %% rejected: whole_batch_at_once
from course_lib.toolbox import capstone_plan


def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox.capstone import micro_batch_loss

    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=plan.precision == "fp16", cache_enabled=plan.weight_cast_cache):
        loss = micro_batch_loss(model, tokens, targets, plan)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.item()

# %% rejected: ignores_checkpointing
from course_lib.toolbox import capstone_plan


def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from dataclasses import replace

    from course_lib.toolbox.capstone import capstone_step

    return capstone_step(model, optimizer, scaler, tokens, targets, replace(plan, checkpoint_blocks=0))

# %% rejected: leaks_from_step_to_step
from course_lib.toolbox import capstone_plan

_losses = []


def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox.capstone import micro_batch_loss

    optimizer.zero_grad()
    mean, valid = 0, (targets != -100).sum()
    for x, y in zip(tokens.split(plan.micro_batch), targets.split(plan.micro_batch)):
        with torch.autocast("cpu", dtype=torch.float16, enabled=plan.precision == "fp16"):
            loss = micro_batch_loss(model, x, y, plan) * (y != -100).sum() / valid
        scaler.scale(loss).backward()
        mean = mean + loss
    scaler.step(optimizer)
    scaler.update()
    return mean


# %% rejected: -
def capstone_step(model, optimizer, scaler, tokens, targets, plan):
    from course_lib.toolbox import capstone_step as right

    model.eval()
    return right(model, optimizer, scaler, tokens, targets, plan)


def capstone_plan():
    from course_lib.toolbox import Plan

    return Plan("fp16", "sdpa", 1, 32, checkpoint_blocks=22, chunk_tokens=512, optimizer="adamw8bit")
