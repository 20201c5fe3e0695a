"""Write the methods of the clients that only translate, from the operations of the server.

The record of an operation has a `Method` for each: its arguments and docstring are those of the
method of the Python interface, the members of the request and of the answer those of the schemas.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import kbserver.routes.every  # noqa: F401  declares all operations
import kbtypes
from kbcore.python_api.user_memory import EmbeddedMemory
from kbcore.state.keys import READER
from kbserver.operations import Method, Operation, operations
from kbserver.schemas.base import instance
from kbserver.schemas.fields import Many
from kbserver.schemas.json_schema import component_name
from kbserver.schemas.requests import KNOWN_AT
from kbtypes.records import camel_case

CLIENTS = Path(__file__).resolve().parents[1] / "clients"
MODULE = CLIENTS / "python" / "kbcore_client" / "_async" / "operations.py"
HISTORIC = CLIENTS / "python" / "kbcore_client" / "historic.py"
TYPESCRIPT = CLIENTS / "typescript" / "src" / "operations.ts"
BY_HAND = CLIENTS / "typescript" / "src" / "client.ts"
WIDTH, TYPESCRIPT_WIDTH = 100, 125
MANY_PARAMETERS = 7
"""Parameters of a method that ruff accepts without a reason."""

HEADER = '''"""Methods that only translate; docs/generate.py writes them from the operations of the server."""

from __future__ import annotations

'''

CLASSES = {
    "AsyncAdministration": '''    """Databases, tenants and API keys of a server; needs a key of role admin if keys are on.

    Errors: Forbidden without the permission, NotFound for an unknown database, tenant or key,
    Conflict for a database that exists, or if the server does not manage keys.
    """
''',
    "AsyncOperations": '    """Operations on a knowledge base."""\n',
    "AsyncMemoryOperations": '    """Operations on the memory about a user."""\n',
}

OTHERS = {
    "collections.abc": ("Iterable", "Mapping", "Sequence"),
    "typing": ("Any",),
    "kbcore_client._async.handle": ("AsyncHandle", "AsyncSender"),
    "kbcore_client.requests": ("Request", "goal_form", "path_part", "query_of"),
}
"""Names that the module may import, beside those that modules of `kbtypes` define."""


class _Written:
    """A method of a client: its arguments, and the request and the result that they give."""

    def __init__(self, operation: Operation, method: Method) -> None:
        self.operation = operation
        self.method = method
        text = method.signature or _signature_of(method.like)
        function = ast.parse(f"def {text}: ...").body[0]
        if not isinstance(function, ast.FunctionDef) or function.returns is None:
            raise TypeError(f"{text} is not the signature of a method with a result")
        self.name = function.name
        self.arguments = function.args
        self.result = method.result or ast.unparse(function.returns)
        self.positional = [each for each in function.args.args if each.arg != "self"]
        self.named = list(function.args.kwonlyargs)
        named_so = [route for route in operation.routes if route.endswith(f"/{self.name}")]
        self.http_method, self.template = (named_so or operation.routes)[0].split()

    @property
    def group(self) -> str:
        """The class of the client."""
        like = self.method.like
        if like is None:
            return "AsyncAdministration"
        is_memory = like.__qualname__.startswith(EmbeddedMemory.__name__)
        return "AsyncMemoryOperations" if is_memory else "AsyncOperations"

    @property
    def parameters(self) -> list[str]:
        """The parameters with annotations and defaults, as Python has them."""
        defaults: list[ast.expr | None] = list(self.arguments.defaults)
        defaults[:0] = [None] * (len(self.positional) - len(defaults))
        plain = [_parameter(*each) for each in zip(self.positional, defaults, strict=True)]
        named = [
            _parameter(*each) for each in zip(self.named, self.arguments.kw_defaults, strict=True)
        ]
        return ["self", *plain, *(["*", *named] if named else [])]

    @property
    def has_goal(self) -> bool:
        """True if the first two arguments are a goal, as text or as predicate with arguments."""
        return [each.arg for each in self.positional[:2]][1:] == ["args"]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the method."""
        count = len(self.positional) + len(self.named)
        reason = (
            "  # noqa: PLR0913  one parameter for each option" if count > MANY_PARAMETERS else ""
        )
        yield from _call(
            f"    async def {self.name}(", self.parameters, f") -> {self.result}:", reason
        )
        yield from self.docstring()
        yield from self.request()
        yield from self.answer()

    def docstring(self) -> Iterator[str]:
        """Yield the lines of the docstring."""
        if self.method.like is not None:
            text = inspect.cleandoc(self.method.like.__doc__ or "")
            lines = text.split("\n")
        else:
            paragraphs = inspect.cleandoc(self.operation.respond.__doc__ or "").split("\n\n")
            lines = "\n\n".join(
                textwrap.fill(each, WIDTH - 11, break_on_hyphens=False) for each in paragraphs
            ).split("\n")
        closing = '"""' if len(lines) == 1 else ""
        yield f'        """{lines[0]}{closing}'
        if len(lines) > 1:
            yield from (f"        {line}".rstrip() for line in lines[1:])
            yield '        """'

    def request(self) -> Iterator[str]:
        """Yield the lines that make the request."""
        of_path = re.findall(r"<(\w+)>", self.template)
        keys = {each.arg: self.key_of(each.arg) for each in self.positional + self.named}
        path = self.template
        for argument, key in keys.items():
            if key in of_path:
                path = path.replace(f"<{key}>", f"{{path_part('{argument}', {argument})}}")
        members = {
            key: self.value(argument)
            for argument, key in keys.items()
            if key not in of_path and argument != "timeout_ms"
        }
        parts = [f'f"{path}"' if of_path else f'"{path}"']
        names = {
            key: argument
            for argument, key in keys.items()
            if _snake(key) != argument and (argument, key) != ("timeout_ms", "timeoutMs")
        }
        if self.has_goal:
            goal = self.positional[0].arg
            del members[keys[goal]], members[keys["args"]]
            names = {"text": goal, **{k: v for k, v in names.items() if v not in (goal, "args")}}
        if self.http_method in ("GET", "DELETE"):
            parts.append(f'method="{self.http_method}"')
            if members:
                yield from _mapping("        query = ", members)
                parts.append("query=query_of(query)")
        else:
            sends = {key: repr(value) for key, value in self.method.sends.items()}
            form = [f'**goal_form("{goal}", {goal}, args)'] if self.has_goal else []
            if sends or form or members:
                yield from _mapping("        body = ", {**sends, **members}, form)
                parts.insert(1, "body")
            else:
                parts.insert(1, "{}")
            if self.http_method != "POST":
                parts.append(f'method="{self.http_method}"')
        if self.operation.writes:
            parts.append("writes=True")
        if not self.method.keyed:
            parts.append("keyed=False")
        if self.method.prefer is not None:
            parts.append(f'prefer="{self.method.prefer}"')
        if names:
            listed = ", ".join(f'"{key}": "{argument}"' for key, argument in names.items())
            parts.append(f"names={{{listed}}}")
        if "timeout_ms" in keys:
            parts.append("timeout_ms=timeout_ms")
        yield from _call("        sent = Request(", parts, ")")

    def key_of(self, argument: str) -> str:
        """Return the member of the request that an argument gives."""
        if argument in self.method.keys:
            return self.method.keys[argument]
        body = self.operation.body_reader
        if body is not None and argument in body.fields:
            return body.fields[argument].data_key or argument
        if body is not None and (key := camel_case(argument)) in body.fields:
            return key
        return camel_case(argument)

    def value(self, argument: str) -> str:
        """Return the expression of a member of the request."""
        (parameter,) = (each for each in self.positional + self.named if each.arg == argument)
        annotation = ast.unparse(parameter.annotation) if parameter.annotation else ""
        if "Instant" in annotation:
            return f"instant({argument})"
        if annotation.startswith(("Sequence[str]", "Iterable[str]")):
            listed = f"list({argument})"
            return f"None if {argument} is None else {listed}" if "None" in annotation else listed
        if annotation == "str" and argument in self.required:
            return f'text_of("{argument}", {argument})'
        return argument

    @property
    def required(self) -> set[str]:
        """The arguments without a default."""
        count = len(self.positional) - len(self.arguments.defaults)
        named = zip(self.named, self.arguments.kw_defaults, strict=True)
        return {each.arg for each in self.positional[:count]} | {
            each.arg for each, default in named if default is None
        }

    def answer(self) -> Iterator[str]:
        """Yield the lines that send the request and return the result."""
        if self.result == "None":
            yield "        await self._send(sent)"
            return
        sent = "(await self._send(sent)).json()"
        listed = re.fullmatch(r"list\[(\w+)\]", self.result)
        if listed is not None and listed[1] != "str":
            member = self.list_member()
            yield f"        answer = {sent}"
            yield f"        return [{listed[1]}.of(each) for each in answer{member}]"
        elif self.result in ("list[str]", "int", "bool"):
            member = self.list_member() if listed is not None else f'["{self.method.of}"]'
            yield f"        answer: {self.result} = {sent}{member}"
            yield "        return answer"
        else:
            yield f"        return {self.result}.of({sent})"

    def list_member(self) -> str:
        """Return the subscript of the list of an answer; empty if the answer is the list."""
        answer = self.operation.answer
        if answer is None:
            return ""
        fields = instance(answer).fields
        lists = [name for name, each in fields.items() if isinstance(each, Many)]
        (name,) = (each for each in lists if self.method.of in (None, each))
        key = fields[name].data_key
        return f'["{key}"]' if fields[name].required else f'.get("{key}", ())'


