"""Adam with decoupled weight decay over the rows that have gradients; lazily, or exactly.

    w ← w · (1 - lr · weight_decay)        m ← m + (1 - β1) (g - m)        v ← β2 v + (1 - β2) g²
    w ← w - lr · (m / (1 - β1^t)) / (√(v / (1 - β2^t)) + eps)                        at the t-th step

Dense AdamW does this to every row at every step, with g = 0 where a row has no gradient. Lazily, such a row
stays as it is. Exactly, it does those steps when it is next read: ``kernels.idle_steps`` has the formula.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tokenspace.errors import ShapeError, TokenspaceError
from tokenspace.kernels import update
from tokenspace.kernels.update import AdamStep
from tokenspace.nn import frozen_row
from tokenspace.optim.idle_table import IdleTable
from tokenspace.optim.row_optimizer import RowOptimizer, setting, steps_taken, zeros_for
from tokenspace.optim.touched import Touched, array_of, wrote


class _Settings(NamedTuple):
    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    exact: bool


class SparseAdamW(RowOptimizer):
    """AdamW (Loshchilov and Hutter 2019) whose step costs what the rows with gradients cost.

    - ``exact=False``: a row's moments and its decay move in the steps that touch it, and in no others. That
      is ``torch.optim.SparseAdam``, to which ``weight_decay`` is added.
    - ``exact=True``: dense ``torch.optim.AdamW``, to rounding. Look rows up with
      ``tokenspace.nn.TokenEmbedding``, which has their missed steps done first; call `flush` before reading
      or writing ``weight`` directly. Saving, copying and `state_dict` flush by themselves. On the CPU only.

    A dense gradient updates all rows as ``torch.optim.AdamW`` does, either way. The state is AdamW's own
    (``step``, ``exp_avg``, ``exp_avg_sq``), so a run can go on under the other one, in both directions.

    ``params`` and groups are torch's; ``lr`` may be a tensor of one number; ``maximize`` ascends. All
    settings may change from step to step. ``others`` are torch's further options: ``ShapeError`` for one that
    is switched on, for an invalid setting, and for an lr · weight_decay of 1 or more.

    >>> weight = torch.nn.Parameter(torch.ones(4, 2))
    >>> optimizer = SparseAdamW([weight], lr=0.5, weight_decay=0.1)
    >>> torch.nn.functional.embedding(torch.tensor([1, 1]), weight, sparse=True).sum().backward()
    >>> optimizer.step()
    >>> weight.detach().T
    tensor([[1.0000, 0.4500, 1.0000, 1.0000],
            [1.0000, 0.4500, 1.0000, 1.0000]])
    """

    state_names = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        exact: bool = False,
        maximize: bool = False,
        **others: Any,
    ) -> None:
        self._start()
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "exact": exact}
        super().__init__(params, {**defaults, "maximize": maximize}, others)

    def _foreign_options(self, group: dict[str, Any], own: list[str]) -> list[str]:
        found = super()._foreign_options(group, own)
        decoupled = group.get("decoupled_weight_decay", True)
        if decoupled:
            return [name for name in found if name != "decoupled_weight_decay"]
        return [*found, "decoupled_weight_decay"] if group.get("weight_decay") else found

    def settings_of(self, group: dict[str, Any]) -> _Settings:
        betas = group["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ShapeError(f"betas must be two numbers, each at least 0 and below 1; found {betas!r}")
        beta1, beta2 = (setting({"betas": beta}, "betas") for beta in betas)
        if max(beta1, beta2) >= 1:
            raise ShapeError(f"betas must be two numbers, each at least 0 and below 1; found {betas!r}")
        lr, weight_decay = setting(group, "lr"), setting(group, "weight_decay")
        if lr * weight_decay >= 1:
            raise ShapeError(
                f"lr · weight_decay must stay below 1; found {lr:g} · {weight_decay:g}, with which a step's "
                "decay turns weights over"
            )
        if not isinstance(group["exact"], bool):
            raise ShapeError(f"exact must be True or False; found {group['exact']!r}")
        return _Settings(lr, beta1, beta2, setting(group, "eps", positive=True), weight_decay, group["exact"])

    @torch.no_grad()
    def flush(self) -> None:
        """Do all missed steps: every row is then what dense AdamW would have made of it."""
        for table in self._idle.values():
            table.catch_up()

    def check(self, touched: Touched, settings: _Settings) -> None:
        if not settings.exact or touched.ids is None:
            return
        if not touched.fits_kernels():
            raise TokenspaceError(
                "SparseAdamW(exact=True) takes a contiguous table of floats on the CPU; found "
                f"{touched.weight.dtype} on {touched.weight.device}, {_gaps(touched.weight)}. "
                "Use exact=False for this one"
            )
        idle = self._idle.get(touched.weight)
        if idle is None or _comes_from_other_processes():
            return
        behind = idle.behind(touched.rows())
        if behind.rows:
            shape = " × ".join(f"{n:,}" for n in touched.weight.shape)
            raise TokenspaceError(
                f"{behind.rows:,} of the {len(touched.d):,} rows in this gradient of a {shape} table had not "
                f"done their missed steps when they were looked up (row {behind.first:,} misses "
                f"{behind.steps:,}). With exact=True, look rows up with tokenspace.nn.TokenEmbedding; before "
                "a forward that reads them in another way, call flush()"
            )

    def update(self, touched: Touched, settings: _Settings) -> None:
        weight = touched.weight
        state = self.fitting_state(weight)
        if "exp_avg" not in state:
            state["exp_avg"], state["exp_avg_sq"] = zeros_for(weight), zeros_for(weight)
        dense = touched.ids is None
        if dense or not settings.exact:
            if weight in self._idle:
                self._idle[weight].catch_up()
            _adam(touched, state, _step(settings, steps_taken(state), lazily=not dense))
            return
        idle = self._idle_table(weight, settings)
        idle.watch()
        step = _step(settings, steps_taken(state), lazily=False)
        idle.make_room(step)
        idle.catch_up(touched.ids)  # those that no missed step would move: their moments at least
        _adam(touched, state, step)
        idle.record(touched.rows(), step)
        held = frozen_row.row_held(weight)
        if held is not None:  # what holds it puts it back at the end of this step, not after a later catch-up
            idle.catch_up(torch.tensor([held], device="cpu"))

    def _idle_table(self, weight: Tensor, settings: _Settings) -> IdleTable:
        if weight in self._idle and not self._idle[weight].fits():
            self._idle.pop(weight).catch_up()
        if weight not in self._idle:
            self._let_go_of_former_tables()
            self._idle[weight] = IdleTable(weight, self.state[weight], settings.eps)
        return self._idle[weight]

    def _let_go_of_former_tables(self) -> None:
        """Those whose place in a group another parameter has taken, as when a vocabulary grows."""
        owned = {id(weight) for group in self.param_groups for weight in group["params"]}
        for weight in [weight for weight in self._idle if id(weight) not in owned]:
            self._idle.pop(weight).catch_up()

    def state_dict(self) -> dict[str, Any]:
        """The state as ``torch.optim.AdamW`` has it; all rows are brought up to date first."""
        self.flush()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state of this class, ``torch.optim.AdamW`` or ``torch.optim.SparseAdam``.

        The weights are those the model has now: load its own state dict first. ``exact`` stays as it is.
        """
        self.flush()
        exact = [group["exact"] for group in self.param_groups]
        super().load_state_dict(state_dict)
        self._idle.clear()
        for group, own in zip(self.param_groups, exact, strict=True):
            group["exact"] = own

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_idle" not in self.__dict__:
            self._start()
        super().__setstate__(state)

    def _start(self) -> None:
        self._idle: dict[Tensor, IdleTable] = {}
        # A model whose optimizer is gone has all its steps.
        weakref.finalize(self, _close, self._idle).atexit = False


