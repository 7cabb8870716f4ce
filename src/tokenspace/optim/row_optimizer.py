"""What the optimizers of this room share: a ``torch.optim.Optimizer`` that takes gradients row by row."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from tokenspace.errors import ShapeError
from tokenspace.initializers import real
from tokenspace.nn import memory, sharded
from tokenspace.optim.gradients import row_gradient, wide
from tokenspace.optim.touched import Touched

State = dict[str, Any]


_TORCH_ONLY = ("capturable", "foreach", "fused")
"""Options that choose how torch's optimizers compute, not what."""


@functools.cache
def _known_options() -> frozenset[str]:
    """Return the options of torch's optimizers and of these: each one honors its own and refuses the others.

    Read from the constructors, as each release of torch may add some. Other keys of a group are the caller's
    or a scheduler's.
    """
    classes = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    names = {"exact"}
    for kind in classes:
        if issubclass(kind, Optimizer) and kind is not Optimizer:
            names |= inspect.signature(kind).parameters.keys()
    return frozenset(names - {"params"})


class DenseGradientWarning(UserWarning):
    """A table under an optimizer for row-sparse gradients gets dense ones: each step costs all its rows."""


class RowOptimizer(Optimizer):
    """Row-sparse gradients update their rows, dense ones the whole parameter; no step costs more than that.

    A subclass says which settings a group may have (`settings_of`), and what a step does (`update`). All
    gradients are looked at before any parameter is changed, so an error leaves everything as it was.

    Each has ``maximize``, which turns gradients around. An option of a torch optimizer that a subclass lacks
    is refused by name wherever it is set (constructor, group, ``param_groups``, loaded state), unless it is
    off.
    """

    state_names: tuple[str, ...] = ()
    """What the state holds for a parameter, besides ``step``."""
    state_by_row = False
    """Whether the state has one number a row, not one for each of the parameter's."""

    def __init__(self, params: Any, defaults: dict[str, Any], others: dict[str, Any]) -> None:
        for name in others.keys() - _known_options():
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")
        self._check_options({**defaults, **others}, list(defaults))
        self._said: set[int] = set()  # ids of parameters that a warning has named
        self._row_sparse: set[int] = set()  # ids of parameters that had a row-sparse gradient
        super().__init__(params, defaults)

    def settings_of(self, group: dict[str, Any]) -> Any:
        """The group's settings as numbers, or ``ShapeError``. Schedules change them: asked at each step."""
        raise NotImplementedError

    def update(self, touched: Touched, settings: Any) -> None:
        """One step for the rows of one parameter."""
        raise NotImplementedError

    def _checked_settings(self, group: dict[str, Any]) -> Any:
        """`settings_of` a group whose keys are checked, too."""
        own = self._own
        missing = [name for name in own if name not in group and name != "maximize"]
        if missing:
            raise ShapeError(f"this parameter group lacks {missing[0]!r}; set it, as it was at first")
        self._check_options(group, own)
        return self.settings_of(group)

    @property
    def _own(self) -> list[str]:
        """The names of this class's options; torch adds one to the defaults of a copy."""
        return [name for name in self.defaults if name != "differentiable"]

    def _check_options(self, group: dict[str, Any], own: list[str]) -> None:
        for name in self._foreign_options(group, own):
            raise ShapeError(
                f"{type(self).__name__} does not have {name}={group[name]!r}; leave it out. Its options: "
                f"{', '.join(own)}"
            )
        if not isinstance(group.get("maximize", False), bool):
            raise ShapeError(f"maximize must be True or False; found {group['maximize']!r}")

    def _foreign_options(self, group: dict[str, Any], own: list[str]) -> list[str]:
        """The options in ``group`` that are switched on and are not this class's ``own``."""
        known = _known_options()
        return [
            name for name, value in group.items() if name in known and name not in own and not _is_off(value)
        ]

    def fitting_state(self, weight: Tensor) -> State:
        """The parameter's state, on its device and in the type that kernels take."""
        state = self.state[weight]
        for name, value in state.items():
            if name != "step" and isinstance(value, Tensor):
                state[name] = value.to(weight.device, wide(weight.dtype)).contiguous()
        return state

    def check(self, touched: Touched, settings: Any) -> None:
        """Refuse what `update` can't do; nothing has been changed yet."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; with a closure, call it first and return its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step()
        return loss

    @torch._disable_dynamo
    def _step(self) -> None:
        plans = []
        for group in self.param_groups:
            settings = self._checked_settings(group)
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                touched = _touched(weight)
                if group.get("maximize", False):
                    touched = touched._replace(d=-touched.d)
                self._check_state(weight)
                self.check(touched, settings)
                plans.append((touched, settings))
        self._say_what_is_dense([touched for touched, _ in plans])
        for touched, settings in plans:
            if touched.weight.numel():
                self.update(touched, settings)

    def _check_state(self, weight: Tensor, state: State | None = None) -> None:
        shape = weight.shape[:1] if self.state_by_row else weight.shape
        state = self.state.get(weight, {}) if state is None else state
        for name, value in state.items():
            if name != "step" and isinstance(value, Tensor) and value.shape != shape:
                raise ShapeError(
                    f"the state {name!r} of a parameter {tuple(weight.shape)} is {tuple(value.shape)}; it "
                    f"should be {tuple(shape)}. Is it another model's, or has the parameter grown?"
                )

    def _say_what_is_dense(self, step: list[Touched]) -> None:
        sparse = {id(touched.weight) for touched in step if touched.ids is not None}
        self._row_sparse |= sparse
        dense = [t.weight for t in step if t.ids is None and t.weight.ndim > 1]
        tables = [weight for weight in dense if id(weight) in self._row_sparse]
        if dense and not self._row_sparse and not self._said:
            tables = [max(dense, key=len)]  # nothing is row-sparse: the one with the most rows is meant
        for weight in tables:
            if id(weight) not in self._said:
                self._said.add(id(weight))
                shape = " × ".join(f"{n:,}" for n in weight.shape)
                warnings.warn(
                    f"the gradient of the {shape} table is dense: a tied head makes it so, or an embedding "
                    f"without sparse=True. {type(self).__name__} now updates all its rows at each step",
                    DenseGradientWarning,
                    stacklevel=8,  # past the wrappers of step
                )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        try:
            self._checked_settings(self.param_groups[-1])
            for weight in self.param_groups[-1]["params"]:
                if not weight.is_floating_point() or weight.layout != torch.strided:
                    raise ShapeError(
                        f"{type(self).__name__} trains dense tensors of floats (their gradients may be "
                        f"row-sparse); found {weight.dtype}, {weight.layout}"
                    )
        except ShapeError:
            self.param_groups.pop()
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state: this class's own, or that of the torch optimizer which it corresponds to.

        The numbers are copied, and stay as precise as they are here: float32 at least. Settings that the
        state's optimizer doesn't have keep their values. ``foreach``, ``fused`` and ``capturable``, which
        change no numbers, are dropped; ``ShapeError`` for other options that this class lacks.
        """
        own = [dict(group) for group in self.param_groups]
        self._check_loaded(state_dict)
        super().load_state_dict(state_dict)
        for group, before in zip(self.param_groups, own, strict=True):
            for name in _TORCH_ONLY:
                group.pop(name, None)
            for name, value in before.items():
                group.setdefault(name, value)
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        weights = chain.from_iterable(group["params"] for group in self.param_groups)
        for number, weight in zip(saved, weights, strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                self.state[weight][name] = _copied(value, name, weight)

    def _check_loaded(self, state_dict: dict[str, Any]) -> None:
        """Refuse a state with options that this optimizer does not know, before anything has changed."""
        for group in state_dict["param_groups"]:
            group = {name: value for name, value in group.items() if name not in _TORCH_ONLY}
            for name in self._foreign_options(group, self._own):
                raise ShapeError(
                    f"this state was made with {name}={group[name]!r}, which {type(self).__name__} "
                    "does not have; load it into the optimizer that made it"
                )
            self._checked_settings({**self.defaults, **group})
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        weights = chain.from_iterable(group["params"] for group in self.param_groups)
        for number, weight in zip(saved, weights, strict=False):  # torch says it if they are not as many
            state = state_dict["state"].get(number, {})
            held = {name for name, value in state.items() if value is not None}
            unknown = sorted(held - {"step", *self.state_names})
            if unknown:
                raise ShapeError(
                    f"this state holds {', '.join(unknown)}, which {type(self).__name__} does not have; load "
                    "it into the optimizer that made it"
                )
            self._check_state(weight, state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.setdefault("_said", set())
        self.__dict__.setdefault("_row_sparse", set())
        super().__setstate__(state)  # deepcopy, unpickling, and the loading of a state


def _touched(weight: Tensor) -> Touched:
    gradient = weight.grad
    assert gradient is not None
    if gradient.layout == torch.strided:
        return Touched.by(weight, gradient)
    return Touched.by(weight, row_gradient(gradient))


def _is_off(value: Any) -> bool:
    return value is None or (isinstance(value, (bool, int, float)) and not value)


def _copied(value: Any, name: str, weight: Tensor) -> Any:
    if name == "step":
        return _counted(value)
    if isinstance(value, Tensor):
        return value.detach().to(weight.device, wide(weight.dtype), copy=True)
    return value


def setting(group: dict[str, Any], name: str, *, positive: bool = False) -> float:
    """A group's setting, a number or a tensor of one, as a float; ``ShapeError`` unless it is 0 or more."""
    value = group[name]
    number = real(name, value.item() if isinstance(value, Tensor) and value.numel() == 1 else value)
    if number < 0 or (positive and number == 0):
        raise ShapeError(f"{name} must be {'more than 0' if positive else '0 or more'}; found {value!r}")
    return number


def steps_taken(state: State) -> int:
    """One step more: the number of this one, 1 for the first. Kept as torch keeps it."""
    taken = int(state.get("step", 0)) + 1
    state["step"] = _counted(taken)
    return taken


def _counted(steps: float) -> Tensor:
    """A number of steps in float32, as torch has it: in bfloat16, if that is the default, 256 + 1 is 256."""
    return torch.tensor(float(steps), dtype=torch.float32, device="cpu")


def zeros_for(weight: Tensor, *, by_row: bool = False) -> Tensor:
    """A state of the parameter's shape, or of one number a row."""
    if sharded.is_distributed(weight):
        return sharded.zeros_like(weight, wide(weight.dtype), by_row=by_row)
    shape = tuple(weight.shape[:1] if by_row else weight.shape)
    if weight.is_cpu:
        return memory.untouched_zeros(shape, wide(weight.dtype))
    return torch.zeros(shape, dtype=wide(weight.dtype), device=weight.device)