def _signature_of(like: Callable[..., object] | None) -> str:
    """Return the signature of a function as text, with its defaults as values."""
    if like is None:
        raise TypeError("a method needs `like` or `signature`")
    function = ast.parse(textwrap.dedent(inspect.getsource(like))).body[0]
    if not isinstance(function, ast.FunctionDef) or function.returns is None:
        raise TypeError(f"{like.__qualname__} has no result")
    defaults = inspect.signature(like).parameters
    arguments = function.args
    for at, each in enumerate(arguments.args[len(arguments.args) - len(arguments.defaults) :]):
        arguments.defaults[at] = ast.Constant(defaults[each.arg].default)
    arguments.kw_defaults = [
        each and ast.Constant(defaults[name.arg].default)
        for name, each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return f"{function.name}({ast.unparse(arguments)}) -> {ast.unparse(function.returns)}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = "" if argument.annotation is None else f": {ast.unparse(argument.annotation)}"
    if default is None:
        return argument.arg + annotation
    value = ast.literal_eval(default)
    written = json.dumps(value) if isinstance(value, str) else repr(value)
    return f"{argument.arg}{annotation} = {written}"


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z])[A-Z]", lambda match: f"_{match[0].lower()}", key)


def _call(before: str, parts: list[str], after: str, reason: str = "") -> Iterator[str]:
    """Yield a call or a signature on one line, or with one part a line."""
    line = f"{before}{', '.join(parts)}{after}"
    if not reason and len(line) <= WIDTH:
        yield line
        return
    inner = " " * (len(before) - len(before.lstrip()) + 4)
    yield before + reason
    yield from (f"{inner}{part}," for part in parts)
    yield inner[4:] + after


