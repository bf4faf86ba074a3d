"""What all records are: frozen, and strict about what they hold."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record; unknown fields are ignored, so that older programs read newer files."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings", defer_build=True)
