"""An address is only of memory that somebody holds for as long as it is used: found in the source, not by luck.

Numba drops an array after its last use, and an address is no use of it. So a kernel takes addresses of its arguments
alone, which its caller holds. CPython drops what has no name at once, so nobody takes the address of such an array.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted([*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("benchmarks/*.py")])
DECORATORS = {"compiled", "inlined", "njit", "jit"}
ADDRESSES = {"ctypes", "addresses"}  # attributes that lead to them, apart from the kernel ``address``


class Kernel:
    """A compiled function.

    Attributes:
        arguments: the names of its arguments.
        held: those that stay what the caller gave.
        addressed: those of which it takes the address, or hands them to a kernel that does.
    """

    def __init__(self, module: str, node: ast.FunctionDef) -> None:
        self.module, self.node = module, node
        of = node.args
        self.arguments = [argument.arg for argument in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
        bound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self.held = set(self.arguments) - bound
        self.addressed: set[str] = set()

    def taken(self, call: ast.Call) -> list[ast.expr]:
        """What a call of this kernel takes the address of."""
        if not self.addressed:
            return []
        given = [*zip(self.arguments, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
        unpacked = [value for value in call.args if isinstance(value, ast.Starred)]
        return unpacked + [value for name, value in given if name in self.addressed or name is None]


class Source:
    """A module: its kernels, and those that it imports, by name."""

    def __init__(self, module: str, text: str) -> None:
        self.module, self.tree = module, ast.parse(text)
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef) and is_compiled(n)]
        self.kernels = {node.name: Kernel(module, node) for node in found}

    def resolve(self, others: "dict[str, Source]") -> None:
        """Find the kernels that it imports; ``public`` are all, for what is called as an attribute of a module."""
        self.known = dict(self.kernels)
        self.public = {name: k for other in others.values() for name, k in other.kernels.items() if name[0] != "_"}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module in others:
                there = others[node.module].kernels
                self.known |= {a.asname or a.name: there[a.name] for a in node.names if a.name in there}

    def kernel(self, function: ast.AST) -> Kernel | None:
        """The kernel that an expression stands for."""
        if isinstance(function, ast.Name):
            return self.known.get(function.id)
        return self.public.get(function.attr) if isinstance(function, ast.Attribute) else None


def is_compiled(node: ast.FunctionDef) -> bool:
    names = [n for decorator in node.decorator_list for n in ast.walk(decorator)]
    return bool(DECORATORS & {getattr(n, "id", getattr(n, "attr", "")) for n in names})


def holder(value: ast.expr, parts: tuple[type[ast.expr], ...]) -> str:
    """The name that an array is reached from through parts such as attributes; empty for none."""
    while isinstance(value, ast.Attribute | ast.Subscript) and isinstance(value, parts):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def in_kernel(kernel: Kernel, source: Source) -> Iterator[str]:
    """Addresses of something else than the arguments; notes of which arguments addresses are taken."""
    called = {id(node.func) for node in ast.walk(kernel.node) if isinstance(node, ast.Call)}
    for node in ast.walk(kernel.node):
        values: list[ast.expr] = []
        if isinstance(node, ast.Attribute) and node.attr in ADDRESSES:
            values = [node.value]
        elif isinstance(node, ast.Call) and (callee := source.kernel(node.func)):
            values = callee.taken(node)
        elif isinstance(node, ast.Name) and id(node) not in called and node.id not in kernel.arguments:
            other = source.kernel(node) if isinstance(node.ctx, ast.Load) else None
            if other and other.addressed:
                yield f"{source.module}:{node.lineno}: {node.id} takes addresses, it is only called, never handed on"
        for value in values:
            if (name := holder(value, (ast.Attribute,))) in kernel.held:
                kernel.addressed.add(name)
            else:
                yield f"{source.module}:{value.lineno}: {ast.unparse(value)} is no argument, its memory may be gone"


def elsewhere(source: Source) -> Iterator[str]:
    """Addresses that Python takes of what no name holds."""
    compiled = {id(node) for kernel in source.kernels.values() for node in ast.walk(kernel.node)}
    for node in ast.walk(source.tree):
        if id(node) in compiled:
            continue
        values: list[ast.expr] = []
        if isinstance(node, ast.Attribute) and node.attr in ADDRESSES:
            values = [node.value]
        elif isinstance(node, ast.Call) and "address" in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")):
            values = node.args
        for value in values:
            if not holder(value, (ast.Attribute, ast.Subscript)):
                yield f"{source.module}:{value.lineno}: {ast.unparse(value)} has no name, its memory may be gone"


def wrong_addresses(texts: dict[str, str]) -> list[str]:
    """Where an address may outlive what is there, in sources by the names of their modules."""
    sources = {module: Source(module, text) for module, text in texts.items()}
    for source in sources.values():
        source.resolve(sources)
    kernels = [(kernel, source) for source in sources.values() for kernel in source.kernels.values()]
    while True:  # until it is known of which arguments addresses are taken
        n_known = sum(len(kernel.addressed) for kernel, _ in kernels)
        found = {line for kernel, source in kernels for line in in_kernel(kernel, source)}
        if sum(len(kernel.addressed) for kernel, _ in kernels) == n_known:
            return sorted(found | {line for source in sources.values() for line in elsewhere(source)})


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[3:] if parts[0] == "packages" else parts)


@pytest.mark.slow
def test_addresses_are_of_memory_that_is_held() -> None:
    texts = {module_of(path): path.read_text(encoding="utf-8") for path in SOURCES}
    assert "address(scratch)" in texts["obscodec.streams.blocks"]
    assert wrong_addresses(texts) == []


MEMORY = """
@inlined
def address(array):
    return np.int64(array.ctypes.data)
