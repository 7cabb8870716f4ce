"""How our modules appear in a graph of ``torch.fx.symbolic_trace``: as one node each, as torch's own do."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.fx import Proxy

from tokenspace.errors import TokenspaceError


def call_of(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Return the node of a graph that calls ``module``, or None.

    None unless an argument is a ``torch.fx.Proxy``. ``TokenspaceError`` for the module that was given to
    ``symbolic_trace`` itself: its forward depends on its arguments, and can't be a node of its own graph.

    >>> import torch
    >>> from tokenspace.nn import TokenEmbedding
    >>> graph = torch.fx.symbolic_trace(nn.Sequential(TokenEmbedding(4, 2), nn.Linear(2, 2))).graph
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """
    proxy = next((each for each in (*args, *kwargs.values()) if isinstance(each, Proxy)), None)
    if proxy is None:
        return None
    tracer: Any = proxy.tracer
    if module is getattr(tracer, "root", None):
        raise TokenspaceError(
            f"torch.fx.symbolic_trace can't enter a {type(module).__name__}, whose forward depends on its "
            "arguments; trace a module that calls it, where it is one node, or use torch.export"
        )
    return tracer.create_proxy("call_module", tracer.path_of_module(module), args, kwargs)
