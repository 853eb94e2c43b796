"""The one place that calls transformers: finding a class, loading weights into it, naming them again.

Nothing of a stranger's is ever run: code that a folder brings is passed over, the config can't choose an
implementation, and compiled kernels aren't fetched from the hub.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any

from penjing.errors import InputError, UnsupportedError
from penjing.model.families.registry import MODEL_TYPES
from penjing.model.foreign import HARMLESS

if TYPE_CHECKING:
    import torch
    from torch import nn

_NEEDED = ("transformers", "accelerate")
_LEAST_VERSION = 5
_INSTALL = "pip install 'penjing[transformers]'"
# What these keys hold chooses code, files or storage: here all of that is penjing's to say.
_NOT_FOR_STRANGERS = frozenset(
    (
        *("auto_map", "transformers_weights", "dtype", "torch_dtype", "distributed_config"),
        *("attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
        *("experts_implementation", "_experts_implementation", "_experts_implementation_internal"),
        *("kernel_config", "fusion_config", "use_kernels"),
    )
)
_CAUSAL_NAMES = ("forcausallm", "lmheadmodel")


@dataclass(frozen=True)
class Architecture:
    """A class of transformers and the config to make a model of it."""

    config: Any
    model_class: Any
    notices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.model_class.__name__


@dataclass(frozen=True)
class Gaps:
    """What doesn't fit between a checkpoint and a model: names, and for the last (name, stored shape, shape
    that the config asks for)."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[tuple[str, Any, Any], ...]


def find_architecture(hf_config: Mapping[str, Any], source: str) -> Architecture:
    """What transformers has for a config of a model type without a family. Raises `UnsupportedError` where
    the library isn't installed, doesn't know the type, or knows it as something other than a model that
    predicts a text's next token; `InputError` for a config that its class can't read."""
    model_type = hf_config["model_type"]
    _require_library(model_type, source)
    _keep_kernels_out()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    if model_type not in CONFIG_MAPPING:
        own_code = " (the folder's own code is never run)" if "auto_map" in hf_config else ""
        raise UnsupportedError(
            f"{_unknown(model_type, source)}, and transformers {version('transformers')}, which is installed,"
            f" doesn't know it either{own_code}"
        )
    config_class = CONFIG_MAPPING[model_type]
    if config_class not in MODEL_FOR_CAUSAL_LM_MAPPING or hf_config.get("is_encoder_decoder"):
        raise _not_causal(source, hf_config)
    try:
        model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[config_class]
    except ImportError as error:
        raise UnsupportedError(
            f"{source}: transformers needs another package: {_first_line(error)}"
        ) from error
    _check_named_class(hf_config, model_class.__name__, source)
    config = _read_config(config_class, hf_config, source)
    notices = _overlooked(config, hf_config)
    if getattr(config, "rescale_every", 0):
        config.rescale_every = 0
        notices += ("rescale_every is left out: it halves weights as they run, which only float16 needs",)
    return Architecture(config, model_class, notices)


def load(
    architecture: Architecture, tensors: Mapping[str, torch.Tensor], source: str, *, skeleton: bool = False
) -> tuple[nn.Module, Gaps]:
    """The model with these tensors as its weights, in float32, and what didn't fit. A `skeleton` is made of
    tensors without storage and has none itself."""
    import torch

    placed = {"device_map": {"": "meta"}} if skeleton else {}
    with quiet(), torch.inference_mode(False):
        try:
            model, info = architecture.model_class.from_pretrained(
                None,
                config=architecture.config,
                state_dict=dict(tensors),
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                local_files_only=True,
                trust_remote_code=False,
                **placed,
            )
        except Exception as error:  # whatever a stranger's numbers lead it to
            raise InputError(
                f"{source}: transformers can't make a {architecture.name} of it: {_first_line(error)}"
            ) from error
    gaps = Gaps(
        tuple(sorted(info["missing_keys"])),
        tuple(sorted(info["unexpected_keys"])),
        tuple(sorted(info["mismatched_keys"], key=lambda entry: entry[0])),
    )
    return model.requires_grad_(False), gaps


def saved_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The model's tensors by the names, and in the form, in which transformers saves them; tied ones once."""
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    state = dict(model.state_dict())
    for name in model._keys_to_ignore_on_save or ():
        state.pop(name, None)
    with quiet():
        return dict(revert_weight_conversion(model, remove_tied_weights_from_state_dict(state, model)))