def _mapping(before: str, members: dict[str, str], unpacked: Sequence[str] = ()) -> Iterator[str]:
    """Yield a dict on one line, or with one member a line."""
    parts = [*unpacked, *(f'"{key}": {value}' for key, value in members.items())]
    yield from _call(before + "{", parts, "}")


def _imports(body: str) -> str:
    """Return the imports of the names that a module uses."""
    used = set(re.findall(r"\b[A-Za-z_]\w*\b", re.sub(r'""".*?"""', "", body, flags=re.DOTALL)))
    modules = {**OTHERS, **_defined(kbtypes.__path__[0])}
    chosen = {
        module: sorted(used & set(names), key=_import_order) for module, names in modules.items()
    }
    stdlib = [
        _import(module, names) for module, names in chosen.items() if names and "kb" not in module
    ]
    own = [_import(module, names) for module, names in chosen.items() if names and "kb" in module]
    return "\n".join(stdlib) + "\n\n" + "\n".join(own)


def _import_order(name: str) -> tuple[bool, bool, str]:
    """Order names as ruff does: constants, classes, functions."""
    return not name.isupper(), name[0].islower(), name.lower()


def _defined(folder: str) -> dict[str, tuple[str, ...]]:
    """Return the names that the modules of `kbtypes` define."""
    defined = {}
    for path in sorted(Path(folder).glob("*.py")):
        names = []
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.append(node.name)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names.append(node.targets[0].id)
        defined[f"kbtypes.{path.stem}"] = tuple(names)
    return defined


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    return line if len(line) <= WIDTH else "\n".join(_call(f"from {module} import (", names, ")"))


def source() -> str:
    """Return the module with the methods."""
    written = [
        _Written(operation, method) for operation in operations() for method in operation.methods
    ]
    parts = []
    for name, docstring in CLASSES.items():
        own = sorted((each for each in written if each.group == name), key=lambda each: each.name)
        methods = "\n\n".join("\n".join(each.lines()) for each in own)
        base = "AsyncSender" if name == "AsyncMemoryOperations" else "AsyncHandle"
        parts.append(f"class {name}({base}):\n{docstring}\n{methods}\n")
    body = "\n\n".join(parts)
    return f"{HEADER}{_imports(body)}\n\n\n{body}"


