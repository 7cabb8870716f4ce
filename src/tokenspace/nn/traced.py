"""How our modules appear in a graph of ``torch.fx.symbolic_trace``: as one node each, as torch's own do."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.fx import Proxy


def call_of(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Return the node of a graph that calls ``module``, or None.

    None unless an argument is a ``torch.fx.Proxy``, and for the module whose own forward is being traced.

    >>> import torch
    >>> from tokenspace.nn import TokenEmbedding
    >>> graph = torch.fx.symbolic_trace(nn.Sequential(TokenEmbedding(4, 2), nn.Linear(2, 2))).graph
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """
    proxy = next((each for each in (*args, *kwargs.values()) if isinstance(each, Proxy)), None)
    if proxy is None or module is getattr(proxy.tracer, "root", None):
        return None
    tracer: Any = proxy.tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(module), args, kwargs)
