"""Source texts inside official pickles: looked at, never executed."""

import ast
import warnings

_MAX_CHARACTERS = 1_000_000


def only_defines(source: str) -> bool:
    r"""Whether a module's source, if imported, would import and define, and call nothing.

    The sources of StyleGAN3's networks are such. A text that calls something when it is imported
    is not one of them, although nothing here would ever execute it.

    Example:
        >>> only_defines("import torch\nclass Net:\n    def forward(self):\n        run()")
        True
        >>> only_defines("open('file', 'w')"), only_defines("class Net:\n    x = print()")
        (False, False)
    """
    if len(source) > _MAX_CHARACTERS:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of doubtful escapes in texts
            nodes: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Call):
            return False
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            defaults = [default for default in node.args.kw_defaults if default is not None]
            nodes += [*node.decorator_list, *node.args.defaults, *defaults]
        elif not isinstance(node, ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return True
