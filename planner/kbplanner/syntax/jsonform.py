"""Reader of rules, atoms and goals as JSON values; `jsonwriter` has the other direction.

JSON has only strings, so an argument that starts with `?` is a variable and every other one a
constant, unchanged. In comparisons and string tests, a text is an expression when it parses as one
and contains a variable (`"?x + 1"`, `"lower(?name)"`); any other text stays a constant (`"a-b"`,
`"2024-01-01"`). In a rule head a text such as `"count(?x)"` is an aggregate, and `"min ?x"` an
extremum.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kbplanner.errors import InvalidInput
from kbplanner.ir.conditions import condition, generator
from kbplanner.ir.limits import (
    DEFAULT_LIMITS,
    MAX_NAME,
    Limits,
    plain_texts,
    shortened,
    text_problem,
)
from kbplanner.ir.operators import (
    AGGREGATES,
    BUILTINS,
    COMPARISONS,
    EXTREMA,
    FUNCTION,
    GENERATOR,
    OPPOSITE,
    fits_as_atom,
)
from kbplanner.ir.terms import (
    ANONYMOUS,
    Aggregate,
    Apply,
    Atom,
    BodyItem,
    Comparison,
    Expr,
    Extremum,
    HeadTerm,
    Literal,
    Rule,
    Term,
    Variable,
    expression_variables,
)
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.parser import parse_expression
from kbplanner.syntax.textform import item_from_text, literal_from_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\?(?!_\Z)[A-Za-z_][A-Za-z0-9_]*")
_AGGREGATE = re.compile(rf"({'|'.join(AGGREGATES)})\(\s*(\*|\?[A-Za-z_][A-Za-z0-9_]*)\s*\)")
_EXTREMUM = re.compile(rf"({'|'.join(EXTREMA)})\s+\?([A-Za-z_][A-Za-z0-9_]*)")
_TEXTS = {str}
FEW_ARGS = 8
"""Arguments that are looked at one by one."""

_SIGNS = ("negated", "naf", "truthVal", "polarity")
"""Keys that say of which sign an atom is, or that an item means `not`."""

_IN_TEXT = ("predicate", "builtin", "args", "negated", "naf", "polarity")
"""Keys that an item with `text` must not have."""


# ---- from JSON ----


def rule_from_json(obj: Any, path: str = "", limits: Limits = DEFAULT_LIMITS) -> Rule:
    """Read `{"head": atom, "body": [atom, ...], "name"?, "confidence"?, "scope"?}`.

    `negated: true` (or `truthVal: false`, or `polarity: "negative"`) in the head concludes the
    explicit negative. In the body, `negated` and `naf` mean `not`, and `polarity: "negative"`
    matches the explicit negative. Raises InvalidInput naming the field, such as `body[1].args[0]`.
    """
    fields = _object(obj, path)
    head = _atom(_field(fields, "head", path), _under(path, "head"), limits, head=True)
    values = _field(fields, "body", path)
    at = _under(path, "body")
    if not isinstance(values, list):
        raise InvalidInput.at(at, "must be an array of atoms")
    if not values:
        raise InvalidInput.at(at, "must not be empty: assert the head as a fact instead")
    if problem := limits.body_problem(len(values)):
        raise InvalidInput.at(at, problem)
    body = tuple(
        item_from_json(value, f"{at}[{index}]", limits) for index, value in enumerate(values)
    )
    name, scope = _text(fields, "name", path), _text(fields, "scope", path)
    return Rule(head, body, name, _confidence(fields, path), scope)


def atom_from_json(obj: Any, path: str = "", limits: Limits = DEFAULT_LIMITS) -> Atom:
    """Read a signed atom: a fact, a pattern or a rule head without aggregates.

    It is negative if `negated` is true, `truthVal` is false or `polarity` is "negative". Raises
    InvalidInput.
    """
    return _atom(obj, path, limits, head=False)


def item_from_json(obj: Any, path: str = "", limits: Limits = DEFAULT_LIMITS) -> BodyItem:
    """Read a body item: `{"predicate", "args"}` is an ordinary atom, or a comparison if the name is
    its sign.

    Other builtins have the form `{"builtin": name, "args"}`; `"builtin": false` marks an ordinary
    atom whose name is a comparison sign. The item may also be text in the rule language, or an
    object with that text as `text`. Raises InvalidInput.
    """
    if (text := _text_of(obj, path)) is not None:
        return item_from_text(text[0], text[1], limits)
    fields = _object(obj, path)
    predicate = _builtin(fields, path)
    if predicate is None:
        return _literal(fields, path, limits)
    negated = _negated(fields, path)
    if _negative_polarity(fields, path):
        raise InvalidInput.at(
            _under(path, "polarity"), 'a comparison is not known to be false: use "negated"'
        )
    at = _under(path, "args")
    values = _array(_field(fields, "args", path), at)
    if predicate in GENERATOR:
        return _generator(predicate, values, at, negated, limits)
    if predicate in FUNCTION and FUNCTION[predicate].test:
        if problem := limits.call_problem(FUNCTION[predicate], len(values)):
            raise InvalidInput.at(at, problem)
        inputs = [_expression(value, f"{at}[{i}]", limits) for i, value in enumerate(values)]
        return condition(Apply(predicate, tuple(inputs)), negated)
    if predicate in FUNCTION:
        if not fits_as_atom(predicate, len(values)):
            raise InvalidInput.at(
                at, f'"{predicate}" takes its value last, found {counted(len(values), "argument")}'
            )
        *inputs, result = (
            constant_from_json(value, f"{at}[{index}]")
            if (predicate, index) == ("capture", 1)  # a pattern may be full of question marks
            else _expression(value, f"{at}[{index}]", limits)
            for index, value in enumerate(values)
        )
        return Comparison("!=" if negated else "=", result, Apply(predicate, tuple(inputs)))
    if len(values) != 2:
        raise InvalidInput.at(at, f'"{predicate}" takes two arguments, found {len(values)}')
    left = _expression(values[0], f"{at}[0]", limits)
    if predicate == "matches":  # a pattern is a constant, and full of question marks
        return Comparison(predicate, left, constant_from_json(values[1], f"{at}[1]"), negated)
    right = _expression(values[1], f"{at}[1]", limits)
    if predicate in OPPOSITE and negated:
        return Comparison(OPPOSITE[predicate], left, right)
    return Comparison(predicate, left, right, negated)


def _generator(
    name: str, values: Sequence[Any], at: str, negated: bool, limits: Limits
) -> Comparison:
    """Read a generator: `{"builtin": "range", "args": [0, 10, "?x"]}`, or `member` with an
    array.
    """
    expected = 2 if name == "member" else GENERATOR[name].least + 1
    if len(values) != expected:
        raise InvalidInput.at(at, f"{name} takes {expected} arguments, found {len(values)}")
    inputs, element, element_path = values[:-1], values[-1], f"{at}[{expected - 1}]"
    if name == "member":
        inputs, element, element_path = _array(values[1], f"{at}[1]"), values[0], f"{at}[0]"
        at = f"{at}[1]"
        if not inputs or len(inputs) > limits.args:
            raise InvalidInput.at(at, f"must have 1 to {limits.args} elements")
    args = tuple(_expression(value, f"{at}[{i}]", limits) for i, value in enumerate(inputs))
    return generator(Apply(name, args), _expression(element, element_path, limits), negated)


def literal_from_json(predicate: Any, args: Any, limits: Limits = DEFAULT_LIMITS) -> Literal:
    """Read a positive goal given as predicate and arguments. Raises InvalidInput."""
    known = _predicate({"predicate": predicate}, "", limits)
    return Literal(Atom(known, args_from_json(args, "args", limits)))


def goal_from_json(obj: Any, path: str = "", limits: Limits = DEFAULT_LIMITS) -> Literal:
    """Read a goal: `negated` (or `naf`, or `truthVal: false`) means `not`, `polarity: "negative"`
    means `~`.

    A goal may also be text, or an object with `text`. Raises InvalidInput.
    """
    if (text := _text_of(obj, path)) is not None:
        return literal_from_text(text[0], text[1], limits)
    fields = obj if type(obj) is dict else _object(obj, path)
    if isinstance(fields.get("builtin"), str):
        raise InvalidInput.at(
            _under(path, "builtin"), "a builtin has no answers of its own: ask a predicate"
        )
    return _literal(fields, path, limits)


def args_from_json(
    values: Any, path: str = "args", limits: Limits = DEFAULT_LIMITS
) -> tuple[Term, ...]:
    """Read arguments: texts as they are, numbers and booleans as text, `?x` as variables.

    Raises InvalidInput naming `args[i]` for anything else.
    """
    array = values if type(values) is list else _array(values, path)
    if len(array) > limits.args and (problem := limits.args_problem(len(array))):
        raise InvalidInput.at(path, problem)
    if len(array) > FEW_ARGS and set(map(type, array)) == _TEXTS and plain_texts(array, limits):
        return tuple(array)
    args: list[Term] = []
    for index, value in enumerate(array):
        if (
            type(value) is str
            and value.isascii()
            and "\0" not in value
            and len(value) <= limits.arg_bytes
            and (value[:1] != "?" or _VARIABLE.fullmatch(value))
        ):  # a valid constant as it is, or a variable, which most are
            args.append(value if value[:1] != "?" else Variable(value[1:]))
        else:
            args.append(_term(value, f"{path}[{index}]", limits))
    return tuple(args)


def constant_from_json(value: Any, path: str) -> str:
    """Return the text of a JSON scalar: `30` and `30.0` are "30", `1.5` is "1.5", `true` is "true".

    Raises InvalidInput for null, objects, arrays, and numbers that are not finite.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _digits(value, path)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidInput.at(path, "must be a finite number")
        return (
            _digits(int(value), path) if value.is_integer() and abs(value) < 1e16 else repr(value)
        )
    raise InvalidInput.at(path, f"must be a text, a number or a boolean, not {_kind(value)}")


