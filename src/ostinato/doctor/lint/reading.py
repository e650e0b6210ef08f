"""Reading one file: its imports, classes, functions and its own body.

`read_module` turns a syntax tree into facts. A class is read method by method, `__init__` first, so
that the others know its attributes; functions inside functions are read when the outer one is done.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from ostinato.doctor.lint.annotations import value_of
from ostinato.doctor.lint.evidence import replaces_forward, tensors_among, tensors_of_forward
from ostinato.doctor.lint.facts import Class, Function, Module, Scope
from ostinato.doctor.lint.imports import absolute, canonical
from ostinato.doctor.lint.rules.wrapping import COMPILED, GRAPHED, scope_of
from ostinato.doctor.lint.scene import Scene, kept_alive
from ostinato.doctor.lint.statements import Statements
from ostinato.doctor.lint.values import (
    PYTHON,
    UNKNOWN,
    Kind,
    Op,
    Value,
    each,
    instance,
    join,
    mentions_parameter,
    name,
    symbol,
)

Def = ast.FunctionDef | ast.AsyncFunctionDef
_ONCE = re.compile(
    r"^(?:__init__|__post_init__|__new__|__repr__|__str__|__setstate__|__getstate__|__del__"
    r"|_?load\w*|_?save\w*|_?from_pretrained|_?init_\w*|_?initialize\w*|reset_parameters"
    r"|_?convert\w*|_?setup\w*|_?build\w*|_?create_model\w*|extra_repr|post_init|_?warm_?up\w*"
    r"|_?compute_\w*loss\w*|\w*_loss|loss|_?train\w*|training_step|_?fit|fine_?tune\w*"
    r"|_?export\w*|_?tie_\w*|_?prune\w*|_?resize_\w*|_?quantize_model\w*|state_dict"
    r"|_?register_\w*|_?download\w*|dummy_inputs|_?validate_config\w*|set_\w*embeddings"
    r"|_?calibrate\w*)$"
)
_TRAINS = re.compile(r"^_?(?:train|fit|finetune|fine_tune)", re.IGNORECASE)
_NOT_A_STEP = re.compile(r"Loss|Criterion|Matcher", re.IGNORECASE)
_CACHES = frozenset({"functools.lru_cache", "functools.cache", "functools.cached_property"})
_INFERENCE = frozenset({"torch.no_grad", "torch.inference_mode"})
_WORKER = re.compile(r"(?:^|_)workers?(?:$|_(?:loop|main|init|fn|init_fn|run|entry|target))")
_WRAPS = re.compile(r"graphed|compile\(")
_NUMBERS = (int, float, str, bool, bytes)


def read_module(tree: ast.Module, name_: str, path: str, *, is_package: bool, text: str) -> Module:
    """Return the facts of a file."""
    module = Module(name_, path, is_package=is_package, names_gpu="cuda" in text)
    module.names_torch = "torch" in text
    body = Function(f"{name_}.<module>")
    scene = Scene(module, body)
    _collect_names(module, tree.body)
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            _declare_class(scene, statement, name_)
    statements = Statements(scene)
    for statement in tree.body:
        if not isinstance(statement, Def | ast.ClassDef):
            try:
                statements.block([statement])
            except RecursionError:
                module.unread.append((statement.lineno, "the file itself"))
            _publish(scene)
    module.functions.append(body)
    module.wrapped = _wrapped_names(tree, scene) if _WRAPS.search(text) else frozenset()
    scene.pending.clear()
    module.replacers = frozenset(
        f"{name_}.{one.name}" for one in _definitions(tree.body) if replaces_forward(one)
    )
    for function in _definitions(tree.body):
        _read_function(module, function, name_, None, {})
    for class_ in _classes(tree.body):
        _read_class(scene, class_, name_)
    return module


def _wrapped_names(tree: ast.Module, scene: Scene) -> frozenset[str]:
    """Return the names of functions that are compiled or recorded anywhere in the file."""
    found: set[str] = set()
    for part in ast.walk(tree):
        if isinstance(part, ast.Call) and part.args:
            dotted = scene.dotted(part.func) or ""
            first = part.args[0]
            if dotted in GRAPHED or dotted in COMPILED:
                found |= {first.id} if isinstance(first, ast.Name) else set()
                found |= {first.attr} if isinstance(first, ast.Attribute) else set()
    return frozenset(found)


def _publish(scene: Scene) -> None:
    scene.module.values.update(kept_alive(scene.env))


def _definitions(body: Iterable[ast.stmt]) -> Iterator[Def]:
    for statement in body:
        if isinstance(statement, Def):
            yield statement
        elif isinstance(statement, ast.If | ast.Try):
            yield from _definitions([*statement.body, *statement.orelse])
            for handler in getattr(statement, "handlers", ()):
                yield from _definitions(handler.body)


def _classes(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield statement
        elif isinstance(statement, ast.If | ast.Try):
            yield from _classes([*statement.body, *statement.orelse])


def _collect_names(module: Module, body: Iterable[ast.stmt]) -> None:
    """Note what imports and definitions call what, wherever in the file they stand."""
    for statement in body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                short = alias.name.partition(".")[0]
                module.aliases[alias.asname or short] = alias.name if alias.asname else short
        elif isinstance(statement, ast.ImportFrom):
            package = absolute(module.name, statement, is_package=module.is_package)
            for alias in statement.names:
                dotted = canonical(f"{package}.{alias.name}")
                module.aliases[alias.asname or alias.name] = dotted
        elif isinstance(statement, Def | ast.ClassDef):
            module.aliases[statement.name] = f"{module.name}.{statement.name}"
        elif isinstance(statement, ast.If | ast.Try):
            _collect_names(module, [*statement.body, *statement.orelse])


def _declare_class(scene: Scene, node: ast.ClassDef, prefix: str) -> Class:
    dotted = f"{prefix}.{node.name}"
    bases = tuple(filter(None, map(scene.dotted, node.bases)))
    decorators = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    found = Class(dotted, bases, decorators=tuple(filter(None, map(scene.dotted, decorators))))
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.attributes[statement.target.id] = value_of(statement.annotation, scene.dotted)
        elif isinstance(statement, ast.Assign):
            given = statement.value
            is_plain = isinstance(given, ast.Constant) and given.value is not None
            for target in statement.targets if is_plain else ():
                if isinstance(target, ast.Name):
                    found.attributes[target.id] = PYTHON
        elif isinstance(statement, Def):
            found.methods[statement.name] = f"{dotted}.{statement.name}"
    found.properties = frozenset(
        statement.name
        for statement in node.body
        if isinstance(statement, Def)
        and any("property" in (scene.dotted(one) or "") for one in statement.decorator_list)
    )
    scene.module.classes[dotted] = found
    return found


def _read_class(scene: Scene, node: ast.ClassDef, prefix: str) -> None:
    dotted = f"{prefix}.{node.name}"
    module = scene.module
    found = module.classes.get(dotted) or _declare_class(scene, node, prefix)
    methods = sorted(_definitions(node.body), key=lambda one: one.name != "__init__")
    for method in methods:
        env = _read_function(module, method, dotted, dotted, {})
        for key, value in env.items():
            if key.startswith("self.") and key.count(".") == 1:
                _keep_attribute(found, key[5:], value)
    for inner in _classes(node.body):
        _read_class(scene, inner, dotted)


def _keep_attribute(found: Class, attr: str, value: Value) -> None:
    if mentions_parameter(value):
        value = UNKNOWN
    before = found.attributes.get(attr)
    found.attributes[attr] = value if before is None else join(before, value)


def _read_function(
    module: Module, node: Def, prefix: str, owner: str | None, outer: dict[str, Value]
) -> dict[str, Value]:
    """Read one function and those inside it; return what its names held at the end."""
    function = Function(f"{prefix}.{node.name}", owner)
    scene = Scene(module, function, env=dict(outer))
    function.is_async = isinstance(node, ast.AsyncFunctionDef)
    _decorate(scene, node)
    function.once = function.once or bool(_ONCE.match(node.name))
    function.trains = bool(_TRAINS.match(node.name))
    if owner and _NOT_A_STEP.search(owner.rpartition(".")[2]):
        function.once = True
    if _is_worker(scene, node):
        function.roles |= {Scope.WORKER}
    function.params = _parameters(scene, node)
    scene.env.update(function.params)
    try:
        Statements(scene).block(node.body)
    except RecursionError:
        module.unread.append((node.lineno, node.name))
    if node.returns is not None:
        declared = value_of(node.returns, scene.dotted)
        if declared.kind not in (Kind.UNKNOWN, Kind.INSTANCE) or function.returns is None:
            function.returns = declared
    module.functions.append(function)
    ends = scene.env
    for inner in scene.pending:
        _read_function(module, inner, function.name, owner, _closed_over(ends))
    return ends


def _is_worker(scene: Scene, node: Def) -> bool:
    """Return whether a worker runs this: by its name, or as `run` of a thread or process."""
    if _WORKER.search(node.name):
        return True
    owner = scene.module.classes.get(scene.function.owner or "")
    bases = owner.bases if owner is not None else ()
    return node.name == "run" and any(base.endswith((".Thread", ".Process")) for base in bases)


def _closed_over(env: dict[str, Value]) -> dict[str, Value]:
    """Return an outer function's names as an inner one sees them: no parameters of another."""
    return {
        key: UNKNOWN if mentions_parameter(value) else value
        for key, value in kept_alive(env).items()
        if not key.endswith("()")
    }


