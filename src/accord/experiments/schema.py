"""Values of a table, checked against what the fields of a part take."""

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from accord.core.errors import AccordError, did_you_mean, nearest
from accord.core.schedule import ramp
from accord.experiments.settings import shown
from accord.rules.schema import Setting

_STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
_RAMP = {"from": "lr", "to": "end", "over": "over"}  # how a file spells the fields of a ramp


def checked(path: str, value: Any, setting: Setting) -> Any:
    """The value of a key, if it is what the field takes. A table is a schedule in a straight line."""
    if setting.moves and isinstance(value, Mapping):
        return _ramp(path, value, setting)
    words = [word for kind in setting.kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if type(value) is int and str(value) in words:
        return str(value)  # a command line cannot tell the word 24 from the number
    if isinstance(value, list) and any(get_origin(kind) is tuple for kind in setting.kinds):
        value = tuple(value)
    try:
        return TypeAdapter(setting.kind, config=_STRICT).validate_python(value)
    except PydanticUserError:
        return value  # a type that cannot be checked from outside: the part's own checks have the say
    except ValidationError:
        takes = str(setting)
        if isinstance(value, float) and not math.isfinite(value):
            takes = takes.replace("a number", "a finite number")
        close = nearest(value, [word for word in words if isinstance(word, str)]) if isinstance(value, str) else None
        hint = f": did you mean {close!r}?" if close else f" ({setting.about})" if setting.about else ""
        raise AccordError(f"{path} must be {takes}, got {shown(value)}{hint}") from None


def _ramp(path: str, table: Mapping[str, Any], setting: Setting) -> ramp:
    """`{ from = 0.8, to = 0.4, over = 50 }`; without `from` it starts at the default."""
    for key in table:
        if key not in _RAMP:
            raise AccordError(f"{path}.{key} is not a known key, got {shown(table[key])}: {did_you_mean(key, _RAMP)}")
    given = {"from": setting.default, **table}
    for key in _RAMP:
        if not isinstance(given.get(key), int if key == "over" else int | float) or isinstance(given[key], bool):
            wanted = "a whole number of rounds" if key == "over" else "a number"
            seen = f"must be {wanted}, got {shown(given[key])}" if key in given else "is missing"
            raise AccordError(
                f"{path}.{key} {seen}: { {'from': 0.8, 'to': 0.4, 'over': 50} } moves in a straight line over 50 rounds"
            )
    try:
        return ramp(**{_RAMP[key]: value for key, value in given.items()})
    except AccordError as error:
        field, _, rest = str(error).partition(" ")
        raise AccordError(f"{path}.{next((key for key, own in _RAMP.items() if own == field), field)} {rest}") from None
