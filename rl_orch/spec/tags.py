"""Tags of runs, and the roles that they play for a parent: short names that people and programs
give, and look for."""

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from rl_orch.errors import BadInput
from rl_orch.spec.groups import Word

ROLES = ("seed", "trial", "member", "student", "certificate")
"""Words for what a run is to its parent, that parts of ours use; others may be used too."""

Role = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
TagName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
TagMap: TypeAlias = Annotated[dict[TagName, Word], Field(max_length=50)]
TAG_FORM = (
    "a map of up to 50 names (a letter or digit, then at most 62 of A-Z a-z 0-9 . _ / -) to one "
    "line of text each"
)


def validated(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags, if a run can have them."""
    try:
        return TypeAdapter(TagMap).validate_python(dict(tags), strict=True)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise BadInput(f"tags: {where!r} will not do; must be {TAG_FORM}", path="tags") from None


LONGEST_NOTE = 2000
PRINTABLE = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]*")
"""As `ONE_LINE`, with tabs and ends of lines."""


def validated_note(text: str) -> str:
    """The note, if a run can have it."""
    if len(text) > LONGEST_NOTE or PRINTABLE.fullmatch(text) is None:
        raise BadInput(
            f"note has {len(text)} characters; must be at most {LONGEST_NOTE} printable ones",
            path="note",
        )
    return text.strip()


def pair(text: str) -> tuple[str, str]:
    """The name and the value of a tag that is written `name=value`."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"{text!r} is no tag; must be name=value", path="tag")
    return name, value
