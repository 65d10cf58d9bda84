"""timm:<name>: any image model of the timm library, with its pretrained weights, where timm can be imported."""

from pathlib import Path
from typing import Any

from torch import nn

from dmuh.backbones.base import Backbone
from dmuh.errors import ConfigError
from dmuh.images import Preprocess


class TimmModel(Backbone):
    """A timm model up to its pooled features; it has one part, `model`."""

    about = "any model of the timm library with its weights, e.g. timm:resnet50, where timm is installed"
    freeze = "all"
    augment = "resized-crop+flip"
    from_scratch = False

    def __init__(self, name: str, image_size: int | None = None) -> None:
        timm = _timm()
        if name not in timm.list_models():
            near = timm.list_models(f"*{name}*")[:5]
            raise ConfigError(f"timm has no model {name!r}" + (f": it has {', '.join(near)}" if near else ""))
        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
        wanted = timm.data.resolve_model_data_config(model)
        self.mean, self.std = tuple(wanted["mean"]), tuple(wanted["std"])
        super().__init__(image_size)
        self.name = name
        self.model = model
        self.n_features = int(model.num_features)  # type: ignore[arg-type]
        size = image_size or int(wanted["input_size"][-1])
        self.preprocess = Preprocess(size=size, resize=size)

    def load_pretrained(self, file: Path | None = None) -> None:
        """Load the weights that timm names for the model."""
        super().load_pretrained(file)
        self.model = _timm().create_model(self.name, pretrained=True, num_classes=0)

    def parts(self) -> dict[str, nn.Module]:
        """Return the whole model."""
        return {"model": self.model}


def _timm() -> Any:
    try:
        import timm
        import timm.data
    except Exception as error:  # timm is absent, or does not fit the torch that is there
        raise ConfigError(f"timm:<name> needs the timm library, which cannot be imported here: {error}") from error
    return timm
