"""Adapters (LoRA): which a model has, and which of them a text has."""
import os
import typing

from ._library import GodwitError, check, ffi, lib

if typing.TYPE_CHECKING:
    from ._model import Model

Path = typing.Union[str, "os.PathLike[str]"]
Scaled = typing.Union[Path, typing.Tuple[Path, float]]
# Of a model: those of a list are in texts that choose nothing, those of a dict in texts that name them.
Files = typing.Union[Scaled, typing.Sequence[Scaled], typing.Mapping[str, Scaled]]
# Of a text: a name, names, or names with scales; nothing at all is ().
Pick = typing.Union[str, int, typing.Sequence[typing.Union[str, int]], typing.Mapping[typing.Union[str, int], float]]


def _scaled(one: Scaled) -> "tuple[Path, float]":
    return (one[0], float(one[1])) if isinstance(one, tuple) else (one, 1.0)


class Adapters:
    """The adapters of a model that is open, in the order of their numbers."""

    def __init__(self, model: typing.Any, files: "Files | None", at_once: int) -> None:
        self.names: "list[str]" = []
        self._scales: "list[float]" = []
        if files is None:
            return
        named = dict(files) if isinstance(files, typing.Mapping) else {}
        alone = isinstance(files, (str, os.PathLike)) or (
            isinstance(files, tuple) and len(files) == 2 and isinstance(files[1], (int, float)))
        listed: "list[Scaled]" = [typing.cast(Scaled, files)] if alone else list(named.values() if named else files)
        pairs = [_scaled(one) for one in listed]
        words = [ffi.new("char[]", os.fsencode(path)) for path, _ in pairs]
        called = [ffi.new("char[]", name.encode()) for name in named] or [ffi.NULL] * len(pairs)
        rows = ffi.new("gw_lora_file[]", [{"path": w, "name": n, "scale": 0.0 if named else scale}
                                          for w, n, (_, scale) in zip(words, called, pairs)])
        check(lib.gw_model_adapt(model, rows, len(pairs), at_once))
        info = ffi.new("gw_lora_info[]", len(pairs))
        lib.gw_model_adapters(model, info, len(pairs))
        self.names = [ffi.string(i.name).decode("utf-8", "replace") for i in info]
        self._scales = [scale for _, scale in pairs]

    def _number(self, name: "str | int") -> int:
        number = name if isinstance(name, int) else self.names.index(name) if name in self.names else -1
        if not 0 <= number < len(self.names):
            raise GodwitError(f"lora: there is no adapter {name!r}; the model has {self.names}", "argument")
        return number

    def pick(self, lora: "Pick | None") -> typing.Any:
        """gw_lora_pick *; NULL: what texts have that choose nothing."""
        if lora is None:
            return ffi.NULL
        if isinstance(lora, typing.Mapping):
            chosen = [(self._number(name), float(scale)) for name, scale in lora.items()]
        else:
            names = [lora] if isinstance(lora, (str, int)) else lora
            chosen = [(n, self._scales[n]) for n in map(self._number, names)]
        if len(chosen) > lib.GW_LORA_AT_ONCE:
            raise GodwitError(f"lora: {len(chosen)} adapters for one text; at most {lib.GW_LORA_AT_ONCE}", "limit")
        return ffi.new("gw_lora_pick *", {"n": len(chosen), "adapter": [n for n, _ in chosen],
                                          "scale": [scale for _, scale in chosen]})


def adapt(model: "Model", session: typing.Any, lora: "Pick | None") -> None:
    """Before the session's first token."""
    if lora is not None:
        check(lib.gw_session_adapt(session, model._adapters.pick(lora)))
