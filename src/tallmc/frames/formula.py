"""Formulas such as `late ~ distance + C(carrier)`, by formulaic, with what they learned of the first rows recorded."""

import ast
import dataclasses
import re
import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Real

from tallmc.frames.design import Coding
from tallmc.frames.frame_coding import Category, Numeric
from tallmc.frames.read import Frame, Table, is_frame, listed, nearest

_ROWS_AT_A_TIME = 65_536
_QUOTED = re.compile(r"`([^`]*)`")
_NUMPY = "np"  # of which a formula may call the functions that work element by element


class Factor(NamedTuple):
    """One part of a product in a formula.

    Args:
        text: As written.
        columns: Of the frame.
        labelled: The column, if this is `C(column)`.
    """

    text: str
    columns: tuple[str, ...]
    labelled: str | None


@dataclasses.dataclass(frozen=True, eq=False)
class Parsed:
    """A formula, taken apart and checked against the columns of a frame.

    Args:
        target: The left side.
        right: The right side.
        factors: Of the right side.
    """

    target: Factor
    right: str
    factors: tuple[Factor, ...]


def parse(formula: str, frame: Frame) -> Parsed:
    """Takes a formula apart; raises `ValueError` that says what is wrong with it."""
    from formulaic import Formula

    if formula.count("~") != 1:
        raise ValueError(f"formula {formula!r} must have one ~, with the outcome before it: 'late ~ distance'")
    if re.search(r"(^|[~+\s])\.($|[+\s-])", formula):
        raise ValueError(
            f"formula {formula!r} has a dot; write the columns out, or pass the frame and the outcome's name"
        )
    if not formula.split("~")[0].strip():
        raise ValueError(f"formula {formula!r} has no outcome before the ~; write it, such as 'late ~ distance'")
    try:
        found: Any = Formula.from_spec(formula)
    except Exception as error:  # formulaic has many kinds, and some parsers raise others
        said = str(error).replace("⧛", "").replace("⧚", "").strip().splitlines()
        why = said[0].rstrip(".") if said else type(error).__name__
        raise ValueError(
            f"formula {formula!r} cannot be read: {why}; write it like 'late ~ distance + C(carrier)'"
        ) from None
    if not _is_plain(found):
        raise ValueError(f"formula {formula!r} has several parts; write one sum of terms, without |")
    left = [factor for term in found.lhs for factor in term.factors]
    if len(left) != 1:
        names = listed([str(term) for term in found.lhs]) or "nothing"
        raise ValueError(f"formula {formula!r} must have one outcome before the ~, but it has {names}")
    parts = [factor for term in found.rhs for factor in term.factors]
    factors = [_factor(part, frame, formula) for part in parts if part.eval_method.value != "literal"]
    return Parsed(_factor(left[0], frame, formula), formula.split("~")[1].strip(), tuple(factors))


def _is_plain(found: Any) -> bool:
    from formulaic import SimpleFormula

    return all(isinstance(side, SimpleFormula) for side in (found.lhs, found.rhs))


def _factor(part: Any, frame: Frame, formula: str) -> Factor:
    if part.eval_method.value == "lookup":
        frame.require(part.expr, f"formula {formula!r} names column")
        return Factor(part.expr, (part.expr,), None)
    columns, labelled = _columns_of(part.expr, frame, formula)
    return Factor(part.expr, columns, labelled)