def can_be_cut_back(past: Any) -> bool:
    """Whether a cache can forget its last tokens: it holds whole keys and values, no window, no state."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    return isinstance(past, DynamicCache) and all(type(layer) is DynamicLayer for layer in past.layers)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library from logging: what matters is said by penjing."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _require_library(model_type: str, source: str) -> None:
    lacking = [name for name in _NEEDED if find_spec(name) is None]
    if lacking:
        raise UnsupportedError(
            f"{_unknown(model_type, source)}; many others open through transformers, for which"
            f" {' and '.join(lacking)} must be installed: {_INSTALL}"
        )
    try:
        found = version("transformers")
    except PackageNotFoundError:
        found = "0"
    if int(found.partition(".")[0]) < _LEAST_VERSION:
        raise UnsupportedError(
            f"{_unknown(model_type, source)}; to open it through transformers, version {_LEAST_VERSION} is"
            f" needed, and {found} is installed: {_INSTALL}"
        )


def _unknown(model_type: str, source: str) -> str:
    return f"{source}: model type {model_type!r} has no family here (there are: {', '.join(MODEL_TYPES)})"


def _keep_kernels_out() -> None:
    """transformers fetches compiled code from the hub for some architectures, unless this is set when it is
    first imported."""
    if "transformers" not in sys.modules:
        os.environ["USE_HUB_KERNELS"] = "0"
    elif find_spec("kernels") and os.environ.get("USE_HUB_KERNELS", "1").upper() in (
        "1",
        "ON",
        "YES",
        "TRUE",
    ):
        raise UnsupportedError(
            "transformers was imported with kernels from the hub switched on, and code from there is never"
            " run; set USE_HUB_KERNELS=0 in the environment"
        )


def _not_causal(source: str, hf_config: Mapping[str, Any]) -> UnsupportedError:
    names = hf_config.get("architectures")
    named = f" ({', '.join(map(str, names))})" if isinstance(names, list) and names else ""
    return UnsupportedError(
        f"{source} holds a model of type {hf_config['model_type']!r}{named}, and only models that predict the"
        " next token of a text can be opened: no encoders, no encoder-decoders, none for images or sound"
    )


def _check_named_class(hf_config: Mapping[str, Any], ours: str, source: str) -> None:
    """What the folder says it holds must be a causal language model, or its body alone."""
    names = hf_config.get("architectures") or [ours]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{source}: architectures must be a list of names, not {names!r}")
    body = ours.removesuffix("ForCausalLM").removesuffix("LMHeadModel") + "Model"
    if not any(name.lower().endswith((*_CAUSAL_NAMES, ours.lower())) or name == body for name in names):
        raise _not_causal(source, hf_config)


def _read_config(config_class: Any, hf_config: Mapping[str, Any], source: str) -> Any:
    with quiet():
        try:
            config = config_class.from_dict(_ours_to_say(hf_config))
        except Exception as error:  # its classes raise all kinds
            raise InputError(f"{source}: transformers can't read the config: {_first_line(error)}") from error
    config.use_cache = False  # unless a call asks for it
    return config


def _ours_to_say(values: Any) -> Any:
    """The config without the keys that a stranger isn't asked about, at any depth."""
    if isinstance(values, Mapping):
        if values.keys() == {"__float__"}:  # how transformers writes infinity
            return float(values["__float__"])
        kept = (key for key in values if key not in _NOT_FOR_STRANGERS)
        return {key: _ours_to_say(values[key]) for key in kept}
    return [_ours_to_say(value) for value in values] if isinstance(values, list) else values


def _overlooked(config: Any, hf_config: Mapping[str, Any]) -> tuple[str, ...]:
    """What is said in the config and has no effect, as far as the class lets it be seen: keys that aren't its
    own it keeps aside. They are named and not refused, since the class is the measure of its architecture."""
    from transformers import PretrainedConfig

    parameters = signature(type(config).__init__).parameters
    own = {*parameters, *vars(PretrainedConfig()), *type(config).attribute_map}
    known = own | HARMLESS | _NOT_FOR_STRANGERS
    aside = [key for key in hf_config if key in vars(config) and key not in known and key[0] != "_"]
    notices = [f"transformers' class doesn't read these config keys: {', '.join(aside)}"] if aside else []
    if "auto_map" in hf_config:
        notices.append("the folder's own code isn't run; transformers' class of that name is used")
    return tuple(notices)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}{f': {lines[0]}' if lines else ''}"
