"""A minimal torchvision: the data sets, transforms and models that scripts use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from stand_ins import SEED, TEST, TRAIN, images


class _Images(torch.utils.data.Dataset):  # type: ignore[misc]
    shape: tuple[int, ...] = ()
    resources: tuple[object, ...] = ()
    mirrors: tuple[str, ...] = ()

    def __init__(
        self,
        root: str = "",
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        data, labels = images(TRAIN if train else TEST, *self.shape, seed=SEED + (not train))
        self.data, self.targets = data, [int(label) for label in labels]
        self.transform, self.target_transform = transform, target_transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, target = self.data[index], self.targets[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)


class MNIST(_Images):
    shape = (28, 28)


class FashionMNIST(MNIST):
    pass


class CIFAR10(_Images):
    shape = (32, 32, 3)


class Compose:
    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    def __call__(self, image: Any) -> Any:
        array = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())


class Normalize:
    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = (torch.as_tensor(value).reshape(-1, 1, 1) for value in (mean, std))

    def __call__(self, image: Any) -> Any:
        return (image - self.mean) / self.std


class _Unchanged:
    def __init__(self, *args: object, **named: object) -> None:
        pass

    def __call__(self, image: Any) -> Any:
        return image


class _SmallNet(torch.nn.Module):  # type: ignore[misc]
    """Accepts colour images of any size; has the first and last layers of a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 4, 3, stride=4)
        self.bn1 = torch.nn.BatchNorm2d(4)
        self.relu = torch.nn.ReLU()
        self.avgpool = torch.nn.AdaptiveAvgPool2d(1)
        self.fc = torch.nn.Linear(4, 10)

    def forward(self, images: Any) -> Any:
        return self.fc(torch.flatten(self.avgpool(self.relu(self.bn1(self.conv1(images)))), 1))


def _model(*args: object, **named: object) -> _SmallNet:
    return _SmallNet()


PARTS: dict[str, dict[str, Any]] = {
    "datasets": {"MNIST": MNIST, "FashionMNIST": FashionMNIST, "CIFAR10": CIFAR10},
    "transforms": {
        "Compose": Compose,
        "ToTensor": ToTensor,
        "Normalize": Normalize,
        **dict.fromkeys(
            ("RandomCrop", "RandomHorizontalFlip", "Resize", "CenterCrop", "RandomResizedCrop"), _Unchanged
        ),
    },
    "models": dict.fromkeys(("resnet18", "resnet34", "resnet50", "resnet101", "alexnet", "vgg11"), _model),
}