def _decorate(scene: Scene, node: Def) -> None:
    function = scene.function
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        dotted = scene.dotted(called) or ""
        if dotted in _INFERENCE:
            function.inference = True
        elif dotted in _CACHES:
            function.once = True
        elif dotted == "functools.partial" and isinstance(decorator, ast.Call) and decorator.args:
            dotted = scene.dotted(decorator.args[0]) or ""
        if dotted in GRAPHED or dotted in COMPILED:
            how = "graphed" if dotted in GRAPHED else "compiled"
            function.roles |= {scope_of(how)}
            inner = name(function.name)
            options = decorator.keywords if isinstance(decorator, ast.Call) else []
            free = any(word.arg in ("buckets", "dynamic") for word in options)
            wrapped = Value(Kind.WRAPPED, (how, inner, (), free))
            if function.owner is None and function.name.startswith(scene.module.name):
                scene.module.values[node.name] = wrapped


def _parameters(scene: Scene, node: Def) -> tuple[tuple[str, Value], ...]:
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: dict[str, ast.expr | None] = dict(
        zip([one.arg for one in plain[::-1]], arguments.defaults[::-1], strict=False)
    )
    defaults.update(
        zip([one.arg for one in arguments.kwonlyargs], arguments.kw_defaults, strict=True)
    )
    bare = {one.arg for one in (*plain, *arguments.kwonlyargs) if one.annotation is None}
    bare -= {"self", "cls"}
    evident = tensors_among(bare, node, scene) if bare else frozenset()
    is_forward = node.name == "forward" and bool(scene.function.owner)
    if bare and (
        is_forward or scene.function.roles - {Scope.WORKER} or node.name in scene.module.wrapped
    ):
        own = [one.arg for one in plain if one.arg not in ("self", "cls")]
        first = own[0] if own else ""
        first = first if first in bare and first not in defaults else ""
        evident |= tensors_of_forward(sorted(bare), first, node) - {""}
    found: list[tuple[str, Value]] = []
    is_static = any(scene.dotted(one) == "builtins.staticmethod" for one in node.decorator_list)
    for place, one in enumerate((*plain, *arguments.kwonlyargs)):
        if place == 0 and scene.function.owner and not is_static and one.arg in ("self", "cls"):
            found.append((one.arg, instance(scene.function.owner)))
            continue
        found.append((one.arg, _parameter(scene, one, defaults.get(one.arg), evident)))
    if arguments.vararg:
        inner = value_of(arguments.vararg.annotation, scene.dotted)
        found.append((arguments.vararg.arg, each(inner)))
    if arguments.kwarg:
        found.append((arguments.kwarg.arg, UNKNOWN))
    return tuple(found)


def _parameter(
    scene: Scene, node: ast.arg, default: ast.expr | None, evident: frozenset[str]
) -> Value:
    declared = value_of(node.annotation, scene.dotted)
    if isinstance(default, ast.Constant) and isinstance(default.value, bool):
        return PYTHON  # whatever a careless annotation says
    if declared.kind is not Kind.UNKNOWN:
        return declared
    if node.arg in evident:
        return Value(Kind.TENSOR)
    if isinstance(default, ast.Constant) and isinstance(default.value, _NUMBERS):
        return PYTHON
    if isinstance(default, ast.UnaryOp):
        return PYTHON
    return symbol(Op.PARAM, node.arg)