def _kind(value: Any) -> str:
    """Return what a value is that is no scalar of JSON."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "an object"
    is_array = isinstance(value, Sequence | set | frozenset)
    return "an array" if is_array else f"a value of type {type(value).__name__}"


# ---- pieces ----


def _atom(obj: Any, path: str, limits: Limits, *, head: bool) -> Atom:
    fields = obj if type(obj) is dict else _object(obj, path)
    predicate = _predicate(fields, path, limits)
    at = f"{path}.args" if path else "args"
    values = fields["args"] if "args" in fields else _field(fields, "args", path)
    args: tuple[HeadTerm, ...]
    if head:
        array = _array(values, at)
        if problem := limits.args_problem(len(array)):
            raise InvalidInput.at(at, problem)
        args = tuple(
            _head_term(value, f"{at}[{index}]", limits) for index, value in enumerate(array)
        )
        _check_extremum_place(args, at)
    else:
        args = args_from_json(values, at, limits)
    if fields.keys().isdisjoint(_SIGNS):
        return Atom(predicate, args)
    negated = _flag(fields, "negated", path) or _flag(fields, "truthVal", path, True) is False
    return Atom(predicate, args, not (negated or _negative_polarity(fields, path)))


def _literal(fields: Mapping[str, Any], path: str, limits: Limits) -> Literal:
    """Read a body item or a goal that is no builtin."""
    predicate = _predicate(fields, path, limits)
    negated = not fields.keys().isdisjoint(_SIGNS) and _negated(fields, path)
    values = fields["args"] if "args" in fields else _field(fields, "args", path)
    args = args_from_json(values, f"{path}.args" if path else "args", limits)
    positive = "polarity" not in fields or not _negative_polarity(fields, path)
    return Literal(Atom(predicate, args, positive), negated)


def _negated(fields: Mapping[str, Any], path: str) -> bool:
    """Return True if a body item or a goal means `not`."""
    return (
        _flag(fields, "negated", path)
        or _flag(fields, "naf", path)
        or _flag(fields, "truthVal", path, True) is False
    )


def _term(value: Any, path: str, limits: Limits) -> Term:
    text = constant_from_json(value, path)
    if problem := limits.constant_problem(text):
        raise InvalidInput.at(path, problem)
    if not text.startswith("?"):
        return text
    name = text[1:]
    if name in ("", "_"):
        return ANONYMOUS
    if _NAME.fullmatch(name):
        return Variable(name)
    hint = "after the question mark: a letter A to Z or _, then letters, digits and _"
    raise InvalidInput.at(path, f'"{shortened(text)}" is not a variable; {hint}')


def _check_extremum_place(args: Sequence[HeadTerm], path: str) -> None:
    """Raise InvalidInput for an extremum before the last argument, or beside an aggregate."""
    for index, arg in enumerate(args):
        if isinstance(arg, Extremum):
            at = f"{path}[{index}]"
            if index + 1 < len(args):
                raise InvalidInput.at(
                    at, f'"{arg.function} {arg.variable}" has to be the last argument of the head'
                )
            if any(isinstance(other, Aggregate) for other in args):
                raise InvalidInput.at(
                    at, f'"{arg.function} {arg.variable}" cannot stand beside an aggregate'
                )


def _head_term(value: Any, path: str, limits: Limits) -> HeadTerm:
    """Read a head argument; the text of an aggregate, `count(?x)`, or of an extremum, `min ?x`, is
    one.
    """
    if isinstance(value, str) and (match := _EXTREMUM.fullmatch(value)):
        function, name = match.groups()
        if name == "_":
            raise InvalidInput.at(path, f"{function} needs a named variable")
        return Extremum(function, Variable(name))
    if isinstance(value, str) and (match := _AGGREGATE.fullmatch(value)):
        function, inside = match.groups()
        if inside == "*":
            if function != "count":
                raise InvalidInput.at(
                    path, f'"*" is only allowed in count(*), not in {function}(*)'
                )
            return Aggregate(function, None)
        if inside == "?_":
            raise InvalidInput.at(path, "an aggregate needs a named variable")
        return Aggregate(function, Variable(inside[1:]))
    term = _term(value, path, limits)
    if term == ANONYMOUS:
        raise InvalidInput.at(
            path, 'a rule head cannot say "any value"; name the variable and use it in the body'
        )
    return term


def _expression(value: Any, path: str, limits: Limits) -> Expr:
    text = constant_from_json(value, path)
    if problem := limits.constant_problem(text):
        raise InvalidInput.at(path, problem)
    if "?" not in text:
        return text
    if text in ("?", "?_"):
        raise InvalidInput.at(path, "an anonymous variable has no value to compare or compute with")
    if text.startswith("?") and _NAME.fullmatch(text, 1):
        return Variable(text[1:])
    try:
        expr = parse_expression(text, limits)
    except InvalidInput as error:
        if text.startswith("?"):
            raise InvalidInput.at(
                path,
                f'"{shortened(text)}" is neither a variable nor an expression: {error.message}',
            ) from None
        return text
    if isinstance(expr, Apply) and any(True for _ in expression_variables(expr)):
        return expr
    return text


def _text_of(obj: Any, path: str) -> tuple[str, str] | None:
    """Return the text of an item given as text, and where it is; None if the item is an object with
    a predicate.
    """
    if isinstance(obj, str):
        return obj, path or "text"
    if not isinstance(obj, Mapping) or obj.get("text") is None:
        return None
    at = _under(path, "text")
    if not isinstance(obj["text"], str):
        raise InvalidInput.at(at, "must be a text")
    if beside := [key for key in _IN_TEXT if obj.get(key)]:
        raise InvalidInput.at(at, f'is complete: leave out "{beside[0]}"')
    return obj["text"], at


def _predicate(fields: Mapping[str, Any], path: str, limits: Limits) -> str:
    predicate = fields.get("predicate")
    if (
        type(predicate) is str
        and len(predicate) <= limits.predicate_chars
        and predicate.isascii()
        and predicate.isidentifier()
    ):  # the usual name, in which nothing can be wrong
        return predicate
    predicate = _field(fields, "predicate", path)
    if not isinstance(predicate, str):
        raise InvalidInput.at(_under(path, "predicate"), "must be a text")
    if problem := limits.name_problem(predicate):
        raise InvalidInput.at(_under(path, "predicate"), problem)
    return predicate


def _builtin(fields: Mapping[str, Any], path: str) -> str | None:
    """Return the name of the builtin that an item is, or None for an ordinary atom."""
    name, predicate = fields.get("builtin"), fields.get("predicate")
    if name is False:
        return None
    at = _under(path, "builtin")
    if name is None:
        return predicate if isinstance(predicate, str) and predicate in COMPARISONS else None
    if predicate is not None:
        raise InvalidInput.at(at, 'is given beside "predicate"; send one of them')
    if not isinstance(name, str) or name not in BUILTINS:
        raise InvalidInput.at(at, f"must be one of {', '.join(BUILTINS)}")
    return name


def _negative_polarity(fields: Mapping[str, Any], path: str) -> bool:
    polarity = fields.get("polarity")
    if polarity in (None, "positive", "negative"):
        return polarity == "negative"
    raise InvalidInput.at(_under(path, "polarity"), 'must be "positive" or "negative"')


def _flag(fields: Mapping[str, Any], key: str, path: str, default: bool = False) -> bool:
    value = fields.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidInput.at(_under(path, key), "must be true or false")
    return value


def _confidence(fields: Mapping[str, Any], path: str) -> float | None:
    value = fields.get("confidence")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidInput.at(_under(path, "confidence"), "must be a number from 0 to 1")
    return float(value)


def _text(fields: Mapping[str, Any], key: str, path: str) -> str | None:
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise InvalidInput.at(_under(path, key), "must be a text that is not empty")
    problem = (
        text_problem(value)
        if len(value) <= MAX_NAME
        else f"must have at most {MAX_NAME} characters"
    )
    if problem:
        raise InvalidInput.at(_under(path, key), problem)
    return value


def _digits(number: int, path: str) -> str:
    # int to text takes quadratic time, and Python refuses it beyond a few thousand digits.
    if number.bit_length() > 4096:
        raise InvalidInput.at(path, "the number is too large; send it as a text")
    return str(number)


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput.at(path or "value", "must be an object")
    return value


def _array(value: Any, path: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise InvalidInput.at(path, "must be an array")
    return value


def _field(fields: Mapping[str, Any], key: str, path: str) -> Any:
    if key not in fields:
        raise InvalidInput.at(_under(path, key), "is required")
    return fields[key]


def _under(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