def _paths(method: str, is_wanted: Callable[[Operation], bool]) -> list[str]:
    """Return the path templates of the documented operations that are wanted, sorted."""
    return sorted(
        route.split()[1].replace("<", "{").replace(">", "}")
        for operation in operations()
        if operation.listed and is_wanted(operation)
        for route in operation.routes
        if route.startswith(f"{method} ")
    )


def _takes_instant(operation: Operation) -> bool:
    return operation.is_historic or KNOWN_AT in operation.query


def historic() -> str:
    """Return the module with the paths of reads that can be answered from an earlier state."""
    templates = _paths("POST", _takes_instant) + _paths("GET", _takes_instant)
    paths = sorted({re.sub(r"{\w+}", "*", each) for each in templates})
    listed = "\n".join(f'        "{each}",' for each in paths)
    return (
        '"""Paths of reads that take an instant; docs/generate.py writes them from the operations."""\n\n'
        f"HISTORIC = frozenset(\n    {{\n{listed}\n    }}\n)\n"
        '"""Paths of reads that can be answered from an earlier state; `*` is any last part."""\n'
    )


TYPESCRIPT_HEADER = """// Written by docs/generate.py from the operations of the server.
import type { Client } from "openapi-fetch";

import { post, type Body, type Schemas } from "./requests.js";
import type { paths } from "./schema.js";
"""

TYPESCRIPT_CLASSES = {
    "Operations": ("AsyncOperations", "Operations on a knowledge base that only translate."),
    "MemoryOperations": (
        "AsyncMemoryOperations",
        "Operations on the memory about a user that only translate.",
    ),
}

TYPESCRIPT_TYPES = {"str": "string", "int": "number", "float": "number", "bool": "boolean"}