def _step(settings: _Settings, t: int, *, lazily: bool) -> AdamStep:
    """The numbers of step t. ``lazily``: as SparseAdam has them, which does not scale eps with the step."""
    first, second = 1 - settings.beta1**t, (1 - settings.beta2**t) ** 0.5
    rate, root = settings.lr / first, 1 / second
    if lazily:
        rate, root = rate * second, 1.0
    decay = 1 - settings.lr * settings.weight_decay
    return AdamStep(decay, 1 - settings.beta1, 1 - settings.beta2, rate, root, settings.eps)


def _adam(touched: Touched, state: dict[str, Any], step: AdamStep) -> None:
    exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
    if touched.fits_kernels():
        update.adam(
            array_of(touched.weight),
            array_of(exp_avg),
            array_of(exp_avg_sq),
            touched.rows(),
            touched.gradients(),
            step,
            threads=torch.get_num_threads(),
        )
        wrote(touched.weight)
        return
    w, m, v = touched.read(), touched.read(exp_avg), touched.read(exp_avg_sq)
    g = touched.d.to(m.dtype)
    m = m + step.first * (g - m)
    v = (1 - step.second) * v + step.second * (g * g)
    touched.write(m, exp_avg)
    touched.write(v, exp_avg_sq)
    touched.write(step.decay * w - step.rate * m / (step.root * v.sqrt() + step.eps))


def _gaps(weight: Tensor) -> str:
    return "contiguous" if weight.is_contiguous() else "not contiguous"


def _close(idle: dict[Tensor, IdleTable]) -> None:
    for table in idle.values():
        table.close()


def _comes_from_other_processes() -> bool:
    """Then rows of a gradient may have been looked up, in order, by another process than this one."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
