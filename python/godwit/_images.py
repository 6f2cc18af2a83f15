"""Pictures of prompts: files or bytes of them, what a model reads for each, and where that stands."""
import base64
import os
import pathlib
import typing
import urllib.parse

from ._library import GodwitError, check, ffi, lib, owned

if typing.TYPE_CHECKING:
    from ._model import Model

Picture = typing.Union[str, bytes, "os.PathLike[str]"]


def opened(path: "str | os.PathLike[str]", mmproj: "str | None") -> typing.Any:
    """How the model at this path takes pictures."""
    out = ffi.new("gw_images **")
    try:
        check(lib.gw_images_open(os.fsencode(path), os.fsencode(mmproj) if mmproj else ffi.NULL, out))
    except GodwitError as e:
        said = str(e).replace("--mmproj FILE", "mmproj=PATH")
        raise GodwitError(f"{said} (without images=True it reads texts alone)", e.status) from None
    return owned(out[0], lib.gw_images_free)


def listed(pictures: "Picture | typing.Sequence[Picture]") -> "typing.Sequence[Picture]":
    """One picture is a list of one."""
    return [pictures] if isinstance(pictures, (str, bytes, os.PathLike)) else pictures


def taken_out(messages: "typing.Sequence[dict[str, typing.Any]]") -> "tuple[list[dict[str, typing.Any]], list[Picture]]":
    """The messages with bare places for pictures, and the pictures: parts {"type": "image", "image": a path
    or bytes}, or {"type": "image_url"} with a data: or file: URL, as OpenAI's API has them."""
    pictures: "list[Picture]" = []

    def part(p: typing.Any) -> typing.Any:
        if not isinstance(p, dict) or p.get("type") not in ("image", "image_url"):
            return p
        given = p.get("image")
        if given is None:
            url = p.get("image_url", "")
            given = url.get("url", "") if isinstance(url, dict) else url
        pictures.append(_of_url(given) if isinstance(given, str) else given)
        return {"type": "image"}

    def message(m: "dict[str, typing.Any]") -> "dict[str, typing.Any]":
        content = m.get("content")
        return {**m, "content": [part(p) for p in content]} if isinstance(content, list) else dict(m)

    return [message(m) for m in messages], pictures


def _of_url(text: str) -> Picture:
    if text.startswith("data:"):
        head, _, coded = text.partition(",")
        try:
            if not head.endswith(";base64"):
                raise ValueError
            return base64.b64decode("".join(coded.split()), validate=True)
        except ValueError:
            raise GodwitError("a picture's data: URL is no base64: data:image/png;base64,... is needed", "argument") from None
    if text.startswith(("http:", "https:")):
        raise GodwitError("pictures are not downloaded: give a path, the bytes, or a data: URL", "argument")
    return urllib.parse.unquote(text[len("file://"):]) if text.startswith("file://") else text


class Pictures:
    """Pictures of one prompt."""

    def __init__(self, model: "Model", pictures: "typing.Sequence[Picture]") -> None:
        if model._images is None:
            raise GodwitError("the model was opened without images=True", "argument")
        self.model, self.patches, self.seen = model, [], None
        for i, p in enumerate(pictures):
            raw = p if isinstance(p, bytes) else pathlib.Path(os.fspath(p)).read_bytes()
            where, out = (f"picture {i + 1}" if isinstance(p, bytes) else os.fspath(p)), ffi.new("gw_patches **")
            check(lib.gw_image_read(model._images, where.encode(), raw, len(raw), out))
            self.patches.append(owned(out[0], lib.gw_image_free))
        self.listed = ffi.new("gw_patches *[]", self.patches)

    def chat_ids(self, chat: typing.Any, request: bytes) -> "list[int]":
        written = ffi.new("gw_chat_text *")
        check(lib.gw_chat_write_images(chat, request, len(request), self.model._images, self.listed, len(self.patches), written))
        ids = list(written.ids[0:written.n_ids])
        lib.gw_chat_text_free(written)
        return ids

    def plain_ids(self, prompt: "str | bytes") -> "list[int]":
        """For models without a template: the pictures, then the text."""
        ids: "list[int]" = []
        for i, p in enumerate(self.patches):
            out = ffi.new("char **")
            check(lib.gw_image_text(self.model._images, p, out))
            stands = ffi.string(out[0])
            lib.gw_free(out[0])
            ids += self.model.tokenize(stands, bos=i == 0, special=True, end=True)
        return ids + self.model.tokenize(prompt, bos=False)

    def see(self, ids: "typing.Sequence[int]") -> "Seen":
        """The model reads them; where what it saw stands among the tokens. Computes."""
        return Seen(self, ids)


class Seen:
    def __init__(self, of: Pictures, ids: "typing.Sequence[int]") -> None:
        self.sights = []
        for p in of.patches:
            out = ffi.new("gw_sight **")
            check(lib.gw_model_see(of.model._handle(), p, out))
            self.sights.append(owned(out[0], lib.gw_sight_free, of.model._handle()))
        rows, self.n = ffi.new("gw_seen_rows **"), ffi.new("size_t *")
        check(lib.gw_see_places(of.model._handle(), ffi.new("int32_t[]", list(ids)), len(ids),
                                ffi.new("gw_sight *[]", self.sights), len(self.sights), rows, self.n))
        self.rows = [owned(rows[0], lib.gw_free)]