def _columns_of(text: str, frame: Frame, formula: str) -> tuple[tuple[str, ...], str | None]:
    """Columns that an expression reads. Only columns, numbers and functions made for formulas may be in it.

    So nothing else is ever run, also where a formula came out of a file.
    """
    quoted = {f"_quoted_{number}": name for number, name in enumerate(_QUOTED.findall(text))}
    names = iter(quoted)
    try:
        tree = ast.parse(_QUOTED.sub(lambda _: next(names), text), mode="eval")
    except SyntaxError:
        raise ValueError(f"formula {formula!r} has a part that cannot be read: {text}; mend its brackets") from None
    known, columns = _functions(), []
    of_functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    of_attributes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.NamedExpr | ast.SetComp | ast.DictComp):
            raise ValueError(f"formula {formula!r} has a part that is not arithmetic, {text}; make it a column first")
        if isinstance(node, ast.Attribute):
            _check_attribute(node, formula)
        elif isinstance(node, ast.Call) and not isinstance(node.func, ast.Name | ast.Attribute):
            raise ValueError(f"formula {formula!r} calls what is no function in {text}; make it a column first")
        elif isinstance(node, ast.Name) and id(node) in of_functions:
            if node.id not in known:
                raise ValueError(
                    f"formula {formula!r} calls {node.id}, which formulas do not know"
                    f"{nearest(node.id, sorted(known)) or '; make it a column first'}"
                )
        elif isinstance(node, ast.Name) and id(node) not in of_attributes:
            name = quoted.get(node.id, node.id)
            frame.require(name, f"formula {formula!r} names column")
            columns.append(name)
    return tuple(dict.fromkeys(columns)), _labelled(tree.body, quoted)


def _functions() -> dict[str, Any]:
    from formulaic.transforms import TRANSFORMS

    return {name: value for name, value in TRANSFORMS.items() if callable(value)}


def _check_attribute(node: ast.Attribute, formula: str) -> None:
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    if owner == "contr" and not node.attr.startswith("_"):
        return
    if owner != _NUMPY or not isinstance(getattr(np, node.attr, None), np.ufunc):
        raise ValueError(
            f"formula {formula!r} uses {ast.unparse(node)}; of NumPy it may call np.sqrt and the like only"
        )


def _labelled(node: ast.expr, quoted: dict[str, str]) -> str | None:
    """The column, if this is `C(column, ...)`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "C" and node.args):
        return None
    first = node.args[0]
    return quoted.get(first.id, first.id) if isinstance(first, ast.Name) else None


@dataclasses.dataclass(frozen=True, eq=False)
class FormulaCoding(Coding):
    """The right side of a formula.

    Args:
        right: As text.
        sources: Columns that it reads, those of labels with their levels.
        states: What transforms such as `scale` learned, and the levels of what is made a label on the way; as pairs.
        coefficients: Their names.
    """

    right: str
    sources: tuple[Numeric | Category, ...]
    states: tuple[Any, ...]
    coefficients: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coefficients, as formulaic gives them."""
        return self.coefficients

    @classmethod
    def of(cls, parsed: Parsed, frame: Frame, dtype: np.dtype) -> "tuple[FormulaCoding, np.ndarray]":
        """The coding, and the matrix of the rows that it was made from."""
        labelled = {factor.labelled for factor in parsed.factors if factor.labelled is not None}
        plain = {name for factor in parsed.factors if factor.labelled is None for name in factor.columns}
        both = {name for name in labelled & plain if not frame.is_category(name)}
        names = dict.fromkeys(name for factor in parsed.factors for name in factor.columns)
        sources = tuple(
            Category.of(frame, name, 0)
            if frame.is_category(name) or (name in labelled and name not in both)
            else Numeric(name)
            for name in names
        )
        draft = cls(parsed.right, sources, ((), ()), ())
        table = draft._table(frame)
        # The first rows tell the columns, if they know all levels and nothing is learned of the other rows.
        whole = bool(both) or any(factor.labelled is None and factor.text.startswith("C(") for factor in parsed.factors)
        spec = _materialised(draft.right, table if whole else table[:_ROWS_AT_A_TIME], draft.states)[1]
        if spec.transform_state and not whole:
            spec = _materialised(draft.right, table, draft.states)[1]
        learned = {
            name: {"categories": s["categories"]} for name, (_, s) in spec.encoder_state.items() if "categories" in s
        }
        states = (_as_pairs(spec.transform_state), _as_pairs(learned))
        if not spec.column_names:
            raise ValueError(f"formula part {parsed.right!r} has no terms; write at least 1, for an intercept")
        coding = cls(parsed.right, sources, states, tuple(str(name) for name in spec.column_names))
        return coding, coding._written(table, dtype)

    def matrix(self, rows: Table, dtype: np.dtype) -> Real[np.ndarray, "rows columns"]:
        """Columns by name; others are not looked at."""
        if not is_frame(rows):
            needed = listed([source.name for source in self.sources])
            raise ValueError(f"new rows must be a frame with the columns {needed}, not {type(rows).__name__}")
        frame = Frame(rows, "new rows")
        for source in self.sources:
            frame.require(source.name, "the model needs column")
        return self._written(self._table(frame), dtype)

    def _table(self, frame: Frame) -> Any:
        """The columns as pandas has them: numbers, or categories with all recorded levels."""
        import pandas

        columns: dict[str, Any] = {}
        for source in self.sources:
            if isinstance(source, Category):
                codes = frame.codes(source.name, source.levels)
                columns[source.name] = pandas.Categorical.from_codes(codes, categories=list(source.levels))
            else:
                columns[source.name] = frame.numbers(source.name)
        return pandas.DataFrame(columns, index=range(frame.num_rows))

    def _written(self, table: Any, dtype: np.dtype) -> Real[np.ndarray, "rows columns"]:
        matrix = np.empty((len(table), len(self.names)), dtype)
        for start in range(0, len(table), _ROWS_AT_A_TIME):
            block = table[start : start + _ROWS_AT_A_TIME].reset_index(drop=True)
            values = _materialised(self.right, block, self.states)[0]
            if not np.isfinite(values).all():
                row, column = np.argwhere(~np.isfinite(values))[0]
                raise ValueError(
                    f"the formula's column '{self.names[column]}' is not finite in row {start + row}; drop such rows, "
                    "or write another formula"
                )
            matrix[start : start + len(block)] = values
        return matrix


