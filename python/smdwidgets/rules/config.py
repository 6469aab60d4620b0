"""Create rules from the JSON rule configurations of a SageMaker training request.

>>> from smdwidgets.rules import rule_configs
>>> [entry.rule_to_invoke for entry in read_configurations(rule_configs.vanishing_gradient())]
['VanishingGradient']
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdwidgets.rules.actions import parse_actions
from smdwidgets.rules.creation import make_rule
from smdwidgets.rules.registry import UnknownRule
from smdwidgets.rules.rule import Rule
from smdwidgets.storage.address import is_address, parse
from smdwidgets.storage.local import local_path

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["RuleConfiguration", "read_configurations", "rules_from_json"]

#: Limits of the SageMaker service.
MOST_PARAMETERS, LONGEST_NAME = 100, 256
#: Entries of RuleParameters that are not parameters of the rule class.
_RESERVED = frozenset({"rule_to_invoke", "source_s3_uri", "action_json", "other_trials", "other_trial", "base_trial"})
_NUMBERED = re.compile(r"other_trial_(\d+)")


@dataclass(frozen=True)
class RuleConfiguration:
    """One parsed entry of DebugRuleConfigurations."""

    name: str
    rule_to_invoke: str
    parameters: dict[str, Any]
    source: str | None = None
    other_trials: tuple[str, ...] = ()
    action_json: str = ""


def read_configurations(config: Any) -> list[RuleConfiguration]:
    """Parse rule configurations.

    Args: config: a training request, a list of entries, one entry, a base configuration, or JSON text or the path of a
    JSON file with any of these.
    """
    entries = _list_entries(_load(config))
    found = [_parse_entry(each) for each in entries]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise SMDebugValueError(f"duplicate RuleConfigurationName {shown(name)}; names must be unique")
    return found


def rules_from_json(config: Any, trial: Trial, *, allow_custom: bool = False) -> dict[str, Rule]:
    """Create the configured rules on a trial, by RuleConfigurationName.

    Other trials are opened from their paths. A rule with `source_s3_uri` (an S3 URI or a local path, of a Python file
    or of a directory of Python files) executes that code and therefore needs `allow_custom=True`.

    ::

        rules_from_json({"DebugRuleConfigurations": [{
            "RuleConfigurationName": "vanishing",
            "RuleParameters": {"rule_to_invoke": "VanishingGradient", "threshold": "1e-6"},
        }]}, trial)
    """
    return {each.name: _create_rule(each, trial, allow_custom) for each in read_configurations(config)}


def _load(config: Any) -> Any:
    if isinstance(config, os.PathLike) or (isinstance(config, str) and not config.lstrip().startswith(("{", "["))):
        path = Path(config)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SMDebugValueError(f"cannot read rule configuration {shown(str(path), 400)}: {error}") from None
        return _parse_json(text, shown(str(path), 400))
    return _parse_json(config, "text") if isinstance(config, str) else config


def _parse_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SMDebugValueError(f"cannot parse rule configuration {what} as JSON: {error}") from None


def _list_entries(config: Any) -> list[Any]:
    if isinstance(config, list | tuple):
        return [entry for each in config for entry in _list_entries(each)] if config else []
    if isinstance(config, Mapping):
        for key in ("DebugRuleConfigurations", "DebugRuleConfiguration"):
            if key in config:
                return _list_entries(config[key])
        if "RuleParameters" in config or "RuleConfigurationName" in config:
            return [config]
    raise SMDebugValueError(
        "a rule configuration must be an object with RuleConfigurationName and RuleParameters, or with "
        f"DebugRuleConfigurations, got {shown(config)}"
    )


def _parse_entry(entry: Mapping[str, Any]) -> RuleConfiguration:
    parameters = entry.get("RuleParameters")
    if not isinstance(parameters, Mapping) or len(parameters) > MOST_PARAMETERS:
        raise SMDebugValueError(
            f"RuleParameters must be an object with at most {MOST_PARAMETERS} entries, got {shown(parameters)}"
        )
    for key, value in parameters.items():
        if not isinstance(key, str) or not isinstance(value, str | int | float | bool):
            raise SMDebugValueError(f"RuleParameters[{shown(key)}] must be a string or number, got {shown(value)}")
    rule = parameters.get("rule_to_invoke")
    if not isinstance(rule, str) or not rule:
        near = did_you_mean("rule_to_invoke", parameters)
        raise SMDebugValueError(f"RuleParameters lacks rule_to_invoke, the name of the rule.{near}")
    name = entry.get("RuleConfigurationName", rule)
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise SMDebugValueError(
            f"RuleConfigurationName must be a string of 1 to {LONGEST_NAME} characters, got {shown(name)}"
        )
    numbered = sorted((int(found[1]), key) for key in parameters if (found := _NUMBERED.fullmatch(key)))
    others = [str(parameters[key]) for _, key in numbered]
    for key in ("other_trials", "other_trial"):
        others += [part.strip() for part in str(parameters.get(key, "")).split(",") if part.strip()]
    return RuleConfiguration(
        name=name,
        rule_to_invoke=rule,
        parameters={
            key: value for key, value in parameters.items() if key not in _RESERVED and not _NUMBERED.fullmatch(key)
        },
        source=str(parameters["source_s3_uri"]) if "source_s3_uri" in parameters else None,
        other_trials=tuple(others),
        action_json=str(parameters.get("action_json", "")),
    )


def _create_rule(entry: RuleConfiguration, trial: Trial, allow_custom: bool) -> Rule:
    from smdwidgets.trials import create_trial

    kind: str | type[Rule] = entry.rule_to_invoke
    if entry.source is not None:
        if not allow_custom:
            raise SMDebugValueError(
                f"rule {shown(entry.name)} executes code from {shown(entry.source, 400)}; pass allow_custom=True if you trust it"
            )
        kind = load_custom(entry.source, entry.rule_to_invoke)
    given: dict[str, Any] = dict(entry.parameters)
    if entry.other_trials:
        given["other_trials"] = [create_trial(path) for path in entry.other_trials]
    rule = make_rule(kind, trial, given)
    if entry.action_json:
        rule.actions = parse_actions(entry.action_json)
    return rule


def load_custom(source: str, name: str) -> type[Rule]:
    """Load a rule class from a Python file or a directory of Python files.

    The source is a local path or an address such as ``s3://bucket/prefix``. The files are executed.
    """
    if is_address(source):
        with tempfile.TemporaryDirectory(prefix="smdwidgets-rules-") as folder:
            return _find_class(_download(source, Path(folder)), source, name)
    path = Path(local_path(source))
    if not path.exists():
        raise SMDebugValueError(f"rule file {shown(source, 400)} does not exist")
    return _find_class(sorted(path.glob("*.py")) if path.is_dir() else [path], source, name)


def _find_class(files: list[Path], source: str, name: str) -> type[Rule]:
    found: list[str] = []
    for path in files:
        for key, value in vars(_execute(path)).items():
            if isinstance(value, type) and issubclass(value, Rule) and value is not Rule:
                found.append(key)
                if key == name:
                    return value
    raise UnknownRule(f"no class {shown(name)} derived from Rule in {shown(source, 400)}.{did_you_mean(name, found)}")


def _execute(path: Path) -> Any:
    module_name = f"_smdwidgets_rules_{abs(hash(str(path.resolve())))}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise SMDebugValueError(f"rule file {shown(str(path), 400)} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise SMDebugRuntimeError(
            f"cannot execute rule file {shown(str(path), 400)}: {type(error).__name__}: {error}"
        ) from error
    return module


def _download(source: str, folder: Path) -> list[Path]:
    from smdwidgets.storage.connection import Connection  # imported for stores only

    address = parse(source)
    above, _, begins = address.prefix.rpartition("/")
    # The source is a prefix, which may end in the middle of a name.
    base, prefix = (address.prefix, "") if source.endswith("/") or not begins else (above, begins)
    storage = Connection().storage(f"{address.root}/{base}")
    files = []
    try:
        keys = [
            key
            for key in storage.list(prefix)
            if key.endswith(".py") and key[len(prefix) :].count("/") <= 1 and ".." not in key.split("/")
        ]
        for at, (_, content) in enumerate(sorted(storage.read_many(keys))):
            # Files are numbered, because a key can contain unsafe characters.
            files.append(folder / f"rule_{at}.py")
            files[-1].write_bytes(content)
    finally:
        storage.close()
    if not files:
        raise SMDebugValueError(f"no Python file found at {shown(source, 400)}")
    return files
