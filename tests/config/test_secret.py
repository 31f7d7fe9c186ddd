"""A secret is revealed where it is used, and nowhere else."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from streamer import ConfigError
from streamer.config.loader import Loaded
from streamer.config.schema.values import Section
from streamer.config.secret import MAX_BYTES, Secret, SecretValue
from streamer.config.show import show

VALUE = "correct-horse-battery-staple"


class Hook(Section):
    """A section with a secret."""

    secret: Secret


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_file_says_it(tmp_path: Path, ending: str) -> None:
    (tmp_path / "s").write_text(VALUE + ending, newline="")
    assert Hook.model_validate({"secret": {"file": str(tmp_path / "s")}}).secret.reveal() == VALUE


def test_a_variable_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = SecretValue("env", "HOOK")
    assert secret.reveal({"HOOK": VALUE}) == VALUE
    monkeypatch.setenv("HOOK", VALUE)
    assert secret.reveal() == VALUE


def test_nothing_that_prints_it_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", VALUE)
    hook = Hook.model_validate({"secret": {"env": "HOOK"}})
    assert hook.secret.reveal() == VALUE
    told = [repr(hook), str(hook), hook.model_dump_json(), repr(hook.secret), repr(hook.model_dump()), repr(pickle.dumps(hook))]
    told += [f"{hook.secret}", repr(vars(hook)), str(Hook.model_json_schema()), show(Loaded(hook))]  # type: ignore[arg-type]
    assert all("HOOK" in text for text in told if "properties" not in text)
    assert not any(VALUE in text for text in told)
    assert pickle.loads(pickle.dumps(hook)).secret.reveal() == VALUE


@pytest.mark.parametrize(
    "given",
    [VALUE, [VALUE], {"env": ""}, {"file": f"{VALUE}\0"}, {"env": VALUE, "file": VALUE}, {VALUE: VALUE}, {}, None, 5],
)
def test_an_error_does_not_repeat_what_stands_in_its_place(given: object) -> None:
    with pytest.raises(ValidationError) as refused:
        Hook.model_validate({"secret": given})
    assert "{env: VARIABLE} or {file: PATH}" in str(refused.value)
    assert VALUE not in str(refused.value)
    assert VALUE not in repr(refused.value)


def test_an_error_of_reading_it_does_not_say_it(tmp_path: Path) -> None:
    (tmp_path / "long").write_text(VALUE * (MAX_BYTES // len(VALUE) + 1))
    (tmp_path / "bytes").write_bytes(VALUE.encode() + b"\xff")
    (tmp_path / "empty").write_text("\n")
    for secret, reason in (
        (SecretValue("env", "NOSUCH"), "the variable NOSUCH is not set, or empty"),
        (SecretValue("file", str(tmp_path / "nosuch")), "No such file"),
        (SecretValue("file", str(tmp_path / "long")), "more than the 65,536 bytes"),
        (SecretValue("file", str(tmp_path / "bytes")), "no UTF-8"),
        (SecretValue("file", str(tmp_path / "empty")), "empty"),
    ):
        with pytest.raises(ConfigError, match=reason) as refused:
            secret.reveal({})
        chain = [str(refused.value), repr(refused.value), repr(pickle.dumps(refused.value)), str(refused.value.__cause__)]
        assert not any(VALUE in text for text in chain)
