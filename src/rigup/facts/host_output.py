"""The base class and the field types of everything that a host prints, and their validation. Pure."""

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rigup.facts.bounds import MOST_COUNT, Unreadable, kind, line, shown


class HostOutput(BaseModel):
    """The base class for output of a host: types are strict, unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True, allow_inf_nan=False)


Line = Annotated[str, AfterValidator(line)]
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Figure = Annotated[float, Field(ge=0, le=1e12, strict=True)]
MOST_GPUS = 256
GpuIndex = Annotated[int, Field(ge=0, lt=MOST_GPUS)]

_Model = TypeVar("_Model", bound=HostOutput)


def checked(model: type[_Model], value: Any, document: str) -> _Model:
    """The value as an instance of the model. Raises Unreadable with document, path, expected and found value."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    path = ".".join(shown(str(part)) for part in first["loc"])
    raise Unreadable(": ".join(part for part in (document, path, _problem(first)) if part))


_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def _problem(error: Any) -> str:
    if error["type"] == "missing":
        return "missing"
    if expected := _EXPECTED.get(error["type"]):
        return f"expected {expected}, found {kind(error['input'])}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return shown(error["msg"][:1].lower() + error["msg"][1:])
