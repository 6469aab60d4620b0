"""SaveConfig: the steps at which tensors are saved, by mode."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from smdwidgets.config._parse import integer, integers, mapping
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.modes import ModeKeys, as_mode

DEFAULT_SAVE_CONFIG_INTERVAL: Final = 500
DEFAULT_SAVE_CONFIG_START_STEP: Final = 0
DEFAULT_SAVE_CONFIG_END_STEP: Final = None
ALLOWED_PARAMS: Final = ("save_interval", "save_steps", "start_step", "end_step")


class SaveConfigMode:
    """Steps to save of one mode.

    These are the multiples of ``save_interval`` in [start_step, end_step), and all ``save_steps``.

    >>> every_ten = SaveConfigMode(save_interval=10, start_step=100)
    >>> [step for step in (90, 100, 105, 110) if every_ten.should_save_step(step)]
    [100, 110]

    ``save_steps`` are added to the steps of the interval, whose default is 500:

    >>> [step for step in range(501) if SaveConfigMode(save_steps=[3]).should_save_step(step)]
    [0, 3, 500]
    """

    def __init__(
        self,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: Iterable[int] | str | None = None,
    ) -> None:
        interval = DEFAULT_SAVE_CONFIG_INTERVAL if save_interval is None else save_interval
        self.save_interval = integer(interval, "save_interval", least=1)
        self.save_steps = [] if save_steps is None else integers(save_steps, "save_steps")
        self.start_step = integer(DEFAULT_SAVE_CONFIG_START_STEP if start_step is None else start_step, "start_step")
        self.end_step = None if end_step is None else integer(end_step, "end_step")

    def should_save_step(self, step_num: int) -> bool:
        """Return whether a step of the mode is saved."""
        if step_num in self.save_steps:
            return True
        before_end = self.end_step is None or step_num < self.end_step
        return self.start_step <= step_num and before_end and step_num % self.save_interval == 0

    def to_json_dict(self) -> dict[str, object]:
        """Return the dictionary form used in collection files."""
        return {
            "save_interval": self.save_interval,
            "save_steps": self.save_steps,
            "start_step": self.start_step,
            "end_step": self.end_step,
        }

    @classmethod
    def from_dict(
        cls, params: Mapping[str, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> SaveConfigMode | None:
        """Create a configuration from its dictionary form; return None for None.

        ``default_values`` replaces missing keys.
        """
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise SMDebugTypeError(f"save configuration of a mode must be a dictionary, got {type(params).__name__}")
        given = {**(default_values or {}), **params}
        return cls(**{key: given[key] for key in ALLOWED_PARAMS if key in given})

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, SaveConfigMode) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.save_interval, tuple(self.save_steps), self.start_step, self.end_step))

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.to_json_dict().items() if value not in (None, []))
        return f"SaveConfigMode({given})"


class SaveConfig:
    """Steps to save, for all modes or by mode.

    ``mode_save_configs`` has a :class:`SaveConfigMode` for each mode; missing modes use the hook's configuration.

    >>> SaveConfig(save_interval=10).should_save_step(ModeKeys.EVAL, 20)
    True
    >>> config = SaveConfig({ModeKeys.TRAIN: SaveConfigMode(save_interval=2)})
    >>> config.mode_save_configs[ModeKeys.EVAL] is None
    True
    """

    def __init__(
        self,
        mode_save_configs: Mapping[ModeKeys, SaveConfigMode | None] | None = None,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: Iterable[int] | str | None = None,
    ) -> None:
        self.mode_save_configs: dict[ModeKeys, SaveConfigMode | None]
        if mode_save_configs is None:
            if isinstance(save_steps, Iterable) and not isinstance(save_steps, str):
                save_steps = list(save_steps)  # read once, used for each mode
            self.mode_save_configs = {
                mode: SaveConfigMode(save_interval, start_step, end_step, save_steps) for mode in ModeKeys
            }
            return
        if any(value is not None for value in (save_interval, start_step, end_step, save_steps)):
            raise SMDebugValueError("mode_save_configs and the step arguments are mutually exclusive; got both")
        for mode, config in mapping(mode_save_configs, "mode_save_configs").items():
            if not isinstance(mode, ModeKeys) or not (config is None or isinstance(config, SaveConfigMode)):
                raise SMDebugValueError(
                    f"mode_save_configs must map ModeKeys to SaveConfigMode, got {mode!r}: {config!r}; "
                    "SaveConfig.parse(…) also accepts mode names and dictionaries"
                )
        self.mode_save_configs = dict(mode_save_configs)
        for missing in ModeKeys:
            self.mode_save_configs.setdefault(missing, None)

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        """Return the configuration of a mode."""
        config = self.mode_save_configs[mode]
        if config is None:
            raise SMDebugValueError(
                f"no save configuration for mode {mode.name}; call set_save_config or merge_default_save_config first"
            )
        return config

    def set_save_config(self, mode: ModeKeys, save_config_mode: SaveConfigMode) -> None:
        """Set the configuration of a mode."""
        if not isinstance(save_config_mode, SaveConfigMode):
            raise SMDebugValueError(f"save_config_mode must be a SaveConfigMode, got {type(save_config_mode).__name__}")
        self.mode_save_configs[mode] = save_config_mode

    def should_save_step(self, mode: ModeKeys, step_num: int) -> bool:
        """Return whether a step of a mode is saved."""
        return self.get_save_config(mode).should_save_step(step_num)

    def merge_default_save_config(self, default_save_config: SaveConfig) -> None:
        """Fill missing modes from another configuration."""
        for mode in ModeKeys:
            if self.mode_save_configs[mode] is None:
                default = default_save_config.mode_save_configs[mode]
                self.set_save_config(mode, SaveConfigMode() if default is None else default)

    def to_json_dict(self) -> dict[str, object]:
        """Return the dictionary form used in collection files."""
        return {
            mode.name: None if config is None else config.to_json_dict()
            for mode, config in self.mode_save_configs.items()
        }

    def to_json(self) -> str:
        """Return the JSON form used in collection files."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(
        cls, params: Mapping[Any, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> SaveConfig | None:
        """Create a configuration from a mapping of modes or their names.

        Values are SaveConfigMode objects or dictionaries. Returns None for None.
        """
        if params is None:
            return None
        configs: dict[ModeKeys, SaveConfigMode | None] = {}
        for key, value in mapping(params, "save_config").items():
            try:
                mode = as_mode(key)
            except (TypeError, ValueError) as error:
                raise SMDebugValueError(f"save_config: {error}") from None
            if not isinstance(value, SaveConfigMode):
                value = SaveConfigMode.from_dict(value, default_values)
            configs[mode] = value
        return cls(mode_save_configs=configs)

    @classmethod
    def from_json(cls, json_str: str) -> SaveConfig | None:
        """Create a configuration from its JSON form."""
        return cls.from_dict(json.loads(json_str))

    @classmethod
    def from_save_config_mode(cls, save_config_mode: SaveConfigMode) -> SaveConfig:
        """Create a configuration with the same steps for every mode."""
        return cls(mode_save_configs=dict.fromkeys(ModeKeys, save_config_mode))

    @classmethod
    def parse(cls, obj: object) -> SaveConfig:
        """Convert a hook's ``save_config`` argument.

        Accepts None, a SaveConfig, a SaveConfigMode for all modes, or a dictionary.
        """
        if obj is None:
            return cls()
        if isinstance(obj, SaveConfig):
            return obj
        if isinstance(obj, SaveConfigMode):
            return cls.from_save_config_mode(obj)
        if isinstance(obj, Mapping):
            parsed = cls.from_dict(obj)
            assert parsed is not None
            return parsed
        raise SMDebugTypeError(
            f"save_config must be a SaveConfig, SaveConfigMode or dictionary, got {type(obj).__name__}"
        )

    def __eq__(self, other: object) -> bool:
        return self.mode_save_configs == other.mode_save_configs if isinstance(other, SaveConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.mode_save_configs[mode] for mode in ModeKeys))

    def __repr__(self) -> str:
        configs = set(self.mode_save_configs.values())
        if len(configs) == 1 and None not in configs:
            return repr(next(iter(configs))).replace("SaveConfigMode", "SaveConfig", 1)
        given = ", ".join(f"{mode.name}: {config}" for mode, config in self.mode_save_configs.items() if config)
        return f"SaveConfig({{{given}}})"