def outcome(parsed: Parsed, frame: Frame, dtype: np.dtype) -> np.ndarray:
    """The left side of a formula: a column, or an expression of columns."""
    if parsed.target.columns == (parsed.target.text,):
        return frame.numbers(parsed.target.text, dtype)
    values, _ = _materialised(
        f"0 + I(1.0 * ({parsed.target.text}))",
        FormulaCoding("", tuple(Numeric(name) for name in parsed.target.columns), ((), ()), ())._table(frame),
        ((), ()),
    )
    if values.shape[1] != 1:
        raise ValueError(f"the outcome {parsed.target.text} of the formula is not one number a row; make it a column")
    return values[:, 0].astype(dtype)


def _materialised(right: str, table: Any, states: tuple[Any, ...]) -> tuple[np.ndarray, Any]:
    """The matrix, and formulaic's specification with what it has learned."""
    from formulaic import ModelSpec
    from formulaic.errors import DataMismatchWarning
    from formulaic.parser.types import Factor as Kinds

    transforms, levels = (_from_pairs(state) for state in states)
    encoder = {name: (Kinds.Kind.CATEGORICAL, state) for name, state in levels.items()}
    spec: Any = ModelSpec.from_spec(right, materializer="pandas", output="numpy", na_action="ignore")
    spec = spec.update(transform_state=transforms, encoder_state=encoder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataMismatchWarning)
        warnings.simplefilter("ignore", RuntimeWarning)  # the logarithm of zero is found by its row
        try:
            matrix = spec.get_model_matrix(table)
        except DataMismatchWarning as error:
            raise ValueError(f"formula {right!r} meets levels that the model has not seen: {error}") from None
        except Exception as error:
            said = str(error).strip().splitlines()
            raise ValueError(
                f"formula {right!r} cannot be worked out ({said[-1] if said else error}); make its columns first"
            ) from None
    return np.asarray(matrix, float), matrix.model_spec


def _as_pairs(state: Any) -> Any:
    """Dictionaries as pairs, whose keys may be numbers, and NumPy's numbers as Python's: what a file can hold."""
    if isinstance(state, dict):
        return ("pairs", *((key, _as_pairs(value)) for key, value in state.items()))
    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, list | tuple):
        return [_as_pairs(value) for value in state]
    if state is None or isinstance(state, str | int | float | bool | np.ndarray):
        return state
    raise ValueError(
        f"the formula uses a transform that keeps a {type(state).__name__}, which cannot be recorded; make its columns "
        "before, in the frame"
    )


def _from_pairs(state: Any) -> Any:
    if isinstance(state, tuple):
        return {key: _from_pairs(value) for key, value in state[1:]}
    return [_from_pairs(value) for value in state] if isinstance(state, list) else state