class _TypeScript:
    """A method of the TypeScript client: required arguments in order, then an object of options."""

    def __init__(self, written: _Written) -> None:
        self.written = written
        self.name = camel_case(written.name)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the method."""
        written = self.written
        keys = {each.arg: written.key_of(each.arg) for each in self._in_order()}
        if written.has_goal:
            keys[written.positional[0].arg] = "text"
        of_path = re.findall(r"<(\w+)>", written.template)
        path = re.sub(r"<(\w+)>", r"{\1}", written.template)
        places = {key: camel_case(argument) for argument, key in keys.items()}
        params = [f"{camel_case(each.arg)}: {self._type(each)}" for each in self._in_order()]
        options = self._options([key for key in places if key not in of_path])
        if options:
            params.append(f"options: {options} = {{}}")
        members = ", ".join(_pair(key, name) for key, name in places.items() if key not in of_path)
        spread = "...options" if options else ""
        body = ", ".join(part for part in (members, spread) if part)
        named = ", ".join(_pair(key, name) for key, name in places.items() if key in of_path)
        summary, more = written.operation.documentation
        yield from _comment(f"{summary}.", more)
        shape, member = self._result()
        yield from _typescript_call(f"  async {self.name}(", params, f"): Promise<{shape}> {{")
        parts = [f"path: {{ {named} }}"] if named else []
        if written.http_method == "POST":
            yield f"    {self._posted(path, _object(body), parts, member)};"
        else:
            if body not in ("", "...options"):
                yield f"    const query = {{ {body} }};"
            if body:
                parts.append("query: options" if body == "...options" else "query")
            further = f", {{ params: {{ {', '.join(parts)} }} }}" if parts else ""
            yield f'    return (await this.client.GET("{path}"{further})).data!{member};'
        yield "  }"

    def _posted(self, path: str, body: str, parts: list[str], member: str) -> str:
        """Return the statement that sends a body."""
        sent = f'this.client, "{path}", {body}'
        if self.written.operation.answer is None:
            return f'await post({sent}, {{ parseAs: "text" }})'
        sent += f", {{ params: {{ {parts[0]} }} }}" if parts else ""
        if not member:
            return f"return post({sent})"
        return f"return (await post<Schemas[{self._component()}]>({sent})){member}"

    def _in_order(self) -> list[ast.arg]:
        written = self.written
        arguments = written.positional + written.named
        return [each for each in arguments if each.arg in written.required]

    def _type(self, argument: ast.arg) -> str:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        return TYPESCRIPT_TYPES.get(annotation.removesuffix(" | None"), "string | number | boolean")

    def _options(self, positional: list[str]) -> str:
        """Return the type of the options; empty if there are none."""
        written = self.written
        if written.http_method == "GET":
            optional = [
                each
                for each in written.positional + written.named
                if each.arg not in written.required and each.arg != "timeout_ms"
            ]
            members = "; ".join(f"{written.key_of(e.arg)}?: {self._type(e)}" for e in optional)
            return f"{{ {members} }}" if members else ""
        body = written.operation.body
        if body is None or not set(instance(body).fields) - set(positional):
            return ""
        name = f'Body<"{component_name(body)}">'
        listed = " | ".join(f'"{key}"' for key in positional)
        keys = {field.data_key for field in instance(body).fields.values()}
        if keys == set(positional):
            return ""
        return f"Omit<{name}, {listed}>" if positional else name

    def _component(self) -> str:
        return f'"{component_name(self.written.operation.answer)}"'

    def _result(self) -> tuple[str, str]:
        """Return the type of the result, and the member of the answer that it is."""
        if self.written.operation.answer is None:
            return "void", ""
        shape = f"Schemas[{self._component()}]"
        if not self.written.result.startswith("list["):
            return shape, ""
        key = self.written.list_member()[2:-2]
        return f'{shape}["{key}"]', f".{key}"


def _object(members: str) -> str:
    if members == "...options":
        return "options"
    return f"{{ {members} }}" if members else "{}"


def _pair(key: str, name: str) -> str:
    return key if key == name else f"{key}: {name}"


def _comment(summary: str, more: str) -> Iterator[str]:
    paragraphs = [summary, *(" ".join(each.split()) for each in more.split("\n\n") if each)]
    text = " ".join(paragraphs)
    if len(text) + 9 <= TYPESCRIPT_WIDTH:
        yield f"  /** {text} */"
        return
    yield "  /**"
    for line in textwrap.wrap(text, TYPESCRIPT_WIDTH - 5, break_on_hyphens=False):
        yield f"   * {line}"
    yield "   */"


def _typescript_call(before: str, parts: list[str], after: str) -> Iterator[str]:
    line = f"{before}{', '.join(parts)}{after}"
    if len(line) <= TYPESCRIPT_WIDTH:
        yield line
        return
    yield before
    yield from (f"    {part}," for part in parts)
    yield f"  {after}"


def _typescript_paths() -> str:
    reads = _paths("POST", lambda operation: operation.role == READER)
    takes = [
        f"  {method}: new Set([\n{_listed(_paths(method, _takes_instant), 4)}\n  ]),"
        for method in ("POST", "GET")
    ]
    return "\n".join(
        (
            "/** Paths of POST requests that change nothing. */",
            f"export const READS: ReadonlySet<string> = new Set([\n{_listed(reads, 2)}\n]);",
            "",
            "/** Paths of POST requests whose body may have `knownAt`, and of GET requests whose query may have it. */",
            "export const HISTORIC: Readonly<Record<string, ReadonlySet<string>>> = {",
            *takes,
            "};",
            "",
        )
    )


def _listed(paths: list[str], indent: int) -> str:
    text = " ".join(f'"{path}",' for path in paths)
    return textwrap.indent(textwrap.fill(text, TYPESCRIPT_WIDTH - indent), " " * indent)


def typescript() -> str:
    """Return the module of the TypeScript client: one method for each operation.

    What `client.ts` has by hand is left out.
    """
    by_hand, _, of_memory = BY_HAND.read_text("utf-8").partition("export class UserMemory")
    written = [
        _Written(operation, operation.methods[0]) for operation in operations() if operation.methods
    ]
    parts = [TYPESCRIPT_HEADER, _typescript_paths()]
    for name, (group, comment) in TYPESCRIPT_CLASSES.items():
        source = by_hand if name == "Operations" else of_memory
        known = set(re.findall(r"^  async \*?(\w+)[(<]", source, re.MULTILINE))
        own = [
            _TypeScript(each)
            for each in sorted(written, key=lambda each: each.name)
            if each.group == group and camel_case(each.name) not in known
        ]
        methods = "\n\n".join("\n".join(each.lines()) for each in own)
        parts.append(
            f"/** {comment} */\nexport abstract class {name} {{\n"
            f"  abstract readonly client: Client<paths>;\n\n{methods}\n}}\n"
        )
    return "\n".join(parts)


MODULES = {MODULE: source, HISTORIC: historic, TYPESCRIPT: typescript}
"""The modules with the functions that make them."""