"""
HEAD = "from memory import address\n"
LATER = "its memory may be gone"
IN_KERNELS = {
    "a = np.empty(n)\n    return load(address(a))": f"kernel:5: a is no argument, {LATER}",
    "rows = rows.astype(np.uint8)\n    return load(address(rows))": f"kernel:5: rows is no argument, {LATER}",
    "if (a := rows + 1).size:\n        return load(address(a))": f"kernel:5: a is no argument, {LATER}",
    "return [load(address(a)) for a in rows]": f"kernel:4: a is no argument, {LATER}",
    "return load(address(rows[order]))": f"kernel:4: rows[order] is no argument, {LATER}",
    "return load(address(rows if n else other))": f"kernel:4: rows if n else other is no argument, {LATER}",
    "return load(address(TABLE))": f"kernel:4: TABLE is no argument, {LATER}",
    "return load(address(*[np.empty(n)]))": f"kernel:4: *[np.empty(n)] is no argument, {LATER}",
    "return load(address(**{'array': rows}))": f"kernel:4: {{'array': rows}} is no argument, {LATER}",
    "a = np.empty(n)\n    return load(a.ctypes.data)": f"kernel:5: a is no argument, {LATER}",
    "where = address\n    return load(where(rows))": (
        "kernel:4: address takes addresses, it is only called, never handed on"
    ),
}


@pytest.mark.parametrize("body", IN_KERNELS)
def test_a_kernel_takes_addresses_of_its_arguments_alone(body: str) -> None:
    text = f"{HEAD}@compiled\ndef first(rows, other, order, n):\n    {body}\n"
    assert wrong_addresses({"memory": MEMORY, "kernel": text}) == [IN_KERNELS[body]]


@pytest.mark.parametrize("call", ["begin(a)", "begin(rows=a)", "memory.begin(a)", "again(a)", "first_of(a)"])
@pytest.mark.parametrize("decorator", ["compiled", "inlined", "njit", "njit(nogil=True)", "numba.njit(cache=True)"])
def test_a_kernel_that_takes_an_address_is_not_given_what_was_made_in_another(call: str, decorator: str) -> None:
    """It may return the address; and numba puts those that are inlined into the function that made the array."""
    begin = f"{MEMORY}\n@{decorator}\ndef begin(rows):\n    return address(rows)\n"
    head = "from memory import begin, begin as again\n"
    between = f"@{decorator}\ndef first_of(parts):\n    return begin(parts.rows)\n"
    text = f"{head}{between}@{decorator}\ndef first(n):\n    a = np.empty(n)\n    return load({call})\n"
    assert wrong_addresses({"memory": begin, "kernel": text}) == [f"kernel:8: a is no argument, {LATER}"]


@pytest.mark.parametrize(
    "body",
    [
        "return load(address(rows))",
        "return load(address(rows) + n * rows.shape[1])",
        "begin, base = rows.shape[1], address(other)\n    return load(base + begin)",
        "return load(address(order.buffer))",
        "a = np.empty(n)\n    a[0] = load(address(rows))\n    return a[0]",
        "rows = other\n    return rows[0]",
    ],
)
def test_addresses_of_arguments_are_fine(body: str) -> None:
    text = f"{HEAD}@compiled\ndef first(rows, other, order, n):\n    {body}\n"
    assert wrong_addresses({"memory": MEMORY, "kernel": text}) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("np.ascontiguousarray(rows).ctypes.data", "np.ascontiguousarray(rows)"),
        ("rows.astype(np.uint8).ctypes.data", "rows.astype(np.uint8)"),
        ("rows.copy()[1:].ctypes.data", "rows.copy()[1:]"),
        ("(rows + 1).ctypes.data", "rows + 1"),
        ("Segments.of(streams).addresses()", "Segments.of(streams)"),
        ("self.device.address(self.device.upload(rows))", "self.device.upload(rows)"),
        ("address(np.empty(3))", "np.empty(3)"),
        ("rows.ctypes.data", None),
        ("rows[3:].ctypes.data", None),
        ("self.rows.ctypes.data", None),
        ("blocks.addresses()", None),
        ("self.device.address(rooms[stream])", None),
        ("self._device.addresses", None),
    ],
)
def test_python_takes_no_address_of_what_has_no_name(line: str, found: str | None) -> None:
    text = f"def begin(self, rows):\n    return {line}\n"
    assert wrong_addresses({"begin": text}) == ([f"begin:2: {found} has no name, {LATER}"] if found else [])
